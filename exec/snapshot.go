package exec

import (
	"fmt"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Snapshot is all that a sequence keeps between steps, by the model's names: it goes
// on from there in any engine of the model, on other ranks, by another strategy, on
// another device, or with states kept in other formats, to which it is rounded.
type Snapshot struct {
	Tokens int                  // that the sequence was given
	States map[string][]float32 // a row; of a cache, one per token
}

// Snapshot copies what a sequence keeps: of each rank all states at once, and of each
// cache the rows that there are.
func (e *Engine) Snapshot(slot int) (*Snapshot, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, err
	}
	out := &Snapshot{Tokens: e.slots.tokens[i], States: map[string][]float32{}}
	for k := range e.states {
		st := &e.states[k]
		out.States[st.Name] = make([]float32, e.rows(st.space, i)*st.cols)
	}
	for _, r := range e.runs(i) {
		if err := e.read(&r.held, i, r.data); err != nil {
			return nil, err
		}
		r.pair(func(state string, x kernels.Tensor, whole, part, n int) {
			x.Read(out.States[state][whole:whole+n], part)
		})
	}
	return out, nil
}

// Restore lets a sequence go on from a snapshot, rounded where this engine keeps a state
// in 16 bits. One that is of another model, or has numbers that f16 does not reach where
// that is kept, is an error and leaves the sequence as it was.
func (e *Engine) Restore(slot int, s *Snapshot) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.find(slot)
	if err != nil {
		return err
	}
	if err := e.fits(s); err != nil {
		return err
	}
	if err := e.fitsContext(s.Tokens); err != nil {
		return err
	}
	e.slots.state[i], e.slots.tokens[i] = broken, s.Tokens // until all of it is there
	e.release(i, 0)
	if err := e.extend(i, s.Tokens); err != nil {
		return err
	}
	for _, r := range e.runs(i) {
		r.pair(func(state string, x kernels.Tensor, whole, part, n int) {
			x.Write(part, s.States[state][whole:whole+n])
		})
		if err := e.write(&r.held, i, r.data); err != nil {
			return err
		}
	}
	e.slots.state[i] = taken
	return nil
}

// fits checks that a snapshot is of this model.
func (e *Engine) fits(s *Snapshot) error {
	if s.Tokens < 0 {
		return fmt.Errorf("a snapshot of a sequence of %d tokens", s.Tokens)
	}
	for k := range e.states {
		st, rows := &e.states[k], 1
		if st.space == lowering.Cache {
			rows = s.Tokens
		}
		values, ok := s.States[st.Name]
		if !ok {
			return fmt.Errorf("the snapshot is of another model: it has no state %s", st.Name)
		}
		if err := st.fits(values, rows); err != nil {
			return fmt.Errorf("the snapshot does not fit: %w", err)
		}
	}
	if len(s.States) != len(e.states) {
		return fmt.Errorf("the snapshot is of another model: it has %d states, this one %d", len(s.States), len(e.states))
	}
	return nil
}

// run is a stretch of a rank's memory that is copied at once: a slot's states, or the
// rows that it has in a cache.
type run struct {
	held
	data []byte
	has  []piece
}

// piece is what a run has of a state, from a byte on.
type piece struct {
	*state
	*held
	rows, from int
}

// pair pairs stretches of states with those of what the run has of them.
func (r *run) pair(visit func(state string, x kernels.Tensor, whole, part, n int)) {
	for _, p := range r.has {
		x := operand.Floats(p.dtype, r.data[p.from:p.from+p.bytes(p.rows)])
		p.each(p.rows, p.cols, func(whole, part, n int) { visit(p.Name, x, whole, part, n) })
	}
}

// runs lists what the ranks keep of a slot, with memory for it.
func (e *Engine) runs(slot int) []*run {
	var list []*run
	states := make([]*run, len(e.schedules)) // by rank
	for k := range e.states {
		st := &e.states[k]
		for j := range st.held {
			h := &st.held[j]
			rows := e.rows(st.space, slot)
			if h.cache {
				list = append(list, &run{*h, make([]byte, h.bytes(rows)), []piece{{st, h, rows, 0}}})
				continue
			}
			r := states[h.rank]
			if r == nil {
				r = &run{*h, make([]byte, h.run), nil}
				r.first = 0 // all of the slot's
				states[h.rank], list = r, append(list, r)
			}
			r.has = append(r.has, piece{st, h, rows, h.first})
		}
	}
	return list
}

package state

import (
	"fmt"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Snapshot is the state of a sequence by the model's names. Any engine of the model resumes from
// it: with another number of ranks, another sharding strategy, on another device, or with states
// stored in other formats, to which it is rounded.
type Snapshot struct {
	Tokens int                  // of the sequence
	States map[string][]float32 // a row; of a KV cache, one per token
}

// Snapshot copies the state of a sequence: the recurrent states of each rank at once, and of each
// KV cache the rows of the tokens.
func (s *Store) Snapshot(slot int) (*Snapshot, error) {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	out := &Snapshot{Tokens: s.t.slots.tokens[i], States: map[string][]float32{}}
	for k := range s.t.states {
		st := &s.t.states[k]
		out.States[st.Name] = make([]float32, s.t.rows(st.space, i)*st.cols)
	}
	for _, r := range s.t.runs(i) {
		if err := s.t.read(&r.shard, i, r.data); err != nil {
			return nil, err
		}
		r.each(func(state string, x kernels.Tensor, whole, part, n int) {
			x.Read(out.States[state][whole:whole+n], part)
		})
	}
	return out, nil
}

// Restore lets a sequence resume from a snapshot, rounded where this engine stores a state in 16
// bits. A snapshot of another model, or with values beyond the range of f16 where a state is stored
// in it, is an error and leaves the sequence as it was.
func (s *Store) Restore(slot int, x *Snapshot) error {
	i, err := s.lockSlot((*slots).find, slot)
	if err != nil {
		return err
	}
	defer s.gate.Unlock()
	if err := s.t.check(x); err != nil {
		return err
	}
	if err := s.t.CheckContext(x.Tokens); err != nil {
		return err
	}
	s.t.begin(i, x.Tokens)
	s.t.release(i, 0)
	if err := s.t.extend(i, x.Tokens); err != nil {
		return err
	}
	for _, r := range s.t.runs(i) {
		r.each(func(state string, t kernels.Tensor, whole, part, n int) {
			t.Write(part, x.States[state][whole:whole+n])
		})
		if err := s.t.write(&r.shard, i, r.data); err != nil {
			return err
		}
	}
	s.t.slots.status[i] = allocated
	return nil
}

// check checks that a snapshot is of this model.
func (t *Table) check(s *Snapshot) error {
	if s.Tokens < 0 {
		return fmt.Errorf("a snapshot of a sequence of %d tokens", s.Tokens)
	}
	for k := range t.states {
		st, rows := &t.states[k], 1
		if st.space == lowering.Cache {
			rows = s.Tokens
		}
		values, ok := s.States[st.Name]
		if !ok {
			return fmt.Errorf("the snapshot is of another model: it has no state %s", st.Name)
		}
		if err := st.check(values, rows); err != nil {
			return fmt.Errorf("the snapshot does not fit: %w", err)
		}
	}
	if len(s.States) != len(t.states) {
		return fmt.Errorf("the snapshot is of another model: it has %d states, this one %d", len(s.States), len(t.states))
	}
	return nil
}

// run is a stretch of a rank's memory that is copied at once: a slot's recurrent states, or its
// rows of one KV cache.
type run struct {
	shard
	data  []byte
	parts []runPart
}

// runPart is a shard in a run, from byte from on.
type runPart struct {
	*modelState
	*shard
	rows, from int
}

// each calls f for each stretch of a state that the run has.
func (r *run) each(f func(state string, x kernels.Tensor, whole, part, n int)) {
	for _, p := range r.parts {
		x := operand.Floats(p.dtype, r.data[p.from:p.from+p.bytes(p.rows)])
		p.shard.each(p.rows, p.cols, func(whole, part, n int) { f(p.Name, x, whole, part, n) })
	}
}

// runs lists the runs of a slot on all ranks, with memory for them.
func (t *Table) runs(slot int) []*run {
	var list []*run
	states := make([]*run, len(t.schedules)) // by rank
	for k := range t.states {
		st := &t.states[k]
		for j := range st.shards {
			sh := &st.shards[j]
			rows := t.rows(st.space, slot)
			if sh.cache {
				list = append(list, &run{*sh, make([]byte, sh.bytes(rows)), []runPart{{st, sh, rows, 0}}})
				continue
			}
			r := states[sh.rank]
			if r == nil {
				r = &run{*sh, make([]byte, sh.run), nil}
				r.first = 0 // the whole run
				states[sh.rank], list = r, append(list, r)
			}
			r.parts = append(r.parts, runPart{st, sh, rows, sh.first})
		}
	}
	return list
}

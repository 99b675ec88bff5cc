package exec

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// State is what a sequence keeps between steps under a name. Name and type are
// those of the model, whatever passes made of it, by whatever strategy and on
// however many ranks: f32[s 256/1 16], a row per sequence, or f32[s c 32/16], a row
// per sequence and token. The dtype is that in which the engine keeps it: numbers come
// as f32, which holds all of them exactly, and what is brought is rounded to it.
type State struct {
	Name string
	Type graph.Type
}

// state is a state of the model, and where the ranks have it.
type state struct {
	State
	space lowering.Space
	cols  int // elements of a row
	held  []held
}

// held is what a rank holds of a state, or of a part of it: pieces of its rows.
type held struct {
	rank, buffer int
	dtype        graph.DType
	first        int  // bytes before it in a slot's run
	run          int  // bytes of the run: of all states of a slot
	cache        bool // it has a row per token, in pages, instead
	row          int  // elements of a row
	pieces       graph.Pieces
}

// findStates lists the states of the model that the schedules have, in their order.
func findStates(schedules []*lowering.Schedule) ([]state, error) {
	var list []state
	for _, s := range schedules {
		for i := range s.Buffers {
			b := &s.Buffers[i]
			if b.Space != lowering.State && b.Space != lowering.Cache {
				continue
			}
			name, t := b.State()
			k := slices.IndexFunc(list, func(x state) bool { return x.Name == name })
			if k < 0 {
				k = len(list)
				list = append(list, state{State: State{name, t}, space: b.Space, cols: graph.RowElems(t.Dims)})
			}
			st := &list[k]
			if !st.Type.Equal(t) {
				return nil, fmt.Errorf("state %s is %s on rank %d and %s elsewhere", name, t, s.Rank, st.Type)
			}
			h := held{rank: s.Rank, buffer: i, dtype: t.DType, row: int(b.Bytes) / t.DType.Bytes(), cache: b.Space == lowering.Cache, pieces: s.Pieces(b)}
			if !h.cache {
				h.first, h.run = int(b.Offset), int(s.Bytes[lowering.State])
			}
			st.held = append(st.held, h)
		}
	}
	return list, nil
}

// each pairs stretches of a state's rows with those of the rank's.
func (h *held) each(rows, cols int, visit func(whole, part, n int)) {
	h.pieces.Each(rows, cols, func(row, whole, _, part, n int) { visit(row*cols+whole, row*h.row+part, n) })
}

// States lists the model's states. Those of which nothing is used are not kept, and
// a field that nothing uses may be zero.
func (e *Engine) States() []State {
	out := make([]State, len(e.states))
	for i := range out {
		out[i] = e.states[i].State
	}
	return out
}

// State copies a state of a sequence, whatever the ranks hold of it: a row, or of a
// cache a row per token.
func (e *Engine) State(slot int, name string) ([]float32, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	st, i, err := e.find(slot, name)
	if err != nil {
		return nil, err
	}
	rows := e.rows(st.space, i)
	out := make([]float32, rows*st.cols)
	for k := range st.held {
		h := &st.held[k]
		data := make([]byte, h.bytes(rows))
		if err := e.read(h, i, data); err != nil {
			return nil, err
		}
		x := operand.Floats(h.dtype, data)
		h.each(rows, st.cols, func(whole, part, n int) { x.Read(out[whole:whole+n], part) })
	}
	return out, nil
}

// SetState replaces a state of a sequence. What is kept in a format of 16 bits is
// rounded; numbers that f16 does not reach are an error.
func (e *Engine) SetState(slot int, name string, values []float32) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	st, i, err := e.find(slot, name)
	if err != nil {
		return err
	}
	rows := e.rows(st.space, i)
	if err := st.fits(values, rows); err != nil {
		return err
	}
	if st.space == lowering.Cache {
		if err := e.writable(i, 0, rows); err != nil {
			return err
		}
	}
	for k := range st.held {
		h := &st.held[k]
		data := make([]byte, h.bytes(rows))
		x := operand.Floats(h.dtype, data)
		h.each(rows, st.cols, func(whole, part, n int) { x.Write(part, values[whole:whole+n]) })
		if err := e.write(h, i, data); err != nil {
			return err
		}
	}
	return nil
}

// find is a state by its name, and the slot of a handle.
func (e *Engine) find(slot int, name string) (*state, int, error) {
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, 0, err
	}
	for k := range e.states {
		if e.states[k].Name == name {
			return &e.states[k], i, nil
		}
	}
	return nil, 0, fmt.Errorf("the model has no state %s", name)
}

// rows is how many rows a slot has of each state of a space.
func (e *Engine) rows(space lowering.Space, slot int) int {
	if space == lowering.Cache {
		return e.slots.tokens[slot]
	}
	return 1
}

// read copies what a rank holds of a slot's state: of a cache, the rows of its tokens.
func (e *Engine) read(h *held, slot int, to []byte) error {
	if h.cache {
		return e.machine.ReadRows(h.rank, h.buffer, e.rowsOf(slot, 0, e.slots.tokens[slot]), to)
	}
	return e.machine.Read(h.rank, slot, int64(h.first), to)
}

func (e *Engine) write(h *held, slot int, from []byte) error {
	if h.cache {
		return e.machine.WriteRows(h.rank, h.buffer, e.rowsOf(slot, 0, e.slots.tokens[slot]), from)
	}
	return e.machine.Write(h.rank, slot, int64(h.first), from)
}

// bytes is what rows take.
func (h *held) bytes(rows int) int { return rows * h.row * h.dtype.Bytes() }

func (st *state) fits(values []float32, rows int) error {
	if len(values) != rows*st.cols {
		return fmt.Errorf("state %s has %d elements, %d given", st.Name, rows*st.cols, len(values))
	}
	if st.Type.DType != graph.F16 {
		return nil
	}
	for i, v := range values { // of what rounds to infinity, 65520 is the smallest
		if a := math.Abs(float64(v)); a >= 65520 && !math.IsInf(a, 0) {
			return fmt.Errorf("state %s is kept in f16, which ends at 65504; element %d is %g: open the model with that state in bf16 or f32", st.Name, i, v)
		}
	}
	return nil
}

package state

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Spec is the name and type of a state of the model, independent of passes, sharding and the number
// of ranks: f32[s 256/1 16], a row per sequence, or f32[s c 32/16], a row per sequence and token.
// The dtype is that in which the engine stores it. Values are read as f32, which holds all of them
// exactly, and are rounded to the dtype where they are written.
type Spec struct {
	Name string
	Type graph.Type
}

// modelState is a state of the model, and its shards on the ranks.
type modelState struct {
	Spec
	space  lowering.Space
	cols   int // elements of a row
	shards []shard
}

// shard is the part of a state that a rank has: pieces of its rows.
type shard struct {
	rank, buffer int
	dtype        graph.DType
	first        int  // offset in the rank's states of a slot, in bytes
	run          int  // bytes of all of the rank's states of a slot
	cache        bool // it is a KV cache: a row per token, in pages, and no run
	row          int  // elements of a row
	pieces       graph.Pieces
}

// findStates lists the states of the model that the schedules have, in their order.
func findStates(schedules []*lowering.Schedule) ([]modelState, error) {
	var list []modelState
	for _, s := range schedules {
		for i := range s.Buffers {
			b := &s.Buffers[i]
			if b.Space != lowering.State && b.Space != lowering.Cache {
				continue
			}
			name, t := b.State()
			k := slices.IndexFunc(list, func(x modelState) bool { return x.Name == name })
			if k < 0 {
				k = len(list)
				list = append(list, modelState{Spec: Spec{name, t}, space: b.Space, cols: graph.RowElems(t.Dims)})
			}
			st := &list[k]
			if !st.Type.Equal(t) {
				return nil, fmt.Errorf("state %s is %s on rank %d and %s elsewhere", name, t, s.World(), st.Type)
			}
			sh := shard{rank: s.World(), buffer: i, dtype: t.DType, row: int(b.Bytes) / t.DType.Bytes(), cache: b.Space == lowering.Cache, pieces: s.Pieces(b)}
			if !sh.cache {
				sh.first, sh.run = int(b.Offset), int(s.Bytes[lowering.State])
			}
			st.shards = append(st.shards, sh)
		}
	}
	return list, nil
}

// each calls f for each stretch of n elements that a shard has of a state's rows: where it begins
// in the state, and where in the shard.
func (sh *shard) each(rows, cols int, f func(whole, part, n int)) {
	sh.pieces.Each(rows, cols, func(row, whole, _, part, n int) { f(row*cols+whole, row*sh.row+part, n) })
}

// bytes is the size of rows.
func (sh *shard) bytes(rows int) int { return rows * sh.row * sh.dtype.Bytes() }

// caches lists the shards of KV caches.
func (t *Table) caches() (list []*shard) {
	for k := range t.states {
		for j := range t.states[k].shards {
			if sh := &t.states[k].shards[j]; sh.cache {
				list = append(list, sh)
			}
		}
	}
	return list
}

// kvBytes is the size of the KV cache of a token, over all ranks.
func (t *Table) kvBytes() (n int64) {
	for _, sh := range t.caches() {
		n += int64(sh.bytes(1))
	}
	return n
}

// ranksWithState lists a shard of each rank that has recurrent states; its run is that of all of
// them.
func (t *Table) ranksWithState() (list []*shard) {
	for k := range t.states {
		for j := range t.states[k].shards {
			sh := &t.states[k].shards[j]
			if sh.run > 0 && !slices.ContainsFunc(list, func(x *shard) bool { return x.rank == sh.rank }) {
				list = append(list, sh)
			}
		}
	}
	return list
}

// States lists the model's states. It leaves out states that no output depends on; a field that
// nothing uses may be zero.
func (s *Store) States() []Spec {
	out := make([]Spec, len(s.t.states))
	for i := range out {
		out[i] = s.t.states[i].Spec
	}
	return out
}

// State copies a state of a sequence, whole: a row, or of a KV cache a row per token.
func (s *Store) State(slot int, name string) ([]float32, error) {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	st, err := s.t.state(name)
	if err != nil {
		return nil, err
	}
	rows := s.t.rows(st.space, i)
	out := make([]float32, rows*st.cols)
	for k := range st.shards {
		sh := &st.shards[k]
		data := make([]byte, sh.bytes(rows))
		if err := s.t.read(sh, i, data); err != nil {
			return nil, err
		}
		x := operand.Floats(sh.dtype, data)
		sh.each(rows, st.cols, func(whole, part, n int) { x.Read(out[whole:whole+n], part) })
	}
	return out, nil
}

// SetState replaces a state of a sequence. Values are rounded where the engine stores the state in
// 16 or 8 bits; values beyond the range of f16 or e4m3 are an error there.
func (s *Store) SetState(slot int, name string, values []float32) error {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return err
	}
	defer s.gate.Unlock()
	st, err := s.t.state(name)
	if err != nil {
		return err
	}
	rows := s.t.rows(st.space, i)
	if err := st.check(values, rows); err != nil {
		return err
	}
	if st.space == lowering.Cache {
		if _, err := s.t.BlockTable(i, 0, rows); err != nil {
			return err
		}
	}
	for k := range st.shards {
		sh := &st.shards[k]
		data := make([]byte, sh.bytes(rows))
		x := operand.Floats(sh.dtype, data)
		sh.each(rows, st.cols, func(whole, part, n int) { x.Write(part, values[whole:whole+n]) })
		if err := s.t.write(sh, i, data); err != nil {
			return err
		}
	}
	return nil
}

// state finds a state by its name.
func (t *Table) state(name string) (*modelState, error) {
	i := slices.IndexFunc(t.states, func(x modelState) bool { return x.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the model has no state %s", name)
	}
	return &t.states[i], nil
}

// rows is the number of rows that a slot has of each state of a space.
func (t *Table) rows(space lowering.Space, slot int) int {
	if space == lowering.Cache {
		return t.slots.tokens[slot]
	}
	return 1
}

// read copies a shard of a slot's state: of a KV cache, the rows of its tokens.
func (t *Table) read(sh *shard, slot int, to []byte) error {
	if sh.cache {
		return t.memory.ReadRows(sh.rank, sh.buffer, t.pageRows(slot, 0, t.slots.tokens[slot]), to)
	}
	return t.memory.ReadSlot(sh.rank, t.slots.memory[slot], int64(sh.first), to)
}

func (t *Table) write(sh *shard, slot int, from []byte) error {
	if sh.cache {
		return t.memory.WriteRows(sh.rank, sh.buffer, t.pageRows(slot, 0, t.slots.tokens[slot]), from)
	}
	return t.memory.WriteSlot(sh.rank, t.slots.memory[slot], int64(sh.first), from)
}

// check checks the number of values, and their range.
func (st *modelState) check(values []float32, rows int) error {
	if len(values) != rows*st.cols {
		return fmt.Errorf("state %s has %d elements, %d given", st.Name, rows*st.cols, len(values))
	}
	var largest, end float64 // the largest number of the format, and the least that rounds beyond it
	switch st.Type.DType {
	case graph.F16:
		largest, end = 65504, 65520
	case graph.F8:
		largest, end = 448, 464+0x1p-16
	default:
		return nil
	}
	for i, v := range values {
		if a := math.Abs(float64(v)); a >= end && !(math.IsInf(a, 0) && st.Type.DType == graph.F16) {
			return fmt.Errorf("state %s is stored in %s, which ends at %g; element %d is %g: open the model with that state in bf16 or f32", st.Name, st.Type.DType, largest, i, v)
		}
	}
	return nil
}

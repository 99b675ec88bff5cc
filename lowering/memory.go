package lowering

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// memory plans the arena: a buffer's place is used again after the last node
// that needs it, once every stream knows that it is done.
type memory struct {
	arena [len(spaceNames)]arena
	end   []int // by buffer: the node after which it is free
	live  []int // buffers of the arena that are not free
	busy  []int // by buffer: the last collective that touches it
}

// buffer makes a buffer for v.
func (l *lowerer) buffer(v *graph.Value, space Space, offset, bytes int64) {
	l.ref[v.ID] = Ref{Name: v.Name, Type: v.Type, Buffer: len(l.s.Buffers), Stride: graph.RowElems(l.s.Local(v.Type).Dims)}
	l.s.Buffers = append(l.s.Buffers, Buffer{Name: v.Name, Type: v.Type, Space: space, Offset: offset, Bytes: bytes})
	l.end = append(l.end, l.last[v.ID])
	l.busy = append(l.busy, 0)
	if space >= PerToken {
		l.live = append(l.live, len(l.end)-1)
	}
}

// result finds memory for a result: where depends on the symbol in its shape.
func (l *lowerer) result(v *graph.Value, constant bool) error {
	bytes, space, err := sizeOf(l.s.Local(v.Type))
	if err != nil {
		return err
	}
	if constant {
		space = Constant
	}
	if space == Cache {
		return fmt.Errorf("%s: only a state can be a cache", v.Type)
	}
	l.buffer(v, space, l.arena[space].take(bytes), bytes)
	return nil
}

// keep holds a buffer until a node.
func (l *lowerer) keep(buffer, node int) { l.end[buffer] = max(l.end[buffer], node) }

// release frees the buffers that no node after node i needs, except those that
// a collective may still be reading or writing: all that was launched knows
// about it only when the compute stream has waited for it.
func (l *lowerer) release(i int) {
	l.live = slices.DeleteFunc(l.live, func(id int) bool {
		if l.end[id] > i || l.busy[id] > l.waited {
			return false
		}
		b := l.s.Buffers[id]
		l.arena[b.Space].give(b.Offset, b.Bytes)
		return true
	})
}

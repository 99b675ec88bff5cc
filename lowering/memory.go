package lowering

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// forever is when a buffer dies that the caller may read.
const forever = math.MaxInt32

// memory plans the arena: a buffer's place is used again after the last node that needs it, once
// every stream knows that it is done. Where that place is, is found when all lifetimes are known.
type memory struct {
	end  []int // by buffer: the node after which it is not needed
	live []int // buffers with a place that are not free
	busy []int // by buffer: the last collective that touches it
	life []lifetime
}

// buffer makes a buffer for v.
func (l *lowerer) buffer(v *graph.Value, space Space, offset, bytes int64) {
	l.ref[v.ID] = Ref{Name: v.Name, Type: v.Type, Buffer: len(l.s.Buffers), Stride: graph.RowElems(l.s.Local(v.Type).Dims)}
	l.s.Buffers = append(l.s.Buffers, Buffer{Name: v.Name, Type: v.Type, Narrow: v.Narrow, Space: space, Offset: offset, Bytes: bytes})
	l.end = append(l.end, l.last[v.ID])
	l.busy = append(l.busy, 0)
	l.life = append(l.life, lifetime{l.first[l.at], forever, bytes})
	if space >= PerToken {
		l.live = append(l.live, len(l.end)-1)
	}
}

// result makes a buffer for a result: in which region depends on the symbol in its shape.
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
	at := l.where(v, space)
	bytes, _ = l.s.room(at, space, v.Narrow.Room(bytes))
	l.buffer(v, at, 0, bytes)
	if at.OfPiece() {
		l.life[len(l.life)-1].born = l.at
	}
	return nil
}

// where is the region for a result whose shape asks for one.
func (l *lowerer) where(v *graph.Value, shape Space) Space {
	switch {
	case shape == PerToken && l.inside[v.ID] && l.inUnits:
		return PerPieceShare
	case shape == PerToken && l.inside[v.ID]:
		return PerPiece
	case shape == PerToken && l.inUnits:
		return PerTokenShare
	}
	return shape
}

// keep holds a buffer until a node.
func (l *lowerer) keep(buffer, node int) { l.end[buffer] = max(l.end[buffer], node) }

// release ends the lives of buffers that no node after this one needs, except
// those that a collective may still be reading or writing: all that was launched
// knows about it only when the compute stream has waited for it.
func (l *lowerer) release() {
	l.live = slices.DeleteFunc(l.live, func(id int) bool {
		if l.end[id] > l.at || l.busy[id] > l.waited {
			return false
		}
		l.life[id].died = l.at
		return true
	})
}

// assign finds offsets for what lies in the arena, and for constants. Pieces come after what
// all tokens have, and take what that leaves free first.
func (l *lowerer) assign() {
	pieces := map[Space]Space{PerToken: PerPiece, PerTokenShare: PerPieceShare}
	for space := Constant; space <= Fixed; space++ {
		if space.OfPiece() {
			continue
		}
		ids, life := l.of(space)
		var more []int
		var lives []lifetime
		piece, ok := pieces[space]
		if ok {
			more, lives = l.of(piece)
		}
		offsets, peak, top := packWith(life, lives)
		for k, i := range ids {
			l.s.Buffers[i].Offset = offsets[k]
		}
		for k, i := range more {
			l.s.Buffers[i].Offset = offsets[len(ids)+k] - peak
		}
		if l.s.Bytes[space] = peak; ok {
			l.s.Bytes[piece] = top - peak
		}
	}
}

// of is the buffers of a space, and their lives.
func (l *lowerer) of(space Space) (ids []int, life []lifetime) {
	for i, b := range l.s.Buffers {
		if b.Space == space {
			ids, life = append(ids, i), append(life, l.life[i])
		}
	}
	return ids, life
}

package lowering

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// inPlace finds memory for a result of node n among the operands that die there.
func (l *lowerer) inPlace(n *graph.Node, v *graph.Value) (Ref, bool) {
	for _, k := range n.Op.InPlace {
		r := l.ref[n.Args[k].ID]
		if l.together(v, &r) && l.s.Buffers[r.Buffer].Narrow == v.Narrow && l.s.mayTake(v.Type, &r) && l.end[r.Buffer] <= l.at && l.busy[r.Buffer] <= l.waited && !l.sharedIn(n, r.Buffer) {
			return r, true
		}
	}
	return Ref{}, false
}

// together reports whether a result and an operand that it may lie over are both of one
// piece, or neither is of a loop: in one, others need rows of the operand.
func (l *lowerer) together(v *graph.Value, r *Ref) bool {
	return l.loop[l.at] == 0 || l.inside[v.ID] && l.s.Buffers[r.Buffer].Space.OfPiece()
}

// sharedIn reports whether a buffer is needed otherwise in node n: for an operand
// that must stay as it is, or a part of one, or for another result.
func (l *lowerer) sharedIn(n *graph.Node, buffer int) bool {
	for k, a := range n.Args {
		if r := l.ref[a.ID]; r.Buffer == buffer && !(slices.Contains(n.Op.InPlace, k) && l.s.whole(&r)) {
			return true
		}
	}
	return slices.ContainsFunc(n.Results, func(v *graph.Value) bool { return l.ref[v.ID].Name != "" && l.ref[v.ID].Buffer == buffer })
}

// mayTake reports whether a result of type t may lie where r does: in the arena, and
// element by element.
func (s *Schedule) mayTake(t graph.Type, r *Ref) bool {
	b := &s.Buffers[r.Buffer]
	return b.Space >= PerToken && s.fills(t, b) && b.Type.DType == t.DType && s.whole(r) &&
		r.Stride == graph.RowElems(s.Local(t).Dims)
}

// whole reports whether a tensor is all of its buffer.
func (s *Schedule) whole(r *Ref) bool {
	return r.Offset == 0 && s.fills(r.Type, &s.Buffers[r.Buffer]) && r.Stride == graph.RowElems(s.Local(r.Type).Dims)
}

// fills reports whether a tensor of type t has the size of a buffer, and may lie there.
func (s *Schedule) fills(t graph.Type, b *Buffer) bool {
	bytes, shape, err := sizeOf(s.Local(t))
	bytes, ok := s.room(b.Space, shape, b.Narrow.Room(bytes))
	return err == nil && ok && bytes == b.Bytes
}

// intended reports whether result k of a step may lie where operand i does.
func (s *Schedule) intended(st *Step, k, i int) bool {
	to, from := &st.Results[k], &st.Args[i]
	if to.Buffer != from.Buffer || !s.whole(to) || !s.whole(from) || to.Type.DType != from.Type.DType || to.Stride != from.Stride {
		return false
	}
	if st.Kind == Launch {
		return slices.Contains(st.Op.InPlace, i) || slices.ContainsFunc(st.Op.States, func(p graph.StatePair) bool { return p.Operand == i && p.Result == k })
	}
	return sumsWhole(st.Op) && i == k
}

// sumsWhole reports whether an operation adds up values of which every rank holds
// all elements before and after, so that a sum may lie over its summand.
func sumsWhole(op *graph.Op) bool { return op.From == graph.Partial && op.To == graph.Replicated }

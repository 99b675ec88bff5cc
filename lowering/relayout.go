package lowering

import (
	"github.com/krait-ml/krait/graph"
)

// relayout changes a layout without an exchange: by a view where a stride can
// express it, otherwise by a step.
func (l *lowerer) relayout(n *graph.Node) error {
	of, v := l.ref[n.Args[0].ID], n.Results[0]
	share, ranks, at := l.s.ShareOf(&Step{Attrs: n.Attrs}, v.Type)
	if n.Op.Name == "term" && at == 0 {
		l.alias(v, of)
		return nil
	}
	if n.Op.Name == "shard" && !share.Layout.ByBatch() { // else where the part begins depends on the batch
		runs := share.Extents(nil, ranks, at)
		if len(runs) == 1 {
			if r, ok := l.part(of, share.Layout.Axis, runs[0].Start); ok {
				l.alias(v, r)
				return nil
			}
		}
	}
	return l.copied(n)
}

// copied makes a step that copies a part of its operand.
func (l *lowerer) copied(n *graph.Node) error {
	st := Step{Kind: Relayout, Name: n.Name(), Op: n.Op, Attrs: n.Attrs, Args: l.refs(n.Args), Loop: l.loop[l.at]}
	if err := l.result(n.Results[0], l.constant(st.Args)); err != nil {
		return err
	}
	st.Results = l.refs(n.Results)
	l.compute(st)
	return nil
}

// isColumns reports whether a step copies a field of columns.
func (s *Schedule) isColumns(st *Step) bool {
	if len(st.Args) != 1 || len(st.Args[0].Type.Dims) != 2 || st.Attrs.Int("axis") != 1 {
		return false
	}
	from, to := s.Local(st.Args[0].Type), s.Local(st.Results[0].Type)
	first, n, _, ok := from.Dims[1].Run(st.Attrs.Text("name"))
	if !ok || from.DType != to.DType || len(to.Dims) != 2 || from.Dims[0].Sym != to.Dims[0].Sym {
		return false
	}
	return graph.Dim{Fields: from.Dims[1].Fields[first : first+n]}.Len() == to.Dims[1].Len()
}

// Column is where the field begins that a step copies: of the columns of its operand.
func (s *Schedule) Column(st *Step) int {
	_, _, start, _ := s.Local(st.Args[0].Type).Dims[1].Run(st.Attrs.Text("name"))
	return start
}

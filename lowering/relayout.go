package lowering

import (
	"github.com/krait-ml/krait/graph"
)

// relayout changes a layout without an exchange: by a view where a stride can
// express it, otherwise by a step.
func (l *lowerer) relayout(n *graph.Node) error {
	of, v := l.ref[n.Args[0].ID], n.Results[0]
	if n.Op.Name == "term" && l.s.Rank == 0 {
		l.alias(v, of)
		return nil
	}
	if n.Op.Name == "shard" && !v.Type.Layout.ByBatch() { // else where the part begins hangs on the batch
		runs := v.Type.Extents(nil, l.s.Ranks, l.s.Rank)
		if len(runs) == 1 {
			if r, ok := l.part(of, v.Type.Layout.Axis, runs[0].Start); ok {
				l.alias(v, r)
				return nil
			}
		}
	}
	st := Step{Kind: Relayout, Name: n.Name(), Op: n.Op, Attrs: n.Attrs, Args: l.refs(n.Args)}
	if err := l.result(v, l.constant(st.Args)); err != nil {
		return err
	}
	st.Results = l.refs(n.Results)
	l.compute(st)
	return nil
}

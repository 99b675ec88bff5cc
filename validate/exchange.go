package validate

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// kinds says between which kinds of layout a node goes.
var kinds = map[string]struct{ from, to graph.LayoutKind }{
	"all_reduce":     {graph.Partial, graph.Replicated},
	"all_gather":     {graph.Sharded, graph.Replicated},
	"reduce_scatter": {graph.Partial, graph.Sharded},
	"shard":          {graph.Replicated, graph.Sharded},
	"term":           {graph.Replicated, graph.Partial},
}

// exchange runs a collective, or a change of layout.
func (m *machine) exchange(n *graph.Node) error {
	if len(n.Args) != len(n.Results) || len(n.Args) == 0 {
		return fmt.Errorf("%d operands and %d results", len(n.Args), len(n.Results))
	}
	for i := range n.Args {
		if err := m.pass(n, i); err != nil {
			return err
		}
	}
	return nil
}

// pass makes result i from operand i.
func (m *machine) pass(n *graph.Node, i int) error {
	x, v, to := n.Args[i], n.Results[i], m.values[n.Results[i]]
	if k, ok := kinds[n.Op.Name]; ok && (x.Type.Layout.Kind != k.from || v.Type.Layout.Kind != k.to) {
		return fmt.Errorf("takes %s as %s and gives %s", x.Name, x.Type, v.Type)
	}
	from := make([]kernels.Tensor, m.ranks)
	for r := range from {
		var err error
		if from[r], err = floats(m.values[x][r]); err != nil {
			return err
		}
	}
	switch n.Op.Name {
	case "all_reduce":
		sum, err := m.sum(n, i, from)
		if err != nil {
			return err
		}
		for r := range to {
			if len(to[r].F64) != len(sum.F64) {
				return fmt.Errorf("a sum of %d elements, and %s has %d", len(sum.F64), v.Name, len(to[r].F64))
			}
			copy(to[r].F64, sum.F64)
		}
	case "all_gather":
		for r := range from {
			gather(&to[0], &from[r], x.Type, m.ranks, r)
		}
		for r := range to[1:] {
			copy(to[r+1].F64, to[0].F64)
		}
	case "reduce_scatter":
		sum, err := m.sum(n, i, from)
		if err != nil {
			return err
		}
		for r := range to {
			cut(&to[r], &sum, v.Type, m.ranks, r)
		}
	case "shard":
		for r := range to {
			cut(&to[r], &from[r], v.Type, m.ranks, r)
		}
	case "term":
		copy(to[0].F64, from[0].F64)
	default:
		return skip("there is nothing that runs " + n.Op.Name)
	}
	return nil
}

// sum adds operand i of the ranks, rank 0 first: exactly, or in the format in
// which it travels, or in f32 where the node says so.
func (m *machine) sum(n *graph.Node, i int, terms []kernels.Tensor) (kernels.Tensor, error) {
	v, sum := n.Args[i], terms[0]
	narrow := m.rounds && (v.Type.DType == graph.F16 || v.Type.DType == graph.BF16)
	wide := n.Attrs.Text("acc") == "f32"
	sum.F64 = slices.Clone(sum.F64)
	for r, t := range terms[1:] {
		if len(t.F64) != len(sum.F64) {
			return sum, fmt.Errorf("rank 0 has %d elements of %s and rank %d has %d", len(sum.F64), v.Name, r+1, len(t.F64))
		}
		for k, x := range t.F64 {
			if narrow {
				sum.F64[k] = float64(float32(sum.F64[k]) + float32(x))
			} else {
				sum.F64[k] += x
			}
		}
		if narrow && !wide {
			m.round(n.Results[i], sum.F64)
		}
	}
	if narrow {
		m.round(n.Results[i], sum.F64)
	}
	return sum, nil
}

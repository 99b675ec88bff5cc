package validate

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

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

// pass makes result i from operand i, in each group of ranks that takes part.
func (m *machine) pass(n *graph.Node, i int) error {
	a, _ := n.Along()
	x, v := n.Args[i], n.Results[i]
	if x.Type.On(a).Layout.Kind != n.Op.From || v.Type.On(a).Layout.Kind != n.Op.To {
		return fmt.Errorf("takes %s as %s and gives %s", x.Name, x.Type, v.Type)
	}
	for rank := range m.ranks {
		if m.over.At(rank, a) == 0 {
			if err := m.passIn(n, i, m.over.Group(rank, a), a); err != nil {
				return err
			}
		}
	}
	return nil
}

// passIn is pass in one group, along an axis.
func (m *machine) passIn(n *graph.Node, i int, group []int, a graph.MeshAxis) error {
	x, v := n.Args[i], n.Results[i]
	lies, ranks, _ := m.over.Share(v.Type, a, group[0])
	if x.Type.DType == graph.I32 && n.Op.Class == graph.Relayout {
		for at, r := range group {
			cutIntegers(m.lot, &m.values[v][r], &m.values[x][r], lies, ranks, at)
		}
		return nil
	}
	from := make([]kernels.Tensor, ranks)
	for at, r := range group {
		var err error
		if from[at], err = floats(m.values[x][r]); err != nil {
			return err
		}
	}
	whole, err := m.assemble(n, i, from, group[0], a)
	if err != nil {
		return err
	}
	for at, r := range group {
		if n.Op.To == graph.Partial && at > 0 {
			break // the first keeps the value, the others zeros
		}
		if err := lay(m.lot, &m.values[v][r], &whole[at], v, lies, ranks, at); err != nil {
			return err
		}
	}
	return nil
}

// lay copies what a rank is to hold of a whole value.
func lay(l *lot, to, whole *kernels.Tensor, v *graph.Value, t graph.Type, ranks, rank int) error {
	if t.Layout.Kind == graph.Sharded {
		cut(l, to, whole, t, ranks, rank)
		return nil
	}
	if len(to.F64) != len(whole.F64) {
		return fmt.Errorf("%d elements, and %s has %d", len(whole.F64), v.Name, len(to.F64))
	}
	copy(to.F64, whole.F64)
	return nil
}

// assemble gives each rank of a group the whole of operand i, of which they hold summands, parts,
// or all: whole along the axis of the group.
func (m *machine) assemble(n *graph.Node, i int, held []kernels.Tensor, first int, a graph.MeshAxis) ([]kernels.Tensor, error) {
	var whole kernels.Tensor
	var err error
	switch n.Op.From {
	case graph.Replicated:
		return held, nil
	case graph.Partial:
		whole, err = m.sum(n, i, held)
	case graph.Sharded:
		whole, err = m.gather(n.Args[i], held, first, a)
	}
	return slices.Repeat([]kernels.Tensor{whole}, len(held)), err
}

// gather puts the parts of a value together.
func (m *machine) gather(v *graph.Value, parts []kernels.Tensor, first int, a graph.MeshAxis) (kernels.Tensor, error) {
	lies, ranks, _ := m.over.Share(v.Type, a, first)
	along := *v // with the layout along the other axis alone
	if a == graph.CP {
		along.Type.Context = graph.Layout{}
	} else {
		along.Type.Layout = graph.Layout{}
	}
	whole, err := describeOn(m.lot, &along, m.over, first)
	if err != nil {
		return whole, err
	}
	allocate(&whole, v.Type)
	for at := range parts {
		gather(m.lot, &whole, &parts[at], lies, ranks, at)
	}
	return whole, nil
}

// sum adds operand i of the ranks, rank 0 first: exactly, or in the format in
// which it travels, or in f32 where the node says so.
func (m *machine) sum(n *graph.Node, i int, terms []kernels.Tensor) (kernels.Tensor, error) {
	v, sum := n.Args[i], terms[0]
	narrow := m.rounds && (v.Type.DType == graph.F16 || v.Type.DType == graph.BF16 || v.Type.DType.InBlocks())
	wide := n.Attrs.Text("acc") == "f32" || v.Type.DType.InBlocks()
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
			m.round(n.Results[i], &sum)
		}
	}
	if narrow {
		m.round(n.Results[i], &sum)
	}
	return sum, nil
}

package validate

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// over is the mesh by which values of a graph lie: of TP, or of TP and CP.
func over(g *graph.Graph) graph.Mesh {
	if g.Mesh != (graph.Mesh{}) {
		return g.Mesh
	}
	return graph.Mesh{graph.TP: g.Ranks}
}

// describeOn is describe for a rank of a mesh: with its units, and its rows of the batch.
func describeOn(l *lot, v *graph.Value, over graph.Mesh, rank int) (kernels.Tensor, error) {
	x, err := describe(l, v, v.Type.On(graph.TP), over.Along(graph.TP), over.At(rank, graph.TP))
	if rows := v.Type.On(graph.CP); err == nil && rows.Layout.ByBatch() {
		x.Hold(rows.Extents(l.Batch, over.Along(graph.CP), over.At(rank, graph.CP)))
	}
	return x, err
}

// local is what a rank of a mesh holds of a whole value, or its share of what is to be a sum.
func local(l *lot, v *graph.Value, whole *kernels.Tensor, over graph.Mesh, rank int) (kernels.Tensor, error) {
	rows, err := rowsOf(l, v, whole, v.Type.On(graph.CP), over.Along(graph.CP), over.At(rank, graph.CP))
	if err != nil {
		return rows, err
	}
	to, err := describeOn(l, v, over, rank)
	if err != nil {
		return to, err
	}
	allocate(&to, v.Type)
	share, ranks, at := over.Share(v.Type, graph.TP, rank)
	if share.Layout.Kind == graph.Sharded {
		cut(l, &to, &rows, share, ranks, at)
	} else {
		copy(to.F64, rows.F64)
	}
	return to, nil
}

// rowsOf is what a rank along one axis holds of a whole value that lies as t.
func rowsOf(l *lot, v *graph.Value, whole *kernels.Tensor, t graph.Type, ranks, at int) (kernels.Tensor, error) {
	if t.Layout.Kind != graph.Sharded {
		return *whole, nil
	}
	x, err := describe(l, v, t, ranks, at)
	if err == nil {
		allocate(&x, t)
		cut(l, &x, whole, t, ranks, at)
	}
	return x, err
}

// partial lists the axes along which ranks hold summands of t.
func partial(t graph.Type) (axes []graph.MeshAxis) {
	for _, a := range []graph.MeshAxis{graph.TP, graph.CP} {
		if t.On(a).Layout.Kind == graph.Partial {
			axes = append(axes, a)
		}
	}
	return axes
}

// terms lists the groups of ranks whose summands add up to a value, each rank by itself where there
// are none.
func terms(t graph.Type, over graph.Mesh) [][]int {
	var groups [][]int
	for rank := range over.Ranks() {
		group, first := []int{rank}, true
		for _, a := range partial(t) {
			var more []int
			for _, r := range group {
				more = append(more, over.Group(r, a)...)
			}
			group, first = more, first && over.At(rank, a) == 0
		}
		if first {
			groups = append(groups, group)
		}
	}
	return groups
}

// giveOn makes what ranks hold of a whole value that another section computes.
func (m *machine) giveOn(v *graph.Value, whole *kernels.Tensor) error {
	parts := make([]kernels.Tensor, m.ranks)
	for r := range parts {
		var err error
		if parts[r], err = local(m.lot, v, whole, m.over, r); err != nil {
			return err
		}
	}
	for _, group := range terms(v.Type, m.over) {
		list := make([]kernels.Tensor, len(group))
		for i, r := range group {
			list[i] = parts[r]
		}
		if len(group) > 1 {
			sum := parts[group[0]]
			sum.F64 = append([]float64(nil), sum.F64...)
			summands(&sum, list, newStream(m.seed, fmt.Sprint("summands ", v.Name, group[0])))
		}
	}
	m.values[v] = parts
	return nil
}

// compareOn is compare on a mesh of two axes.
func compareOn(l *lot, v *graph.Value, over graph.Mesh, parts []kernels.Tensor, want *kernels.Tensor) (d difference, err error) {
	index := *want
	index.F64 = make([]float64, len(want.F64))
	largest, seen := 0.0, make([]bool, len(want.F64))
	for i, x := range want.F64 {
		index.F64[i], largest = float64(i), max(largest, math.Abs(x))
	}
	if largest == 0 {
		largest = 1
	}
	for _, group := range terms(v.Type, over) {
		at, err := local(l, v, &index, over, group[0])
		if err != nil {
			return d, err
		}
		for k, i := range at.F64 {
			x := 0.0
			for _, r := range group {
				x += parts[r].F64[k]
			}
			rank := group[0]
			if len(group) > 1 {
				rank = -1
			}
			seen[int(i)] = true
			if far := math.Abs(x-want.F64[int(i)]) / largest; math.IsNaN(far) || math.IsInf(far, 0) {
				return difference{math.Inf(1), rank, fmt.Sprintf("has %g", x)}, nil
			} else if far > d.far {
				d.far, d.rank = far, rank
			}
		}
	}
	for i, ok := range seen {
		if !ok {
			return difference{math.Inf(1), -1, fmt.Sprintf("no rank has element %d of row %d", i%want.Cols, i/want.Cols)}, nil
		}
	}
	return d, nil
}

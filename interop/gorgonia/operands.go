package gorgonia

import (
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"gorgonia.org/tensor"
)

// operandsOf returns the matrices that the expression of an operation takes.
func operandsOf(op string, c *kernels.Call) []*tensor.Dense {
	switch op {
	case "bias", "bias_softplus", "rmsnorm":
		return []*tensor.Dense{whole(&c.Args[0]), row(&c.Args[1])}
	case "add_rmsnorm":
		return []*tensor.Dense{whole(&c.Args[0]), whole(&c.Args[1]), row(&c.Args[2])}
	case "scale":
		return []*tensor.Dense{whole(&c.Args[0]), perHead(&c.Args[0], &c.Args[1])}
	case "add_scaled":
		return []*tensor.Dense{whole(&c.Args[0]), whole(&c.Args[1]), perHead(&c.Args[1], &c.Args[2])}
	case "clamp":
		return []*tensor.Dense{whole(&c.Args[0]), filled(c, "min"), filled(c, "max")}
	case "embedding":
		table := &c.Args[1]
		return []*tensor.Dense{oneHot(c.Args[0].I32, c.Results[0].Rows(), table), whole(table)}
	case "select_rows":
		return []*tensor.Dense{oneHot(c.Args[1].I32, c.Results[0].Rows(), &c.Args[0]), whole(&c.Args[0])}
	case "head_rmsnorm":
		return []*tensor.Dense{parts(&c.Args[0], c.Args[1].Rows()), row(&c.Args[1])}
	case "head_l2norm":
		return []*tensor.Dense{parts(&c.Args[0], c.Args[0].Unit)}
	case "group_rmsnorm":
		x, w := &c.Args[0], &c.Args[1]
		size := x.Full / c.Attrs.Int("groups")
		n := x.Cols / size
		return []*tensor.Dense{parts(x, size), matrix(x.Rows()*n, size, func(i, j int) float64 { return reference.At(w, i%n*size+j, 0) })}
	case "conv1d", "unbiased_conv1d_silu":
		return tapsOf(c, &c.Args[2], &c.Args[3])
	case "conv1d_silu":
		return append([]*tensor.Dense{row(&c.Args[2])}, tapsOf(c, &c.Args[3], &c.Args[4])...)
	}
	var out []*tensor.Dense
	for i := range c.Args {
		out = append(out, whole(&c.Args[i]))
	}
	return out
}

// matrix has f of each row and column.
func matrix(rows, cols int, f func(i, j int) float64) *tensor.Dense {
	v := make([]float64, 0, rows*cols)
	for i := range rows {
		for j := range cols {
			v = append(v, f(i, j))
		}
	}
	return tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(v))
}

func whole(t *kernels.Tensor) *tensor.Dense {
	return matrix(t.Rows(), t.Cols, func(i, j int) float64 { return reference.At(t, i, j) })
}

// filled has an attribute everywhere.
func filled(c *kernels.Call, attr string) *tensor.Dense {
	v := c.Attrs.Float(attr)
	return matrix(c.Args[0].Rows(), c.Args[0].Cols, func(int, int) float64 { return v })
}

// row is a vector as a matrix.
func row(t *kernels.Tensor) *tensor.Dense {
	return matrix(1, t.Rows(), func(_, j int) float64 { return reference.At(t, j, 0) })
}

// parts has a row for each part of size columns.
func parts(t *kernels.Tensor, size int) *tensor.Dense {
	n := t.Cols / size
	return matrix(t.Rows()*n, size, func(i, j int) float64 { return reference.At(t, i/n, i%n*size+j) })
}

// perHead is a row with the number of its head for each column of x.
func perHead(x, heads *kernels.Tensor) *tensor.Dense {
	each := x.Cols / heads.Rows()
	return matrix(1, x.Cols, func(_, j int) float64 { return reference.At(heads, j/each, 0) })
}

// oneHot has a row for each of n ids. Its product with the table has those rows of the table, and
// zeros for rows that another rank has.
func oneHot(ids []int32, n int, table *kernels.Tensor) *tensor.Dense {
	return matrix(n, table.Rows(), func(i, j int) float64 {
		if at, ok := table.HeldRow(int(ids[i])); ok && at == j {
			return 1
		}
		return 0
	})
}

// tapsOf has two matrices for each tap of a convolution: the inputs that it sees, with those before
// a sequence's tokens out of its state, and its weights.
func tapsOf(c *kernels.Call, state, seg *kernels.Tensor) (out []*tensor.Dense) {
	x, w := &c.Args[0], &c.Args[1]
	before := w.Cols - 1
	for k := range w.Cols {
		seen := make([]float64, x.Rows()*x.Cols)
		for s := range seg.Rows() {
			start, tokens, slot := seg.Segment(s)
			for t := range tokens {
				for ch := range x.Cols {
					v := &seen[(start+t)*x.Cols+ch]
					if at := t + k; at < before {
						*v = reference.At(state, slot, ch*before+at)
					} else {
						*v = reference.At(x, start+at-before, ch)
					}
				}
			}
		}
		out = append(out, tensor.New(tensor.WithShape(x.Rows(), x.Cols), tensor.WithBacking(seen)),
			matrix(1, x.Cols, func(_, ch int) float64 { return reference.At(w, ch, k) }))
	}
	return out
}

package operand

import "github.com/krait-ml/krait/kernels"

// Clone copies a tensor of activations, without gaps between its rows.
func Clone(t *kernels.Tensor) kernels.Tensor {
	out := *t
	out.Stride = t.Cols
	n := t.Rows() * t.Cols
	switch {
	case t.I32 != nil:
		out.I32 = make([]int32, n)
	case t.U16 != nil:
		out.U16 = make([]uint16, n)
	default:
		out.F32 = make([]float32, n)
	}
	for row := range t.Rows() {
		out.Copy(row*out.Stride, t, row*t.Stride, t.Cols)
	}
	return out
}

package group

import (
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// appendOutputs appends the elements of a batch's outputs, row by row.
func appendOutputs(b []byte, list []kernels.Tensor) []byte {
	for i := range list {
		t := &list[i]
		for row := range t.Rows() {
			from, to := row*t.Stride, row*t.Stride+t.Cols
			switch {
			case t.I32 != nil:
				b = append(b, operand.Bytes(t.I32[from:to])...)
			case t.U16 != nil:
				b = append(b, operand.Bytes(t.U16[from:to])...)
			case t.F32 != nil:
				b = append(b, operand.Bytes(t.F32[from:to])...)
			}
		}
	}
	return b
}

// decodeOutputs reads the outputs of a batch that a schedule's rank has, and returns the rest.
func decodeOutputs(s *lowering.Schedule, w *exec.Work, b []byte) (out []kernels.Tensor, rest []byte, err error) {
	for i, wanted := range w.Outputs {
		if !wanted {
			out = append(out, kernels.Tensor{})
			continue
		}
		o := operand.New(s, s.Outputs[i].Ref)
		o.Resize(&w.Batch, 0, 0)
		o.Stride = o.Cols
		n := o.Rows() * o.Cols * o.DType.Bytes()
		if n > len(b) {
			return nil, nil, errMessage
		}
		t := operand.Floats(o.DType, append([]byte(nil), b[:n]...))
		if o.DType == graph.I32 {
			t.I32 = operand.View[int32](append([]byte(nil), b[:n]...))
		}
		o.F32, o.U16, o.I32 = t.F32, t.U16, t.I32
		out, b = append(out, o.Tensor), b[n:]
	}
	return out, b, nil
}

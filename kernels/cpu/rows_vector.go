//go:build amd64 || arm64

package cpu

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// converter widens and rounds elements that fill vectors of an instruction set.
type converter struct {
	lanes             int
	fromBF16, fromF16 func(y *float32, x *uint16, n int)
	toBF16, toF16     func(y *uint16, x *float32, n int)
	blocks            *bytesCodec
}

func (v *converter) kernels() kernels.Set {
	return kernels.Set{
		"embedding":  embedding(v.read),
		"quantize":   {Units: kernels.RowUnits, Run: v.convert},
		"dequantize": {Units: kernels.RowUnits, Run: v.convert},
	}
}

// read is t.Read: what fills vectors, and then the rest.
func (v *converter) read(t *kernels.Tensor, dst []float32, at int) {
	widen := v.fromBF16
	switch t.DType {
	case graph.F16:
		widen = v.fromF16
	case graph.BF16:
	case graph.F8:
		from := v.blocks.from[graph.E4M3]
		if n := len(dst) &^ 7; n > 0 && from != nil {
			one := float32(1)
			from(&dst[0], &t.U8[at : at+n][0], &one, n)
			dst, at = dst[n:], at+n
		}
		t.Read(dst, at)
		return
	default:
		if c, ok := t.DType.Codec(); ok {
			v.blocks.decode(c, dst, t.U8[at:])
		} else {
			t.Read(dst, at)
		}
		return
	}
	n := len(dst) / v.lanes * v.lanes
	if n > 0 {
		widen(&dst[0], &t.U16[at : at+n][0], n)
	}
	t.Read(dst[n:], at+n)
}

// write is t.Write.
func (v *converter) write(t *kernels.Tensor, at int, src []float32) {
	round := v.toBF16
	switch t.DType {
	case graph.F16:
		round = v.toF16
	case graph.BF16:
	default:
		if c, ok := t.DType.Codec(); ok {
			v.blocks.encode(c, t.U8[at:], src)
		} else {
			t.Write(at, src)
		}
		return
	}
	n := len(src) / v.lanes * v.lanes
	if n > 0 {
		round(&t.U16[at : at+n][0], &src[0], n)
	}
	t.Write(at+n, src[n:])
}

// convert rounds or widens to the format of the result.
func (v *converter) convert(c *kernels.Call, lo, hi int) {
	x, y := &c.Args[0], &c.Results[0]
	for i := lo; i < hi; i++ {
		switch graph.F32 {
		case x.DType:
			v.write(y, i*y.Stride, x.Row(i))
		case y.DType:
			v.read(x, y.Row(i), i*x.Stride)
		default:
			convert(c, i, i+1)
		}
	}
}

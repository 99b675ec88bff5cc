package cpu

import (
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

func embedding(c *kernels.Call, lo, hi int) {
	ids, table := c.Args[0].I32, &c.Args[1]
	for i := lo; i < hi; i++ {
		widen(c.Results[0].Row(i), table, int(ids[i])*table.Stride)
	}
}

func selectRows(c *kernels.Call, lo, hi int) {
	rows := c.Args[1].I32
	for i := lo; i < hi; i++ {
		copy(c.Results[0].Row(i), c.Args[0].Row(int(rows[i])))
	}
}

// widen reads elements of t, from the one at index at, as f32.
func widen(dst []float32, t *kernels.Tensor, at int) {
	switch t.DType {
	case graph.F32:
		copy(dst, t.F32[at:at+len(dst)])
	case graph.BF16:
		src := t.U16[at : at+len(dst)]
		for i, b := range src {
			dst[i] = math.Float32frombits(uint32(b) << 16)
		}
	case graph.F16:
		src := t.U16[at : at+len(dst)]
		for i, b := range src {
			dst[i] = half(b)
		}
	}
}

// half widens an f16: the exponent is moved by a multiplication, which is exact
// for subnormals too; infinities and NaNs are set apart.
func half(b uint16) float32 {
	mag := uint32(b&0x7fff) << 13
	if mag >= 0x7c00<<13 {
		mag |= 0xff << 23
	} else {
		mag = math.Float32bits(math.Float32frombits(mag) * 0x1p112)
	}
	return math.Float32frombits(mag | uint32(b&0x8000)<<16)
}

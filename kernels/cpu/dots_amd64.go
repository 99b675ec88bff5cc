package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// dots multiply pairs of bf16 by VDPBF16PS: activations are rounded to bf16, and then both operands
// are packed and multiplied as if a pair were one f32.
var dots = panels{16, 1 << 20, [panelVectors]panelTile{panel1AVX512BF16, panel2AVX512BF16, panel3AVX512BF16}, packRowsAVX512, nil, packTokensAVX512, drainAVX512, 1, 1}

func init() {
	wideProducts["bf16"]["avx512_bf16"] = []Wide{dots.ofPairs(&convertAVX512)}
}

// ofPairs is a product of bf16 by panels of pairs.
func (p *panels) ofPairs(by *converter) Wide {
	all := products{lanes: p.lanes, panels: p}
	pairs := rounding{2,
		func(to []byte, x []float32) {
			by.write(&kernels.Tensor{DType: graph.BF16, U16: unsafe.Slice((*uint16)(unsafe.Pointer(&to[0])), len(x))}, 0, x)
		},
		func(x, w *kernels.Tensor, rounded []byte) {
			x.F32, x.Cols, x.Stride = floats(rounded), x.Cols/2, x.Cols/2
			w.DType, w.F32 = graph.F32, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w.U16))), len(w.U16)/2)
			w.Cols, w.Stride = w.Cols/2, w.Stride/2
		},
	}
	return Wide{
		Kernel: pairs.kernel(kernels.Kernel{Units: func(c *kernels.Call) int { return all.panelGrid(c).units() }, Run: all.matmulInPanels, Before: p.before(), Scratch: p.scratch}),
		Serves: func(c *kernels.Call) bool {
			w := &c.Args[1]
			return longBF16(c) && w.Cols%2 == 0 && w.Stride%2 == 0
		},
	}
}

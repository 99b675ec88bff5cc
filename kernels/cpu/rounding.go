package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Rounding is the chosen set with products of weights in bf16 that round activations to bf16, too.
// AMX and AVX512_BF16 have wide products of bf16 ([ByPosition]); otherwise the rounded activations
// are multiplied as others are, in f32.
func Rounding() (kernels.Set, error) {
	name, err := ChosenISA()
	if err != nil {
		return nil, err
	}
	return RoundingForISA(name)
}

// RoundingForISA is [Rounding] for an instruction set.
func RoundingForISA(name string) (kernels.Set, error) {
	return changed(name, "bf16", inBF16.kernel)
}

// rounding is a way to round activations before another matmul multiplies them, where the weight is
// in bf16 and sums are not in float64.
type rounding struct {
	bytes int // of a rounded element
	round func(to []byte, x []float32)
	show  func(x, w *kernels.Tensor, rounded []byte) // makes the operands those that are multiplied
}

// inBF16 leaves the rounded activations in f32.
var inBF16 = rounding{4,
	func(to []byte, x []float32) {
		row := floats(to)
		copy(row, x)
		kernels.Round(graph.BF16, row)
	},
	func(x, _ *kernels.Tensor, rounded []byte) { x.F32, x.Stride = floats(rounded), x.Cols },
}

// floats are bytes as numbers.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// kernel is a matmul that rounds for another one.
func (r *rounding) kernel(other kernels.Kernel) kernels.Kernel {
	k := kernels.Kernel{
		Units: r.count(other.Units),
		Run:   r.run(other.Run),
		Scratch: func(c *kernels.Call) int {
			n := r.size(c)
			if other.Scratch != nil {
				n += r.count(other.Scratch)(c)
			}
			return n
		},
		Before: &kernels.Kernel{
			Units: func(c *kernels.Call) int {
				if r.size(c) == 0 {
					return 0
				}
				return c.Args[0].Rows()
			},
			Run: func(c *kernels.Call, lo, hi int) {
				n := r.bytes * c.Args[0].Cols
				for i := lo; i < hi; i++ {
					r.round(c.Scratch[i*n:(i+1)*n], c.Args[0].Row(i))
				}
			},
		},
	}
	if b := other.Before; b != nil {
		k.Before = &kernels.Kernel{Units: r.count(b.Units), Run: r.run(b.Run), Before: k.Before}
	}
	return k
}

// size is how many bytes of scratch memory rounded activations have, 0 where none are rounded.
func (r *rounding) size(c *kernels.Call) int {
	if !longBF16(c) {
		return 0
	}
	return (r.bytes*c.Args[0].Rows()*c.Args[0].Cols + 63) &^ 63
}

// seen is the call that the other matmul sees, in the memory of one.
func (r *rounding) seen(c *kernels.Call, one *cutCall) *kernels.Call {
	size := r.size(c)
	if size == 0 {
		return c
	}
	one.take(c, 0, c.Args[0].Rows(), size)
	r.show(&one.args[0], &one.args[1], c.Scratch[:min(size, len(c.Scratch))]) // units are counted without
	return &one.Call
}

func (r *rounding) run(run func(c *kernels.Call, lo, hi int)) func(c *kernels.Call, lo, hi int) {
	return func(c *kernels.Call, lo, hi int) {
		one := cutCalls.Get().(*cutCall)
		run(r.seen(c, one), lo, hi)
		cutCalls.Put(one)
	}
}

func (r *rounding) count(count func(c *kernels.Call) int) func(c *kernels.Call) int {
	return func(c *kernels.Call) int {
		one := cutCalls.Get().(*cutCall)
		defer cutCalls.Put(one)
		return count(r.seen(c, one))
	}
}

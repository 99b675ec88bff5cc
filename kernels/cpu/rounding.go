package cpu

import (
	"maps"
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Rounding is the chosen set with products of weights in bf16 that round activations to bf16, too.
// AMX does so with a third of its products; other sets multiply the rounded activations as they do
// others, in f32.
func Rounding() (kernels.Set, error) {
	name, err := ChosenISA()
	if err != nil {
		return nil, err
	}
	return RoundingForISA(name)
}

// RoundingForISA is [Rounding] for an instruction set.
func RoundingForISA(name string) (kernels.Set, error) {
	set, err := ForISA(name)
	if err != nil {
		return nil, err
	}
	set = maps.Clone(set)
	if set["matmul"] = rounding(set["matmul"]); name == "amx" {
		maps.Copy(set, amxRounding)
	}
	return set, nil
}

// rounding is a matmul that rounds activations, where its weight is in bf16 and its sums are not in
// float64, before another one multiplies them.
func rounding(other kernels.Kernel) kernels.Kernel {
	k := kernels.Kernel{
		Units: other.Units,
		Run:   withRounded(other.Run),
		Scratch: func(c *kernels.Call) int {
			n := roundedSize(c)
			if other.Scratch != nil {
				n += other.Scratch(c)
			}
			return n
		},
		Before: &kernels.Kernel{
			Units: func(c *kernels.Call) int {
				if roundedSize(c) == 0 {
					return 0
				}
				return c.Args[0].Rows()
			},
			Run: func(c *kernels.Call, lo, hi int) {
				for i := lo; i < hi; i++ {
					row := roundedIn(c)[i*c.Args[0].Cols:][:c.Args[0].Cols]
					copy(row, c.Args[0].Row(i))
					kernels.Round(graph.BF16, row)
				}
			},
		},
	}
	if b := other.Before; b != nil {
		k.Before = &kernels.Kernel{Units: b.Units, Run: withRounded(b.Run), Before: k.Before}
	}
	return k
}

// roundedSize is how many bytes of scratch memory rounded activations have, 0 where none are
// rounded.
func roundedSize(c *kernels.Call) int {
	x, w := &c.Args[0], &c.Args[1]
	if w.DType != graph.BF16 || w.Cols < kernels.ShortDepth {
		return 0
	}
	return (4*x.Rows()*x.Cols + 63) &^ 63
}

// roundedIn is the beginning of a call's scratch memory, where rounded activations are.
func roundedIn(c *kernels.Call) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&c.Scratch[0])), roundedSize(c)/4)
}

// roundedCall is a call with other activations.
type roundedCall struct {
	kernels.Call
	args [2]kernels.Tensor
}

var roundedCalls = sync.Pool{New: func() any { return new(roundedCall) }}

// withRounded runs a call with its rounded activations, if it has some.
func withRounded(run func(c *kernels.Call, lo, hi int)) func(c *kernels.Call, lo, hi int) {
	return func(c *kernels.Call, lo, hi int) {
		size := roundedSize(c)
		if size == 0 {
			run(c, lo, hi)
			return
		}
		r := roundedCalls.Get().(*roundedCall)
		r.args = [2]kernels.Tensor(c.Args)
		r.args[0].F32, r.args[0].Stride = roundedIn(c), c.Args[0].Cols
		r.Call = kernels.Call{Args: r.args[:], Results: c.Results, Attrs: c.Attrs, Scratch: c.Scratch[size:]}
		run(&r.Call, lo, hi)
		roundedCalls.Put(r)
	}
}

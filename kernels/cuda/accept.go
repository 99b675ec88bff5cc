package cuda

import (
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Activations may lie in another form than f32 if all kernels that read and write them do so in
// that form: with math of bf16 in bf16, and with math of f32 in the pieces that products by a
// library take. The pass formats decides, by asking [Target].

// Accepts reports, of a call's operands and then of its results, which activations the kernels
// read and write in the form that the math has, given the forms in the call: some are so together
// or not at all. All others must be in f32; with fewer in that form no more are accepted.
func (k Kernel) Accepts(c *Call) []bool {
	n := len(c.Args) + len(c.Results)
	if c.narrows() && k.parts != nil && k.parts(c) {
		_, accepted := k.values(c)
		return accepted[:n]
	}
	accepts := k.accepts
	if c.Options.Math == F32 {
		accepts = k.pieces
	}
	accepted := make([]bool, n)
	if c.narrows() && accepts != nil {
		for _, v := range accepts(c) {
			accepted[v] = true
		}
	}
	return accepted
}

// narrows reports whether activations may lie in another form: which do depends on the number of
// rows.
func (c *Call) narrows() bool {
	return !c.Options.Invariant && (c.Options.Math == BF16 || c.Options.Library)
}

// Narrow lets an activation lie in the form that the math has, or in f32.
func (o *Options) Narrow(t *Tensor, is bool) {
	if t.DType = graph.F32; is && o.Math == BF16 {
		t.DType = graph.BF16
	}
	t.InPieces = is && o.Math == F32
}

// values are a call's operands and results and what is between its parts, which lies at the
// beginning of the scratch: in the other form where all parts accept that. And which they accept,
// nil where none may.
func (k Kernel) values(c *Call) (values []Tensor, accepted []bool) {
	a, at := k.op.Apart(), c.Scratch
	values = slices.Concat(c.Args, c.Results)
	outer := len(values)
	for _, like := range a.Like[outer:] {
		t := Tensor{Tensor: kernels.Between(&values[like].Tensor), Ptr: at}
		c.Options.Narrow(&t, c.narrows())
		values = append(values, t)
	}
	for again := c.narrows(); again; {
		again, accepted = false, k.acceptedByParts(c, values)
		for i := outer; i < len(values); i++ {
			if t := &values[i]; (t.InPieces || t.DType == graph.BF16) && !accepted[i] {
				c.Options.Narrow(t, false)
				again = true
			}
		}
	}
	for i := outer; i < len(values); i++ {
		values[i].Ptr = at
		at += betweenBytes(&values[i])
	}
	return values, accepted
}

// betweenBytes is what a value between parts takes: as much in bf16 as in f32.
func betweenBytes(t *Tensor) uint64 {
	each := 4
	if t.InPieces {
		each = 2 * Pieces
	}
	return uint64(t.Rows()*t.Stride*each+255) / 256 * 256
}

// acceptedByParts is which of the values all parts accept that have them.
func (k Kernel) acceptedByParts(c *Call, values []Tensor) []bool {
	accepted := make([]bool, len(values))
	for i := range accepted {
		accepted[i] = true
	}
	steps := k.op.Apart().Steps
	for i := range steps {
		ok := Kernels[steps[i].Op.Name].Accepts(partOf(&steps[i], c, values))
		for j, v := range slices.Concat(steps[i].Args, steps[i].Results) {
			accepted[v] = accepted[v] && ok[j]
		}
	}
	return accepted
}

// together are some of a call's values, if all of them are in bf16.
func (c *Call) together(which ...int) []int {
	for _, v := range which {
		if c.value(v).DType != graph.BF16 {
			return nil
		}
	}
	return which
}

// suffixed is the name of the kernel that has t in its format.
func (t *Tensor) suffixed(kernel string) string {
	if t.DType == graph.BF16 {
		return kernel + "_bf16"
	}
	return kernel
}

// value is operand v, or after these a result.
func (c *Call) value(v int) *Tensor {
	if v < len(c.Args) {
		return &c.Args[v]
	}
	return &c.Results[v-len(c.Args)]
}

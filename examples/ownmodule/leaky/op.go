// Package leaky has an operation and a family of models that Krait does not know: blocks of
// leaky integrators. To import it is enough for krait.Open to read their checkpoints.
package leaky

import (
	"fmt"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
)

// Op is the operation's name.
const Op = "leaky_integrate"

// The operation is y' = a y + x per channel and sequence. Its rule says all that Krait asks
// about it: t tokens and s sequences may not be cut, since a token needs the one before; c, the
// channels, may, and then y, a and the state y are cut with x.
func init() {
	graph.RegisterOp(graph.Op{
		Name:     Op,
		Doc:      "y = a y + x, per channel, along each sequence: x a y seg",
		Rule:     graph.MustParseRule("t! c, c, s! c, s! f! -> t! c, s! c"),
		Operands: "afsi", // an activation, a vector of f32, a state, integers
		States:   []graph.StatePair{{Operand: 2, Result: 1, Kind: graph.SSMState}},
		Work:     []string{"2 t c"}, // floating-point operations
		Refuse: func(n *graph.Node) error {
			if seg := n.Args[3].Type; seg.Dims[1].Len() != 3 {
				return fmt.Errorf("operand 3 must be the segments i32[s 3], found %s", seg)
			}
			return nil
		},
	})
	reference.Register(Op, integrateExactly)
	cpu.Register(Op, kernels.Kernel{Units: channels, Run: integrate})
}

// Integrate is y = a y + x of x[t c], with a[c], the state y[s c], and the segments.
func Integrate(b *graph.Builder, name string, x, a, state, seg *graph.Value) *graph.Value {
	return b.Apply(name, Op, nil, x, a, state, seg)[0]
}

// integrateExactly is the definition, in float64.
func integrateExactly(c *kernels.Call) {
	x, a, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Results[0]
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		for j := range x.Cols {
			h := reference.At(state, slot, j)
			for t := start; t < start+tokens; t++ {
				h = reference.At(a, j, 0)*h + reference.At(x, t, j)
				reference.Set(y, t, j, h)
			}
			reference.Set(state, slot, j, h) // the new state is the memory of the old
		}
	}
}

// channels is how many parts the work can be cut into, for the workers of the CPU.
func channels(c *kernels.Call) int { return c.Args[0].Cols }

// integrate does channels lo to hi. A state may be kept in 16 bits: Read and Write know how.
func integrate(c *kernels.Call, lo, hi int) {
	x, a, state, seg, y := &c.Args[0], c.Args[1].Vector(), &c.Args[2], &c.Args[3], &c.Results[0]
	kept := make([]float32, hi-lo)
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		at := slot*state.Stride + lo
		state.Read(kept, at)
		for t := start; t < start+tokens; t++ {
			in, out := x.Row(t)[lo:hi], y.Row(t)[lo:hi]
			for j, v := range in {
				kept[j] = a[lo+j]*kept[j] + v
				out[j] = kept[j]
			}
		}
		state.Write(at, kept)
	}
}

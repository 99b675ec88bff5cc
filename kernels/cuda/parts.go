package cuda

import (
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Part is one of the operations by which a call is done.
type Part struct {
	Kernel
	*Call
}

// Name is the operation's.
func (p *Part) Name() string { return p.op.Name }

func init() {
	for name, k := range Kernels {
		k.op, _ = graph.Lookup(name)
		Kernels[name] = k
	}
}

// Parts are the operations by which a call is done: itself, where a kernel does it, and
// where a fused operation has none for such sizes, those that it stands for. What is
// between them lies at the beginning of the scratch.
func (k Kernel) Parts(c *Call) []Part {
	if k.parts == nil || !k.parts(c) {
		return []Part{{k, c}}
	}
	a, at := k.op.Apart(), c.Scratch
	values := slices.Concat(c.Args, c.Results)
	for _, like := range a.Like[len(values):] {
		t := Tensor{Tensor: kernels.Between(&values[like].Tensor), Ptr: at}
		at += uint64(t.Rows()*t.Stride*4+255) / 256 * 256
		values = append(values, t)
	}
	var out []Part
	for i := range a.Steps {
		step := &a.Steps[i]
		part := &Call{Attrs: step.AttrsOf(c.Attrs), Options: c.Options, Scratch: at}
		for _, v := range step.Args {
			part.Args = append(part.Args, values[v])
		}
		for _, v := range step.Results {
			part.Results = append(part.Results, values[v])
		}
		out = append(out, Kernels[step.Op.Name].Parts(part)...)
	}
	return out
}

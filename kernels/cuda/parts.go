package cuda

import "github.com/krait-ml/krait/graph"

// Part is one of the operations by which a call is done.
type Part struct {
	Kernel
	*Call
}

// Name is the name of the operation.
func (p *Part) Name() string { return p.op.Name }

func init() {
	for name, k := range Kernels {
		k.op, _ = graph.Lookup(name)
		Kernels[name] = k
	}
}

// Parts are the operations by which a call is done: itself, where a kernel does it, and
// where a fused operation has none for such sizes, those that it stands for. Values
// between them lie at the beginning of the scratch.
func (k Kernel) Parts(c *Call) []Part {
	if k.parts == nil || !k.parts(c) {
		return k.ofPieces(c)
	}
	values, _ := k.values(c)
	at := c.Scratch
	for i := len(c.Args) + len(c.Results); i < len(values); i++ {
		at += betweenBytes(&values[i])
	}
	var out []Part
	steps := k.op.Apart().Steps
	for i := range steps {
		part := partOf(&steps[i], c, values)
		part.Scratch = at
		more := Kernels[steps[i].Op.Name].Parts(part)
		if apartAlready(out, more) {
			more = more[1:]
		}
		out = append(out, more...)
	}
	return out
}

// partOf is the call of a step of a fused operation.
func partOf(step *graph.ApartStep, c *Call, values []Tensor) *Call {
	part := &Call{Attrs: step.AttrsOf(c.Attrs), Options: c.Options, Arrivals: c.Arrivals}
	for _, v := range step.Args {
		part.Args = append(part.Args, values[v])
	}
	for _, v := range step.Results {
		part.Results = append(part.Results, values[v])
	}
	return part
}

package kernels

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Compose adds kernels for the operations that are fused for the sake of launches: they
// do what these stand for, one operation after another and all in one part. Devices on
// which launches cost nothing are not given such operations by the compiler, but run text
// that has them. Numbers gives memory for n numbers of a value in between.
func (s Set) Compose(numbers func(t *Tensor, n int)) {
	for _, op := range graph.Ops() {
		if !op.Launches {
			continue
		}
		s[op.Name] = Kernel{
			Units: func(*Call) int { return 1 },
			Run: func(c *Call, _, _ int) {
				for _, part := range Parts(op, c, numbers) {
					k := s[part.Op.Name]
					k.Prepare(&part.Call)
					k.Run(&part.Call, 0, k.Units(&part.Call))
				}
			},
		}
	}
}

// Part is one of the operations that a fused one stands for.
type Part struct {
	Op *graph.Op
	Call
}

// Parts are the calls of the operations that a fused one stands for.
func Parts(op *graph.Op, c *Call, numbers func(t *Tensor, n int)) []Part {
	a := op.Apart()
	values := slices.Concat(c.Args, c.Results)
	for _, like := range a.Like[len(values):] {
		t := Between(&values[like])
		numbers(&t, t.Rows()*t.Cols)
		values = append(values, t)
	}
	var out []Part
	for i := range a.Steps {
		step := &a.Steps[i]
		out = append(out, Part{step.Op, Call{Args: pick(values, step.Args), Results: pick(values, step.Results), Attrs: step.AttrsOf(c.Attrs), Wide: c.Wide}})
	}
	return out
}

// Between is a value in f32 with the shape of another, one row after the other, without its memory.
func Between(like *Tensor) Tensor {
	t := *like
	t.DType, t.Stride = graph.F32, t.Cols
	t.F32, t.F64, t.U16, t.I32, t.U8, t.Blocks = nil, nil, nil, nil, nil, nil
	return t
}

func pick(values []Tensor, which []int) []Tensor {
	out := make([]Tensor, len(which))
	for i, v := range which {
		out[i] = values[v]
	}
	return out
}

package synth

import (
	"github.com/krait-ml/krait/graph"
)

// tensor is one tensor of the checkpoint.
type tensor struct {
	name  string
	shape []int
	fill  fill
}

func (t *tensor) elems() int64 {
	n := int64(1)
	for _, d := range t.shape {
		n *= int64(d)
	}
	return n
}

func (t *tensor) bytes(d graph.DType) int64 { return t.elems() * int64(d.Bytes()) }

// last is the size of the last axis.
func (t *tensor) last() int {
	if len(t.shape) == 0 {
		return 1
	}
	return max(1, t.shape[len(t.shape)-1])
}

// tensorsOf lists the tensors that the parameters of a graph are stored in.
func tensorsOf(g *graph.Graph) []tensor {
	users := make([][]*graph.Node, g.Len())
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			users[v.ID] = append(users[v.ID], n)
		}
	}
	var out []tensor
	seen := map[string]bool{}
	for _, p := range g.Leaves("param") {
		v := p.Results[0]
		for _, piece := range p.Storage.Pieces {
			if !seen[piece.Tensor] {
				seen[piece.Tensor] = true
				out = append(out, tensor{piece.Tensor, shapeOf(p), fillOf(v, users)})
			}
		}
	}
	return out
}

// shapeOf is the shape of each tensor that a parameter is stored in.
func shapeOf(p *graph.Node) []int {
	if p.Storage.Shape != nil {
		return p.Storage.Shape
	}
	var shape []int
	for _, d := range p.Results[0].Type.Dims {
		shape = append(shape, d.Len())
	}
	return shape
}

// fillOf chooses the numbers of a parameter by the operation that reads it, so
// that activations stay near 1 in every layer.
func fillOf(v *graph.Value, users [][]*graph.Node) fill {
	if len(users[v.ID]) == 0 {
		return ones
	}
	n := users[v.ID][0]
	switch {
	case n.Op.Name == "neg_exp":
		return logRates
	case n.Op.Name == "bias" && len(users[n.Results[0].ID]) > 0 && users[n.Results[0].ID][0].Op.Name == "softplus":
		return steps
	case n.Op.Name == "bias" || n.Op.Name == "sigmoid_router" || n.Op.Name == "plus":
		return small
	case len(v.Type.Dims) > 1:
		return matrix
	}
	return ones // norms, and skips
}

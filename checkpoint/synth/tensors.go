package synth

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/krait-ml/krait/graph"
)

// tensor is one tensor of the checkpoint.
type tensor struct {
	name  string
	param string      // the first parameter that reads it
	dtype graph.DType // of that parameter
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

// chunkElems is how many numbers are made at a time, each chunk from a seed of its
// own: which goroutine makes it does not matter.
const chunkElems = 1 << 20

func (t *tensor) chunks() int { return int((t.elems() + chunkElems - 1) / chunkElems) }

// make makes the numbers of chunk n.
func (t *tensor) make(seed uint64, n int, out []float32) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", n, t.name)
	t.fill(rand.New(rand.NewPCG(seed, h.Sum64())), out, t, int64(n)*chunkElems)
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
	case n.Op.Name == "sigmoid":
		return decays
	case n.Op.Name == "bias" && len(users[n.Results[0].ID]) > 0 && users[n.Results[0].ID][0].Op.Name == "softplus":
		return steps
	case n.Op.Name == "bias" || n.Op.Name == "sigmoid_router" || n.Op.Name == "plus":
		return small
	case len(v.Type.Dims) > 1:
		return matrix
	}
	return ones // norms, and skips
}

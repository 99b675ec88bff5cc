package checkpoint

import (
	"fmt"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
)

// Save writes the tensors that the parameters of a graph are stored in to a safetensors file, in
// the formats in which weights returns them. [OpenTensors] reads it. Blocks are an error:
// package checkpoint/quantize writes them.
func Save(path string, g *graph.Graph, weights func(name string) (graph.Array, error)) error {
	var list []safetensors.Tensor
	seen := map[string]bool{}
	for _, n := range g.Leaves("param") {
		s := n.Storage
		if s == nil {
			s = graph.Stored(n.Results[0].Name)
		}
		for _, p := range s.Pieces {
			if seen[p.Tensor] {
				continue
			}
			seen[p.Tensor] = true
			a, err := weights(p.Tensor)
			if err != nil {
				return err
			}
			name, ok := nameOfFloat(a.DType)
			if !ok {
				return fmt.Errorf("tensor %s is %s; safetensors files are written of f32, bf16, f16 and f64: convert it first", p.Tensor, a.DType)
			}
			list = append(list, safetensors.Tensor{Name: p.Tensor, DType: name, Shape: a.Shape, Data: a.Data})
		}
	}
	return safetensors.WriteFile(path, list, map[string]string{"format": "pt"})
}

// nameOfFloat returns what safetensors calls a format of floats.
func nameOfFloat(d graph.DType) (string, bool) {
	for name, f := range floats {
		if f == d {
			return name, true
		}
	}
	return "", false
}

// OpenTensors maps a safetensors file as weights of a graph: find returns a tensor by its name, a
// view that close ends.
func OpenTensors(path string) (find func(name string) (graph.Array, error), close func() error, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, nil, err
	}
	set := &tensorSet{safetensors.SetOf(f)}
	find = func(name string) (graph.Array, error) {
		if _, ok := set.Look(name); !ok {
			return graph.Array{}, fmt.Errorf("%s: there is no tensor %s", path, name)
		}
		return set.Tensor(name)
	}
	return find, set.Close, nil
}

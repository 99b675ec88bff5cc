package synth

import (
	"fmt"
	"slices"
	"sync"

	"github.com/krait-ml/krait/graph"
)

// Weights returns random tensors for the parameters of a graph, each in its parameter's format, and
// with the numbers that [Write] gives a tensor of that name, shape and seed. A tensor is made when
// it is first asked for, and is kept; several goroutines may ask.
func Weights(g *graph.Graph, seed uint64) func(name string) (graph.Array, error) {
	list, err := tensorsOf(g)
	made := map[string]func() (graph.Array, error){}
	for _, t := range list {
		made[t.name] = sync.OnceValues(func() (graph.Array, error) { return t.array(seed) })
	}
	return func(name string) (graph.Array, error) {
		switch {
		case err != nil:
			return graph.Array{}, err
		case made[name] == nil:
			return graph.Array{}, fmt.Errorf("graph %s reads no tensor %q, so there are no random weights for it", g.Name, name)
		}
		return made[name]()
	}
}

// array makes the whole tensor in the format of its parameter.
func (t *tensor) array(seed uint64) (graph.Array, error) {
	as := t.dtype
	if as.Quantized() {
		as = graph.F32
	}
	if _, ok := names[as]; !ok {
		return graph.Array{}, fmt.Errorf("parameter %s is %s; random weights are f32, bf16, f16 or blocks of them", t.param, t.dtype)
	}
	a := graph.Array{DType: as, Shape: t.shape, From: fmt.Sprintf("random tensor %q", t.name)}
	size := as.Bytes()
	a.Data = make([]byte, t.elems()*int64(size))
	var chunks sync.WaitGroup
	for n := range t.chunks() {
		at, end := n*chunkElems, min((n+1)*chunkElems, int(t.elems()))
		chunks.Go(func() {
			numbers := make([]float32, end-at)
			t.make(seed, n, numbers)
			encode(a.Data[at*size:at*size:end*size], as, numbers)
		})
	}
	chunks.Wait()
	if t.dtype.Quantized() {
		return a.Convert(t.dtype)
	}
	return a, nil
}

// tensorsOf lists the tensors that the parameters of graphs are stored in.
func tensorsOf(graphs ...*graph.Graph) ([]tensor, error) {
	var out []tensor
	at := map[string]int{}
	for _, g := range graphs {
		users := make([][]*graph.Node, g.Len())
		for _, n := range g.Nodes {
			for _, v := range n.Args {
				users[v.ID] = append(users[v.ID], n)
			}
		}
		for _, p := range g.Leaves("param") {
			v, s := p.Results[0], p.Storage
			if s == nil {
				s = graph.Stored(v.Name)
			}
			for _, piece := range s.Pieces {
				shape, err := s.TensorShape(piece.Tensor, v.Type)
				if err != nil {
					return nil, fmt.Errorf("parameter %s: %w; give its storage the tensor's shape", v.Name, err)
				}
				i, seen := at[piece.Tensor]
				if !seen {
					at[piece.Tensor] = len(out)
					out = append(out, tensor{piece.Tensor, v.Name, v.Type.DType, shape, fillOf(v, users)})
				} else if err := out[i].join(shape, v.Name); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// join lets a tensor have the rows that another parameter reads of it.
func (t *tensor) join(shape []int, param string) error {
	rows := min(1, len(shape), len(t.shape))
	if len(shape) != len(t.shape) || !slices.Equal(shape[rows:], t.shape[rows:]) {
		return fmt.Errorf("parameters %s and %s read tensor %q with shapes %v and %v; give their storages its shape", t.param, param, t.name, t.shape, shape)
	}
	if slices.Compare(shape, t.shape) > 0 {
		t.shape = shape
	}
	return nil
}

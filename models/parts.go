package models

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// parts builds what families share. It is a graph.Builder that knows the
// batch's inputs and how the checkpoint names and stores tensors.
type parts struct {
	*graph.Builder
	*shared
	paths []string // of this scope in the checkpoint, with a dot at their end
}

// shared is what the parts of all scopes have in common.
type shared struct {
	tensor               func(name string) (graph.DType, bool)
	ids, seg, rows, past *graph.Value
	made                 map[string]*graph.Value // parameters by tensor: layers may share one
	copies               map[copied]bool
	absent               []string // tensors that the checkpoint lacks
	err                  error    // why the rest of the model is not built
}

// copied says that a checkpoint has a tensor twice.
type copied struct{ first, again string }

// in is the parts of a scope below, whose tensors are below it in the file too.
func (p *parts) in(path any) *parts { return p.as(path, fmt.Sprint(path, ".")) }

// as is the parts of a scope below, whose tensors are under another path.
func (p *parts) as(scope any, path string) *parts {
	q := p.at(path)
	q.Builder = p.In(scope)
	return q
}

// at is p with tensors further below.
func (p *parts) at(path string) *parts {
	q := *p
	q.paths = nil
	for _, above := range p.paths {
		q.paths = append(q.paths, above+path)
	}
	return &q
}

// under is p with tensors under prefixes that the graph does not have: each is
// under the first of them that has it.
func (p *parts) under(prefixes ...string) *parts {
	q := *p
	q.paths = prefixes
	return &q
}

// file finds the name of a tensor of this scope in the checkpoint: where there
// are several, the first, of which the others must be copies.
func (p *parts) file(name string, older ...string) string {
	var names []string
	for _, path := range p.paths {
		names = append(names, path+name)
	}
	found := ""
	for _, n := range append(names, older...) {
		if _, ok := p.tensor(n); !ok {
			continue
		}
		if found == "" {
			found = n
		} else {
			p.copies[copied{found, n}] = true
		}
	}
	if found == "" {
		p.absent = append(p.absent, names[0])
		return names[0]
	}
	return found
}

// has reports whether the checkpoint has a tensor of this scope.
func (p *parts) has(name string) bool {
	return slices.ContainsFunc(p.paths, func(path string) bool { _, ok := p.tensor(path + name); return ok })
}

// param is the parameter of a tensor; the one that is there when another layer
// has it already.
func (p *parts) param(name string, t graph.Type, s *graph.Storage) *graph.Value {
	key := s.Pieces[0].Tensor + s.String()
	if v, ok := p.made[key]; ok {
		return v
	}
	v := p.Param(name, t, s)
	p.made[key] = v
	return v
}

// matrix is a parameter in the number format of the file, so that it can stay a
// view of it. Older files may have it under other names.
func (p *parts) matrix(name string, out, in graph.Dim, older ...string) *graph.Value {
	return p.stored(name, graph.Stored(p.file(name, older...)), out, in)
}

// stored is a parameter in the number format of the file, that lies there as s says; in
// f32 where its pieces have several formats.
func (p *parts) stored(name string, s *graph.Storage, dims ...graph.Dim) *graph.Value {
	d, ok := p.tensor(s.Pieces[0].Tensor)
	if !ok {
		d = graph.F32
	}
	for _, piece := range s.Pieces[1:] {
		if other, ok := p.tensor(piece.Tensor); ok && other != d {
			d = graph.F32
		}
	}
	return p.param(name, graph.TypeOf(d, dims...), s)
}

// small is a parameter that is kept in f32, whatever the file has.
func (p *parts) small(name string, dims ...graph.Dim) *graph.Value {
	return p.param(name, graph.TypeOf(graph.F32, dims...), graph.Stored(p.file(name)))
}

// shaped is a small parameter that the file has in another shape.
func (p *parts) shaped(name string, shape []int, dims ...graph.Dim) *graph.Value {
	t := graph.TypeOf(graph.F32, dims...)
	if slices.EqualFunc(shape, dims, func(n int, d graph.Dim) bool { return n == d.Len() }) {
		shape = nil
	}
	return p.param(name, t, graph.Stored(p.file(name), shape...))
}

// weight is that of the norm called name: a small parameter, plus 1 where it is zero-centred.
func (p *parts) weight(name, tensor string, d graph.Dim, centred bool) *graph.Value {
	w := p.small(tensor, d)
	if !centred {
		return w
	}
	return p.Plus(name+"_weight", w, 1)
}

// rates is the A of a scan: -exp(A_log), or A itself where the checkpoint has that.
func (p *parts) rates(shape []int, dims ...graph.Dim) *graph.Value {
	if !p.has("A_log") && p.has("A") {
		return p.shaped("A", shape, dims...)
	}
	return p.Map("A", "neg_exp", p.shaped("A_log", shape, dims...))
}

// linear is x Wᵀ + b.
func (p *parts) linear(name string, x *graph.Value, out, in graph.Dim, bias bool) *graph.Value {
	w := p.matrix(name+".weight", out, in)
	if !bias {
		return p.MatMul(name, x, w)
	}
	return p.Bias(name, p.MatMul(name+"_w", x, w), p.small(name+".bias", out))
}

// conv is the causal depthwise convolution of that name with its history, and its bias.
func (p *parts) conv(name string, x *graph.Value, channels graph.Dim, width int, bias bool) *graph.Value {
	// The file has an axis of size 1 for the input channels of a group.
	w := p.shaped(name+".weight", []int{channels.Len(), 1, width}, channels, graph.Size(width))
	history := p.State("conv", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), channels, graph.Size(width-1)))
	c := p.Conv1D("conv1d", x, w, history, p.seg)
	if !bias {
		return c
	}
	return p.Bias("conv1d_b", c, p.small(name+".bias", channels))
}

// times is x · by, or x itself.
func (p *parts) times(name string, x *graph.Value, by float64) *graph.Value {
	if by == 1 {
		return x
	}
	return p.Times(name, x, by)
}

// timesTo is what make makes, times by, under a name.
func (p *parts) timesTo(name string, by float64, make func(name string) *graph.Value) *graph.Value {
	if by == 1 {
		return make(name)
	}
	return p.Times(name, make(name+"_raw"), by)
}

// Activations maps hidden_act to operations.
var Activations = map[string]string{
	"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "relu2": "relu2",
}

// named is a plain axis as a field of a packed one.
func named(name string, d graph.Dim) graph.Field {
	f := d.Fields[0]
	f.Name = name
	return f
}

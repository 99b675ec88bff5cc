package models

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// parts builds what families share. It is a graph.Builder that knows the
// batch's inputs and how the checkpoint names and stores tensors.
type parts struct {
	*graph.Builder
	tensor         func(name string) (graph.DType, bool)
	ids, seg, rows *graph.Value
	path           string // of this scope in the checkpoint, with a dot at its end
}

// in is the parts of a scope below, whose tensors are below it in the file too.
func (p *parts) in(path any) *parts {
	q := *p
	q.Builder = p.In(path)
	q.path += fmt.Sprint(path, ".")
	return &q
}

// under is p with tensor names under a prefix that the graph does not have.
func (p *parts) under(prefix string) *parts {
	q := *p
	q.path = prefix
	return &q
}

// matrix is a parameter in the number format of the file, so that it can stay a
// view of it. Older files may have it under other names.
func (p *parts) matrix(name string, out, in graph.Dim, older ...string) *graph.Value {
	file := p.path + name
	d, ok := p.tensor(file)
	for _, o := range older {
		if !ok {
			if d, ok = p.tensor(o); ok {
				file = o
			}
		}
	}
	if !ok {
		d = graph.F32
	}
	return p.Param(name, graph.TypeOf(d, out, in), graph.Stored(file))
}

// small is a parameter that is kept in f32, whatever the file has.
func (p *parts) small(name string, dims ...graph.Dim) *graph.Value {
	return p.Param(name, graph.TypeOf(graph.F32, dims...), graph.Stored(p.path+name))
}

// linear is x Wᵀ + b.
func (p *parts) linear(name string, x *graph.Value, out, in graph.Dim, bias bool) *graph.Value {
	w := p.matrix(name+".weight", out, in)
	if !bias {
		return p.MatMul(name, x, w)
	}
	return p.Bias(name, p.MatMul(name+"_w", x, w), p.small(name+".bias", out))
}

// conv is the causal depthwise convolution with its history, and its bias.
func (p *parts) conv(x *graph.Value, channels graph.Dim, width int, bias bool) *graph.Value {
	// The file has an axis of size 1 for the input channels of a group.
	stored := graph.Stored(p.path+"conv1d.weight", channels.Len(), 1, width)
	w := p.Param("conv1d.weight", graph.TypeOf(graph.F32, channels, graph.Size(width)), stored)
	history := p.State("conv", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), channels, graph.Size(width-1)))
	c := p.Conv1D("conv1d", x, w, history, p.seg)
	if !bias {
		return c
	}
	return p.Bias("conv1d_b", c, p.small("conv1d.bias", channels))
}

// head projects the wanted rows to logits, with the embedding when it is tied.
func (p *parts) head(h, embeddings *graph.Value, vocab, hidden graph.Dim, tied bool) {
	w := embeddings
	if !tied {
		w = p.under("").matrix("lm_head.weight", vocab, hidden)
	}
	p.Output("logits", p.MatMul("logits", h, w))
}

// activations maps hidden_act to operations.
var activations = map[string]string{
	"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu",
}

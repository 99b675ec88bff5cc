package models

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/graph"
)

// sharedBlock is a transformer block without residuals whose parameters several
// layers share. It reads the stream and the embeddings side by side.
type sharedBlock struct {
	both graph.Dim
	eps  float64
	attention
	mlp
	// rank is that of the adapters, by which each use of the MLP differs; gate and up
	// are one matrix then. 0: there are none.
	rank   int
	adapts bool // attention has adapters, too
}

// newSharedBlock is a block with the heads of a, which are scaled as if they
// read one of the two halves.
func newSharedBlock(c *Config, m *backbone, a *attention) sharedBlock {
	hidden := m.hidden.Len()
	if w := c.Int("attention_hidden_size", 2*hidden, 1); w != 2*hidden {
		c.fail("attention_hidden_size", w, "2 × hidden_size")
	}
	both := graph.Pack(graph.Field{Name: "h", Size: hidden}, graph.Field{Name: "e", Size: hidden})
	a.in, a.out, a.scale = both, m.hidden, 1/math.Sqrt(float64(a.head)/2)
	act := c.OneOf("hidden_act", "gelu", Activations)
	return sharedBlock{both: both, eps: m.eps, attention: *a, mlp: mlp{hidden: m.hidden, act: act, gateScale: 1, outScale: 1}}
}

// build is one use of the block, whose parameters are those of p: the first use is 0.
func (b *sharedBlock) build(p *parts, use int, h, e *graph.Value) *graph.Value {
	norms := p.as("shared", "")
	x := p.Concat("both", "h|e", h, e)
	x = p.RMSNorm("both_norm", x, norms.small("input_layernorm.weight", b.both), b.eps)
	x = b.attend(p.as("attention", "self_attn."), use, x)
	x = p.RMSNorm("norm_ff", x, norms.small("pre_ff_layernorm.weight", b.mlp.hidden), b.eps)
	return b.feedForward(p.as("mlp", "feed_forward."), use, x)
}

// attend is the attention, with the adapters of that use.
func (b *sharedBlock) attend(p *parts, use int, x *graph.Value) *graph.Value {
	a := b.attention
	if b.adapts {
		a.adapt = func(p *parts, name string, x, y *graph.Value, out, in graph.Dim) *graph.Value {
			return b.adapter(p, "linear_"+name+"_adapter_list", use, x, y, out, in)
		}
	}
	return a.build(p, x)
}

// feedForward is the MLP, with the adapter of that use.
func (b *sharedBlock) feedForward(p *parts, use int, x *graph.Value) *graph.Value {
	if b.rank == 0 {
		return b.mlp.build(p, x)
	}
	packed := graph.Pack(named("gate", b.inner), named("up", b.inner))
	y := p.linear("gate_up_proj", x, packed, b.mlp.hidden, b.mlp.bias)
	y = b.adapter(p, "gate_up_proj_adapter_list", use, x, y, packed, b.mlp.hidden)
	return b.mlp.down(p, "down_proj", p.Fields("gate_in", "gate", y), p.Field("up", y))
}

// adapter adds a projection of low rank of x to y: the one of that use.
func (b *sharedBlock) adapter(p *parts, list string, use int, x, y *graph.Value, out, in graph.Dim) *graph.Value {
	rank := graph.Size(b.rank)
	name := fmt.Sprintf("%s.%d", list, use)
	low := p.linear(name+".0", x, rank, in, false)
	return p.Add(name, y, p.linear(name+".1", low, out, rank, false))
}

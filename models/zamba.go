package models

import (
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// zamba is Zamba (Glorioso et al. 2024, https://arxiv.org/abs/2405.16712): blocks
// of Mamba with heads, before some of which the one transformer block of the
// model reads the stream beside the embeddings.
type zamba struct {
	backbone
	mixer  mixer
	shared sharedBlock
	kinds  []string // of the layers: mamba or hybrid
	blocks int      // shared ones
	home   string   // what a layer calls its shared block in the checkpoint
}

func readZamba(c *Config) *Model {
	m := &zamba{backbone: readModel(c, 32000, 3712, 76, 1e-5, true), blocks: 1, home: "shared_transf"}
	hidden := m.hidden.Len()
	heads, inner := c.Count("n_mamba_heads", 2, 1), c.expanded("mamba_expand", hidden)
	if inner%heads != 0 {
		c.fail("n_mamba_heads", heads, "a divisor of mamba_expand × hidden_size")
	}
	mix := &selective{
		hidden:   m.hidden,
		inner:    graph.Units(inner, 1),
		heads:    heads,
		state:    graph.Size(c.Int("mamba_d_state", 16, 1)),
		width:    c.Int("mamba_d_conv", 4, 1),
		rank:     c.Rank("mamba_dt_rank", hidden),
		bias:     c.Bool("mamba_proj_bias", false),
		convBias: c.Bool("mamba_conv_bias", true),
		act:      c.Choice("hidden_mamba_act", "silu", activations),
	}
	m.mixer = mix.build
	m.kinds = c.zambaKinds(m.layers)
	a := c.readHeads("attention_head_dim", 2*hidden, 16, 16)
	m.shared = newSharedBlock(c, &m.backbone, a)
	m.shared.mlp.inner = graph.Units(c.Int("intermediate_size", 14848, 1), 1)
	c.Without("max_position_embeddings", "num_logits_to_keep", "attention_dropout", "use_mamba_kernels", "time_step_min", "time_step_max",
		"time_step_floor", "rope_theta")
	return m.hybrid(m.block)
}

// zambaKinds are the kinds of the layers: as listed, or by period and offset,
// which count from layer 3.
func (c *Config) zambaKinds(layers int) []string {
	hybrid := c.every("attn_layer", 6, 4)
	if kinds := c.Kinds("layers_block_type", layers, "mamba", "hybrid"); kinds != nil {
		return kinds
	}
	if layers < 3 {
		c.fail("num_hidden_layers", layers, "at least 3")
	}
	kinds := []string{"mamba", "mamba", "hybrid"}
	for i := range max(layers-3, 0) {
		kind := "mamba"
		if hybrid(i) {
			kind = "hybrid"
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// block is h + mixer(norm(h)); a hybrid one is h + mixer(norm(h + t)), where t is
// what a shared block makes of h and e. The shared blocks take turns.
func (m *zamba) block(p *parts, i int, h, e *graph.Value) *graph.Value {
	if m.kinds[i] == "mamba" {
		return m.step(p, h, h)
	}
	var hybrids []int
	for j, kind := range m.kinds {
		if kind == "hybrid" {
			hybrids = append(hybrids, j)
		}
	}
	ordinal := slices.Index(hybrids, i)
	var homes []string // of the shared block: any layer that uses it may have it
	for k := ordinal % m.blocks; k < len(hybrids); k += m.blocks {
		homes = append(homes, fmt.Sprintf("model.layers.%d.%s.", hybrids[k], m.home))
	}
	t := m.shared.build(p, p.under(homes...), ordinal, h, e)
	t = p.linear("linear", t, m.hidden, m.hidden, false)
	return m.step(p.at("mamba_decoder."), h, p.Add("guided", h, t))
}

// step adds what the mixer makes of in to h.
func (m *zamba) step(p *parts, h, in *graph.Value) *graph.Value {
	n := p.RMSNorm("norm", in, p.small("input_layernorm.weight", m.hidden), m.eps)
	return p.Add("h", h, m.mixer(p.as("mixer", "mamba."), n))
}

// sharedBlock is a transformer block without residuals whose parameters several
// layers share. It reads the stream and the embeddings side by side.
type sharedBlock struct {
	both graph.Dim
	eps  float64
	attention
	mlp
	packed  bool // gate and up of the MLP are one matrix
	adapter func(p *parts, name string, layer int, x, y *graph.Value, out, in graph.Dim) *graph.Value
	adapts  bool // attention has adapters, too
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
	act := c.Choice("hidden_act", "gelu", activations)
	return sharedBlock{both: both, eps: m.eps, attention: *a, mlp: mlp{hidden: m.hidden, act: act, gateScale: 1, outScale: 1}}
}

// build is what layer ordinal makes with the block; values are in the scope of p,
// parameters where home has them.
func (b *sharedBlock) build(p, home *parts, ordinal int, h, e *graph.Value) *graph.Value {
	own := *home
	home, own.Builder = &own, p.In("shared")
	at := func(scope, path string) *parts {
		q := *home.at(path)
		q.Builder = p.In(scope)
		return &q
	}
	x := p.Concat("both", "h|e", h, e)
	x = p.RMSNorm("both_norm", x, home.small("input_layernorm.weight", b.both), b.eps)
	a := b.attention
	if b.adapts {
		a.adapt = func(p *parts, name string, x, y *graph.Value, out, in graph.Dim) *graph.Value {
			return b.adapter(p, "linear_"+name+"_adapter_list", ordinal, x, y, out, in)
		}
	}
	x = a.build(at("attention", "self_attn."), x)
	x = p.RMSNorm("norm_ff", x, home.small("pre_ff_layernorm.weight", b.mlp.hidden), b.eps)
	if !b.packed {
		return b.mlp.build(at("mlp", "feed_forward."), x)
	}
	return b.buildPacked(at("mlp", "feed_forward."), ordinal, x)
}

// buildPacked is the MLP of which gate and up are one matrix, with its adapter.
func (b *sharedBlock) buildPacked(p *parts, ordinal int, x *graph.Value) *graph.Value {
	packed := graph.Pack(named("gate", b.inner), named("up", b.inner))
	y := p.linear("gate_up_proj", x, packed, b.mlp.hidden, b.mlp.bias)
	y = b.adapter(p, "gate_up_proj_adapter_list", ordinal, x, y, packed, b.mlp.hidden)
	return b.mlp.down(p, p.Fields("gate_in", "gate", y), p.Field("up", y))
}

package models

import (
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// lfm2 is LFM2 (Liquid AI 2025, https://arxiv.org/abs/2511.23404): a transformer most of whose
// layers have a short convolution between two gates for attention.
type lfm2 struct {
	backbone
	channels  graph.Dim // of the convolutions
	width     int
	bias      bool
	attention *attention
	mlp       mlp
	dense     int // layers before the first with experts
	experts   mixture
	choice    graph.Attrs // of the router
	scale     float64     // of its weights
	attends   func(layer int) bool
}

// LFM2Names are what it calls the tensors around its blocks.
var LFM2Names = TensorNames{"model.", "", "embed_tokens.weight", "embedding_norm.weight"}

func readLFM2(c *Config) *Model {
	m := newLFM2(c)
	m.dense = m.layers
	inner := c.Int(c.Either("intermediate_size", "block_ff_dim"), 12288, 1)
	by, multiple := c.Positive("block_ffn_dim_multiplier", 1), c.Int("block_multiple_of", 256, 1)
	if c.Bool("block_auto_adjust_ff_dim", true) {
		inner = int(min(by*float64(2*inner/3), MaxDim))
		inner = max(1, (inner+multiple-1)/multiple) * multiple
	}
	m.mlp.inner = graph.Units(inner, 1)
	return m.hybrid(m.block)
}

func readLFM2MoE(c *Config) *Model {
	m := newLFM2(c)
	m.dense = c.Int("num_dense_layers", 2, 0)
	m.mlp.inner = graph.Units(c.Int("intermediate_size", 7168, 1), 1)
	m.experts = mixture{mlp: m.mlp, experts: c.Count("num_experts", 32, 1), top: c.Int("num_experts_per_tok", 4, 1)}
	m.experts.inner = graph.Units(c.Int("moe_intermediate_size", 1792, 1), 1)
	if m.experts.top > m.experts.experts {
		c.fail("num_experts_per_tok", m.experts.top, "at most num_experts")
	}
	m.choice, m.scale = c.readChoice(&m.experts), c.Scale("routed_scaling_factor")
	m.choice["eps"] = 1e-6
	if !c.Bool("use_expert_bias", true) {
		c.fail("use_expert_bias", false, "true: Krait has no other form")
	}
	return m.hybrid(m.block)
}

// newLFM2 reads what the models share.
func newLFM2(c *Config) *lfm2 {
	m := &lfm2{backbone: readModel(c, 65536, 2560, 32, 1e-5, true)}
	m.names, m.eps = LFM2Names, c.Positive("norm_eps", 1e-5)
	m.tied = c.Bool(c.Either("tie_word_embeddings", "tie_embedding"), true)
	m.channels, m.width, m.bias = graph.Units(m.hidden.Len(), 1), c.Int("conv_L_cache", 3, 1), c.Bool("conv_bias", false)
	m.attention = c.readHeads("", m.hidden.Len(), 32, 8)
	a := m.attention
	a.in, a.out, a.scale, a.output = m.hidden, m.hidden, 1/math.Sqrt(float64(a.head)), "out_proj"
	a.norms, a.eps = [2]string{"q_layernorm.weight", "k_layernorm.weight"}, m.eps
	var part float64
	if a.theta, part = c.Rotary(1e6, 1); part != 1 {
		c.fail("partial_rotary_factor", part, "1")
	}
	if a.rotary = a.head; a.head%2 != 0 {
		c.fail("num_attention_heads", a.heads, "such that hidden_size / num_attention_heads is even, for the rotary embedding")
	}
	m.mlp = mlp{hidden: m.hidden, act: "silu", gateScale: 1, outScale: 1, names: [3]string{"w1", "w3", "w2"}}
	full := c.Indices("full_attn_idxs", m.layers)
	kinds := c.Kinds("layer_types", m.layers, "conv", "full_attention")
	m.attends = func(i int) bool {
		if kinds != nil {
			return kinds[i] == "full_attention"
		}
		return full == nil || slices.Contains(full, i)
	}
	c.Without("max_position_embeddings", "rms_norm_eps", "block_dim", "block_norm_eps", "block_use_swiglu", "block_mlp_init_scale", "block_out_init_scale",
		"block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc", "output_router_logits", "router_aux_loss_coef")
	return m
}

// block is h = h + operator(norm(h)), and then h + feed forward(norm(h)).
func (m *lfm2) block(p *parts, i int, h, _ *graph.Value) *graph.Value {
	n := m.norm(p, "norm", h, "operator_norm.weight")
	var y *graph.Value
	if m.attends(i) {
		y = m.attention.build(p.as("attention", "self_attn."), n)
	} else {
		y = m.shortConv(p.as("mixer", "conv."), n)
	}
	h = p.Add("mixed", h, y)
	n = m.norm(p, "norm_ff", h, "ffn_norm.weight")
	if i < m.dense {
		return p.Add("h", h, m.mlp.build(p.as("mlp", "feed_forward."), n))
	}
	return p.Add("h", h, m.routed(p.as("experts", "feed_forward."), n))
}

// shortConv is
//
//	B, C, x = in_proj n
//	out     = out_proj (C · conv(B · x))
func (m *lfm2) shortConv(p *parts, n *graph.Value) *graph.Value {
	packed := graph.Pack(named("B", m.channels), named("C", m.channels), named("x", m.channels))
	in := p.linear("in_proj", n, packed, m.hidden, m.bias)
	u := p.conv("conv", p.Mul("Bx", p.Field("B", in), p.Field("x", in)), m.channels, m.width, m.bias)
	return p.linear("out_proj", p.Mul("gated", p.Field("C", in), u), m.hidden, m.channels, m.bias)
}

// routed is the mixture of experts, whose router is as that of [nemotronH].
func (m *lfm2) routed(p *parts, n *graph.Value) *graph.Value {
	experts := graph.Size(m.experts.experts)
	scores := p.MatMul("router", n, p.matrix("gate.weight", experts, m.hidden))
	weights := p.SigmoidRouter("weights", scores, p.small("expert_bias", experts), m.choice)
	return m.experts.apply(p, "experts", n, p.times("weights_scaled", weights, m.scale))
}

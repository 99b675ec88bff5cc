package models

import (
	"math"

	"github.com/krait-ml/krait/graph"
)

// jamba is Jamba (Lieber et al. 2024, https://arxiv.org/abs/2403.19887): a
// transformer most of whose layers have a Mamba mixer for attention, and some a
// mixture of experts for an MLP. It has no positions.
type jamba struct {
	backbone
	mixer     selective
	attention attention
	experts   mixture
	attends   func(layer int) bool
	mixes     func(layer int) bool
}

func readJamba(c *Config) *Model {
	m := &jamba{backbone: readModel(c, 65536, 4096, 32, 1e-6, false)}
	hidden := m.hidden.Len()
	act := c.OneOf("hidden_act", "silu", Activations)
	m.mixer = selective{
		hidden:   m.hidden,
		inner:    graph.Units(c.expanded("mamba_expand", hidden), 1),
		state:    graph.Size(c.Int("mamba_d_state", 16, 1)),
		width:    c.Int("mamba_d_conv", 4, 1),
		rank:     c.Rank("mamba_dt_rank", hidden),
		bias:     c.Bool("mamba_proj_bias", false),
		convBias: c.Bool("mamba_conv_bias", true),
		act:      act,
		norm:     m.norm,
	}
	m.attention = *c.readHeads("", hidden, 32, 8)
	if hidden%m.attention.heads != 0 {
		c.fail("num_attention_heads", m.attention.heads, "a divisor of hidden_size")
	}
	m.attention.in, m.attention.out, m.attention.scale = m.hidden, m.hidden, 1/math.Sqrt(float64(m.attention.head))
	m.experts = mixture{
		mlp:     mlp{hidden: m.hidden, inner: graph.Units(c.Int("intermediate_size", 14336, 1), 1), act: act, gateScale: 1, outScale: 1},
		experts: c.Count("num_experts", 16, 1),
		top:     c.Int("num_experts_per_tok", 2, 1),
	}
	if m.experts.experts > 1 && m.experts.top > m.experts.experts {
		c.fail("num_experts_per_tok", m.experts.top, "at most num_experts")
	}
	m.attends, m.mixes = c.every("attn_layer", 8, 4), c.every("expert_layer", 2, 1)
	c.Refuse("sliding_window")
	if !c.Bool("mamba_inner_layernorms", true) {
		c.fail("mamba_inner_layernorms", false, "true: Krait has no other form")
	}
	c.Without("max_position_embeddings", "num_logits_to_keep", "attention_dropout", "use_mamba_kernels", "output_router_logits",
		"router_aux_loss_coef", "layers_block_type", "layers_num_experts")
	return m.hybrid(m.block)
}

func (m *jamba) block(p *parts, i int, h, _ *graph.Value) *graph.Value {
	mix := func(p *parts, n *graph.Value) *graph.Value { return m.mixer.build(p.as("mixer", "mamba."), n) }
	if m.attends(i) {
		mix = func(p *parts, n *graph.Value) *graph.Value {
			return m.attention.build(p.as("attention", "self_attn."), n)
		}
	}
	feedForward := m.experts.mlp.build
	if m.experts.experts > 1 && m.mixes(i) {
		feedForward = m.experts.build
	}
	return m.transformer(p, h, mix, feedForward)
}

// norm is the norm of dt, B and C.
func (m *jamba) norm(p *parts, name string, v *graph.Value) *graph.Value {
	files := map[string]string{"dt": "dt_layernorm.weight", "B": "b_layernorm.weight", "C": "c_layernorm.weight"}
	size := m.mixer.state
	if name == "dt" {
		size = graph.Size(m.mixer.rank)
	}
	return p.RMSNorm(name+"_norm", v, p.small(files[name], size), m.eps)
}

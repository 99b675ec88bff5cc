package models

import (
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// bamba is Bamba (Ganti et al. 2024, https://huggingface.co/blog/bamba): a
// transformer most of whose layers have an SSD mixer for attention.
type bamba struct {
	backbone
	mixer     *ssd
	attention *attention
	mlp       mlp
	attends   []int
}

func readBamba(c *Config) *Model {
	m := &bamba{backbone: readModel(c, 128000, 4096, 32, 1e-5, false)}
	hidden := m.hidden.Len()
	inner := c.expanded("mamba_expand", hidden)
	m.mixer = c.readHeadsSSD(&m.backbone, inner)
	m.mixer.inBias = c.Bool("mamba_proj_bias", false)
	m.mixer.outBias = m.mixer.inBias
	m.mixer.norm = gatedNorm{parts: 1, eps: m.eps}
	m.attends = c.Indices("attn_layer_indices", m.layers)
	var part float64
	m.attention, part = c.readTurned(&m.backbone, 10000, 0.5)
	if m.attention.rotary = int(float64(m.attention.head) * part); m.attention.rotary%2 != 0 {
		c.fail("partial_rotary_factor", part, "such that an even number of channels of a head is rotated")
	}
	m.mlp = c.readMLP(&m.backbone, 14336)
	c.Without("max_position_embeddings", "num_logits_to_keep", "attention_dropout", "mamba_chunk_size", "z_loss_coefficient",
		"time_step_limit", "layers_block_type")
	return m.hybrid(m.block)
}

// readHeadsSSD reads the keys of an SSD mixer with inner channels.
func (c *Config) readHeadsSSD(m *backbone, inner int) *ssd {
	heads, groups := c.Int("mamba_n_heads", 128, 1), c.Int("mamba_n_groups", 1, 1)
	head := max(inner/heads, 1)
	if v, _ := c.get("mamba_d_head"); v != "auto" {
		head = c.Int("mamba_d_head", head, 1)
	}
	if heads*head != inner {
		c.fail("mamba_n_heads", heads, "such that mamba_n_heads × mamba_d_head is the inner width")
	}
	if heads%groups != 0 {
		c.fail("mamba_n_groups", groups, "a divisor of mamba_n_heads")
	}
	mix := newSSD(m.hidden, heads, head, groups, c.Int("mamba_d_state", 256, 1))
	mix.width = c.Int("mamba_d_conv", 4, 1)
	mix.limit = [2]float64{0, math.Inf(1)}
	mix.convBias = c.Bool("mamba_conv_bias", true)
	mix.act = c.OneOf("hidden_act", "silu", Activations)
	return mix
}

// readTurned reads attention with a rotary embedding, and the share of each head
// that is rotated.
func (c *Config) readTurned(m *backbone, theta, share float64) (*attention, float64) {
	a := c.readHeads("head_dim", m.hidden.Len(), 32, 8)
	a.in, a.out, a.scale = m.hidden, m.hidden, 1/math.Sqrt(float64(a.head))
	a.bias = c.Bool("attention_bias", false)
	a.theta, share = c.Rotary(theta, share)
	return a, share
}

// readMLP reads the gated network; inner is its width by default.
func (c *Config) readMLP(m *backbone, inner int) mlp {
	return mlp{
		hidden:    m.hidden,
		inner:     graph.Units(c.Int("intermediate_size", inner, 1), 1),
		act:       c.OneOf("hidden_act", "silu", Activations),
		bias:      c.Bool("mlp_bias", false),
		gateScale: 1,
		outScale:  1,
	}
}

func (m *bamba) block(p *parts, i int, h, _ *graph.Value) *graph.Value {
	mix := func(p *parts, n *graph.Value) *graph.Value { return m.mixer.build(p.as("mixer", "mamba."), n) }
	if slices.Contains(m.attends, i) {
		mix = func(p *parts, n *graph.Value) *graph.Value {
			return m.attention.build(p.as("attention", "self_attn."), n)
		}
	}
	return m.transformer(p, h, mix, m.mlp.build)
}

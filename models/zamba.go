package models

import (
	"fmt"
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
		act:      c.OneOf("hidden_mamba_act", "silu", Activations),
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
// what a shared block makes of h and e.
func (m *zamba) block(p *parts, i int, h, e *graph.Value) *graph.Value {
	if m.kinds[i] == "mamba" {
		return m.step(p, h, h)
	}
	hybrids := m.hybrids()
	use := slices.Index(hybrids, i)
	t := m.shared.build(p.under(m.homes(hybrids, use)...), use, h, e)
	t = p.linear("linear", t, m.hidden, m.hidden, false)
	return m.step(p.at("mamba_decoder."), h, p.Add("guided", h, t))
}

// hybrids lists the hybrid layers.
func (m *zamba) hybrids() []int {
	var list []int
	for i, kind := range m.kinds {
		if kind == "hybrid" {
			list = append(list, i)
		}
	}
	return list
}

// homes are where the checkpoint may have the shared block of a hybrid layer: the
// blocks alternate, and any layer that uses one may have it.
func (m *zamba) homes(hybrids []int, use int) []string {
	var list []string
	for k := use % m.blocks; k < len(hybrids); k += m.blocks {
		list = append(list, fmt.Sprintf("model.layers.%d.%s.", hybrids[k], m.home))
	}
	return list
}

// step adds what the mixer makes of in to h.
func (m *zamba) step(p *parts, h, in *graph.Value) *graph.Value {
	n := p.RMSNorm("norm", in, p.small("input_layernorm.weight", m.hidden), m.eps)
	return p.Add("h", h, m.mixer(p.as("mixer", "mamba."), n))
}

package models

import (
	"math"

	"github.com/krait-ml/krait/graph"
)

// readZamba2 is Zamba2 (Glorioso et al. 2024, https://arxiv.org/abs/2411.15242): Zamba
// with SSD mixers, several shared blocks that alternate, and adapters of low rank that
// let each use of a block differ.
func readZamba2(c *Config) *Model {
	m := &zamba{backbone: readModel(c, 32000, 2560, 54, 1e-5, true)}
	m.blocks, m.home = c.Int("num_mem_blocks", 1, 1), "shared_transformer"
	hidden := m.hidden.Len()
	m.mixer = readZamba2Mixer(c, &m.backbone)
	if m.kinds = c.Kinds("layers_block_type", m.layers, "mamba", "hybrid"); m.kinds == nil {
		if m.layers != 54 {
			c.fail("layers_block_type", nil, "there: only models with 54 layers have a default")
		}
		m.kinds = zamba2Kinds()
	}
	a := c.readHeads("", 2*hidden, 32, 0)
	if c.Bool("use_mem_rope", false) {
		a.rotary = a.head
		a.theta, _ = c.Rotary(10000, 1)
		if c.Bool("use_long_context", false) {
			a.theta *= math.Pow(8, float64(a.head)/float64(a.head-2))
		}
	}
	m.shared = newSharedBlock(c, &m.backbone, a)
	m.shared.rank = c.Int("adapter_rank", 128, 1)
	m.shared.mlp.bias = c.Bool("add_bias_linear", false)
	m.shared.mlp.inner = graph.Units(c.Int("intermediate_size", 4*hidden, 1), 1)
	if m.shared.adapts = c.Bool("use_shared_attention_adapter", false); m.shared.adapts && a.heads != a.groups {
		c.fail("num_key_value_heads", a.groups, "num_attention_heads, with adapters of attention")
	}
	c.Without("max_position_embeddings", "num_logits_to_keep", "attention_dropout", "use_mem_eff_path", "chunk_size", "time_step_max",
		"time_step_floor", "time_step_limit", "kv_channels", "num_query_groups", "hybrid_layer_ids", "mamba_headdim", "attention_head_dim",
		"rope_theta", "rope_scaling", "use_long_context")
	return m.hybrid(m.block)
}

// readZamba2Mixer: the gated norm is per group, with an eps of its own; dt is at
// least time_step_min.
func readZamba2Mixer(c *Config, m *backbone) mixer {
	heads, groups := c.Int("n_mamba_heads", 8, 1), c.Int("mamba_ngroups", 1, 1)
	inner := c.expanded("mamba_expand", m.hidden.Len())
	if inner%heads != 0 {
		c.fail("n_mamba_heads", heads, "a divisor of mamba_expand × hidden_size")
	}
	if heads%groups != 0 {
		c.fail("mamba_ngroups", groups, "a divisor of n_mamba_heads")
	}
	mix := newSSD(m.hidden, heads, max(inner/heads, 1), groups, c.Int("mamba_d_state", 64, 1))
	mix.width = c.Int("mamba_d_conv", 4, 1)
	mix.limit = [2]float64{c.Positive("time_step_min", 0.001), math.Inf(1)}
	mix.inBias = c.Bool("add_bias_linear", false)
	mix.outBias = mix.inBias
	if mix.convBias = c.Bool("use_conv_bias", true); !mix.convBias {
		c.fail("use_conv_bias", false, "true: the checkpoint has the bias, and prompts use it")
		mix.convBias = true
	}
	mix.act = "silu"
	mix.norm = gatedNorm{parts: groups, eps: 1e-5}
	return mix.build
}

// zamba2Kinds are the layers of the first model of the family.
func zamba2Kinds() []string {
	kinds := make([]string, 54)
	for i := range kinds {
		kinds[i] = "mamba"
	}
	for _, i := range []int{6, 12, 18, 24, 30, 36, 42, 47, 51} {
		kinds[i] = "hybrid"
	}
	return kinds
}

package models

import "github.com/krait-ml/krait/graph"

// falconH1 is Falcon-H1 (Zuo et al. 2025, https://arxiv.org/abs/2507.22448): each
// layer has attention and an SSD mixer side by side, and multipliers everywhere.
type falconH1 struct {
	backbone
	mixer                                    *ssd
	attention                                *attention
	mlp                                      mlp
	attentionIn, attentionOut, ssmIn, ssmOut float64
}

func readFalconH1(c *Config) *Model {
	m := &falconH1{backbone: readModel(c, 128000, 4096, 32, 1e-5, false)}
	hidden := m.hidden.Len()
	m.embedScale, m.logitScale = c.Scale("embedding_multiplier"), c.Scale("lm_head_multiplier")
	expanded := c.expanded("mamba_expand", hidden)
	inner := c.Int("mamba_d_ssm", 1024, 1)
	if c.null("mamba_d_ssm") {
		inner = expanded
	}
	m.mixer = c.readHeadsSSD(&m.backbone, inner)
	m.mixer.inBias, m.mixer.outBias = c.Bool("mamba_proj_bias", false), c.Bool("projectors_bias", false)
	copy(m.mixer.scales[:], c.Scales("ssm_multipliers", 5))
	before := c.Bool("mamba_norm_before_gate", true)
	if c.Bool("mamba_rms_norm", false) {
		m.mixer.norm = gatedNorm{parts: c.Int("mamba_n_groups", 1, 1), before: before, eps: m.eps}
	}
	m.ssmIn, m.ssmOut = c.Scale("ssm_in_multiplier"), c.Scale("ssm_out_multiplier")

	var part float64
	if m.attention, part = c.readTurned(&m.backbone, 100000, 1); part != 1 {
		c.fail("partial_rotary_factor", part, "1")
	}
	if m.attention.rotary = m.attention.head; m.attention.head%2 != 0 {
		c.fail("head_dim", m.attention.head, "even, for the rotary embedding")
	}
	m.attention.keyScale = c.Scale("key_multiplier")
	m.attentionIn, m.attentionOut = c.Scale("attention_in_multiplier"), c.Scale("attention_out_multiplier")
	m.mlp = c.readMLP(&m.backbone, 14336)
	scales := c.Scales("mlp_multipliers", 2)
	m.mlp.gateScale, m.mlp.outScale = scales[0], scales[1]
	c.Without("max_position_embeddings", "num_logits_to_keep", "attention_dropout", "mamba_chunk_size", "mamba_use_mlp", "mlp_expansion_factor",
		"attn_layer_indices", "time_step_min", "time_step_max", "time_step_floor", "time_step_limit", "time_step_rank", "layers_block_type")
	return m.hybrid(m.block)
}

func (m *falconH1) block(p *parts, _ int, h, _ *graph.Value) *graph.Value {
	return m.transformer(p, h, m.both, m.mlp.build)
}

// both is the sum of the mixer and of attention.
func (m *falconH1) both(p *parts, n *graph.Value) *graph.Value {
	s := m.mixer.build(p.as("mixer", "mamba."), p.times("mixer_in", n, m.ssmIn))
	a := m.attention.build(p.as("attention", "self_attn."), p.times("attention_in", n, m.attentionIn))
	return p.Add("both", p.times("mixer_out", s, m.ssmOut), p.times("attention_out", a, m.attentionOut))
}

package models

// NormGroupsKey is Krait's own key: over how many groups of channels the gated norm is.
// Hugging Face's code has one norm over all channels, mamba_ssm one for each of n_groups,
// and so have the files of it and of llama.cpp.
const NormGroupsKey = "gated_norm_groups"

// readGroupedNorm is the gated norm over all channels, unless the config says over groups.
func (c *Config) readGroupedNorm(inner int, eps float64) gatedNorm {
	n := gatedNorm{parts: c.Int(NormGroupsKey, 1, 1), eps: eps}
	if inner%n.parts != 0 {
		c.fail(NormGroupsKey, n.parts, "a divisor of the inner width")
	}
	return n
}

// Mamba-2 (Dao and Gu 2024, https://arxiv.org/abs/2405.21060) as Hugging Face
// stores it: blocks of a norm and an SSD mixer, whose gated norm is over all
// channels unless the config says otherwise.
func readMamba2(c *Config) *Model {
	hidden, heads, head := c.Int("hidden_size", 4096, 1), c.Int("num_heads", 128, 1), c.Int("head_dim", 64, 1)
	states, groups := c.Int("state_size", 128, 1), c.Int("n_groups", 8, 1)
	if expand := c.Positive("expand", 2); expand*float64(hidden) != float64(heads*head) {
		c.fail("num_heads", heads, "such that num_heads × head_dim is expand × hidden_size")
	}
	if heads%groups != 0 {
		c.fail("n_groups", groups, "a divisor of num_heads")
	}
	m := readBackbone(c, hidden, 32768, 64, false)
	mix := newSSD(m.hidden, heads, head, groups, states)
	mix.width = c.Int("conv_kernel", 4, 1)
	mix.limit = c.Range("time_step_limit")
	mix.inBias = c.Bool("use_bias", false)
	mix.outBias = mix.inBias
	mix.convBias = c.Bool("use_conv_bias", true)
	mix.act = c.OneOf("hidden_act", "silu", Activations)
	mix.norm = c.readGroupedNorm(heads*head, m.eps)
	if !c.Bool("rms_norm", true) {
		c.fail("rms_norm", false, "true: Krait has no other norm of the gated output")
	}
	c.Without("time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme",
		"rescale_prenorm_residual", "chunk_size", "intermediate_size")
	return m.model(m.residual(mix.build))
}

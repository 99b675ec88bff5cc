package models

import "github.com/krait-ml/krait/graph"

// Mamba (Gu and Dao 2023, https://arxiv.org/abs/2312.00752) as Hugging Face
// stores it: blocks of a norm and a selective mixer.
func readMamba(c *Config) *Model {
	m, mix := readMambaKeys(c)
	return m.model(m.residual(mix.build))
}

// readMambaKeys reads the keys that the descendants share; defaults are those
// of transformers.
func readMambaKeys(c *Config) (*backbone, *selective) {
	hidden := c.Int("hidden_size", 768, 1)
	m := readBackbone(c, hidden, 50280, 32, true)
	mix := &selective{
		hidden:   m.hidden,
		inner:    graph.Units(c.Int("intermediate_size", c.expanded("expand", hidden), 1), 1),
		state:    graph.Size(c.Int("state_size", 16, 1)),
		width:    c.Int("conv_kernel", 4, 1),
		rank:     c.Rank("time_step_rank", hidden),
		bias:     c.Bool("use_bias", false),
		convBias: c.Bool("use_conv_bias", true),
		act:      c.OneOf("hidden_act", "silu", Activations),
	}
	c.Without("time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
		"rescale_prenorm_residual", "use_mambapy", "use_associative_scan")
	return &m, mix
}

// readBackbone reads the keys of a backbone with nothing but mixers.
func readBackbone(c *Config, hidden, vocab, layers int, tied bool) backbone {
	// All arithmetic is in f32, the residual stream too.
	c.Bool("residual_in_fp32", true)
	return backbone{
		vocab:      graph.Units(c.Int("vocab_size", vocab, 1), 1),
		hidden:     graph.Size(hidden),
		layers:     c.Layers(layers),
		eps:        c.Positive("layer_norm_epsilon", 1e-5),
		tied:       c.Bool("tie_word_embeddings", tied),
		names:      BackboneNames,
		embedScale: 1,
		logitScale: 1,
	}
}

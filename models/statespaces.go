package models

import (
	"fmt"
	"math"
)

// stateSpaces turns the config of the original state-spaces code (d_model, ssm_cfg) into
// that of Hugging Face, whose names the tensors have but for two that families know. What
// that code can do and Krait's families cannot is an error.
func (c *Config) stateSpaces() {
	v, ok := c.get("ssm_cfg")
	cfg, is := v.(map[string]any)
	if ok && !is {
		c.fail("ssm_cfg", v, "an object")
	}
	s := &Config{Path: c.Path + ": ssm_cfg", values: cfg, asked: map[string]bool{}}
	hidden := c.Int("d_model", 2560, 1)
	pad := c.Int("pad_vocab_size_multiple", 8, 1)
	vocab := (c.Int("vocab_size", 50277, 1) + pad - 1) / pad * pad
	layers := c.integer("n_layer", 64, 0, MaxLayers)
	tied, wide := c.Bool("tie_embeddings", true), c.Bool("residual_in_fp32", true)
	if !c.Bool("rms_norm", true) {
		c.fail("rms_norm", false, "true: Krait's families have no other norm")
	}
	c.Refuse("d_intermediate", "attn_layer_idx")
	layer := s.OneOf("layer", "Mamba1", map[string]string{"Mamba1": "mamba", "Mamba2": "mamba2"})
	out := map[string]any{
		"model_type": layer, "hidden_size": float64(hidden), "num_hidden_layers": float64(layers), "vocab_size": float64(vocab),
		"tie_word_embeddings": tied, "residual_in_fp32": wide, "layer_norm_epsilon": 1e-5, "hidden_act": "silu",
		"conv_kernel": float64(s.Int("d_conv", 4, 1)), "use_bias": s.Bool("bias", false), "use_conv_bias": s.Bool("conv_bias", true),
	}
	expand := s.Positive("expand", 2)
	out["expand"] = expand
	s.Without("dt_min", "dt_max", "dt_init_floor")
	if layer == "mamba2" {
		s.mamba2(out, int(min(expand*float64(hidden), MaxDim)))
	} else {
		out["state_size"] = float64(s.Int("d_state", 16, 1))
		out["time_step_rank"] = float64(s.Rank("dt_rank", hidden))
		s.Without("dt_init", "dt_scale", "use_fast_path")
	}
	for _, key := range s.Unknown() {
		s.fail(key, cfg[key], "absent: Krait does not know what it changes")
	}
	c.errs = append(c.errs, s.errs...)
	for _, key := range []string{"d_model", "n_layer", "ssm_cfg", "rms_norm", "fused_add_norm", "pad_vocab_size_multiple", "tie_embeddings", "attn_layer_idx", "attn_cfg", "d_intermediate"} {
		delete(c.values, key)
	}
	for key, v := range out {
		c.values[key] = v
	}
}

// mamba2 reads what the second kind of layer has of its own.
func (c *Config) mamba2(out map[string]any, inner int) {
	head, groups := c.Int("headdim", 64, 1), c.Int("ngroups", 1, 1)
	if inner%head != 0 {
		c.fail("headdim", head, fmt.Sprintf("a divisor of the inner width, %d", inner))
	}
	out["head_dim"], out["num_heads"] = float64(head), float64(max(1, inner/head))
	out["n_groups"], out[NormGroupsKey] = float64(groups), float64(groups)
	out["state_size"] = float64(c.Int("d_state", 128, 1))
	if limit := c.Range("dt_limit"); limit != [2]float64{0, math.Inf(1)} {
		out["time_step_limit"] = c.values["dt_limit"]
	}
	c.Bool("rmsnorm", true)
	if v, ok := c.values["rmsnorm"]; ok && v == false {
		c.fail("rmsnorm", v, "true: Krait's family has no other form")
	}
	c.Refuse("d_ssm", "D_has_hdim", "norm_before_gate")
	c.Without("A_init_range", "chunk_size", "use_mem_eff_path", "activation")
}

// isStateSpaces reports whether the config is of the original code.
func (c *Config) isStateSpaces() bool {
	_, theirs := c.values["d_model"]
	_, ours := c.values["model_type"]
	return theirs && !ours
}

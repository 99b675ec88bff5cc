package checkpoint

import "github.com/krait-ml/krait/models"

var ggufLFM2Blocks = ggufBlocks([][3]string{
	{"attn_norm.weight", "operator_norm.weight"}, {"ffn_norm.weight", "ffn_norm.weight"},
	{"shortconv.conv.weight", "conv.conv.weight", "conv"}, {"shortconv.conv.bias", "conv.conv.bias"}, {"shortconv.in_proj.*", "conv.in_proj.*"}, {"shortconv.out_proj.*", "conv.out_proj.*"},
	{"attn_q.weight", "self_attn.q_proj.weight"}, {"attn_k.weight", "self_attn.k_proj.weight"}, {"attn_v.weight", "self_attn.v_proj.weight"}, {"attn_output.weight", "self_attn.out_proj.weight"},
	{"attn_q_norm.weight", "self_attn.q_layernorm.weight"}, {"attn_k_norm.weight", "self_attn.k_layernorm.weight"},
	{"ffn_gate.weight", "feed_forward.w1.weight"}, {"ffn_up.weight", "feed_forward.w3.weight"}, {"ffn_down.weight", "feed_forward.w2.weight"},
	{"ffn_gate_inp.weight", "feed_forward.gate.weight", "exact"}, {"exp_probs_b.bias", "feed_forward.expert_bias"},
	{"ffn_gate_exps.weight", "feed_forward.experts.#.w1.weight", "experts"}, {"ffn_up_exps.weight", "feed_forward.experts.#.w3.weight", "experts"},
	{"ffn_down_exps.weight", "feed_forward.experts.#.w2.weight", "experts"},
})

// lfm2Arch is an architecture of short convolutions.
func lfm2Arch(family string, more ...ggufKey) ggufArch {
	outer := outerNames(models.LFM2Names)
	delete(outer, "output_norm.weight")
	outer["token_embd_norm.weight"] = models.LFM2Names.Prefix + models.LFM2Names.Norm // as llama.cpp calls the last norm
	keys := []ggufKey{modelType(family), headCounts("self_attn.", 8, 1), epsilon("norm_eps", 1e-5), {lfm2, exportLFM2}}
	return ggufArch{prefix: models.LFM2Names.Prefix, outer: outer, kernel: "shortconv.l_cache", blocks: ggufLFM2Blocks, keys: append(keys, more...)}
}

func lfm2(g *ggufConfig) {
	g.Delete("hidden_act")
	kinds := []any{}
	for _, n := range g.layers("attention.head_count_kv") {
		kinds = append(kinds, map[bool]string{true: "full_attention", false: "conv"}[n > 0])
	}
	g.Set("layer_types", kinds)
	g.Delete("full_attn_idxs")
	g.set("conv_L_cache", g.int(g.table.kernel, 1))
	g.Set("conv_bias", g.any("shortconv.in_proj.bias"))
	g.Set("rope_parameters", map[string]any{"rope_type": "default", "rope_theta": g.float("rope.freq_base")})
	g.Delete("rope_theta")
	inner := g.int("feed_forward_length", 1)
	if c := g.Value("intermediate_size"); g.kept && c != nil && g.Value("block_auto_adjust_ff_dim") != false && g.arch == "lfm2" {
		return // the width follows from the config
	}
	g.set("intermediate_size", inner)
	if g.arch == "lfm2" {
		g.Delete("block_ff_dim")
		g.Set("block_auto_adjust_ff_dim", false)
	}
}

func exportLFM2(e *ggufExport) {
	c := e.config
	shape := e.shape("conv.conv.weight", 3)
	e.int(e.table.kernel, max(1, shape[2]))
	e.int("feed_forward_length", max(1, e.rows("feed_forward.w1.weight")))
	theta, _ := c.Rotary(1e6, 1)
	e.float("rope.freq_base", theta)
	if e.has("conv.in_proj.bias") {
		e.note("convolutions have biases, of which llama.cpp knows nothing: it does not load the file")
	}
}

func lfm2Experts(g *ggufConfig) {
	g.routed()
	g.set("num_dense_layers", g.optional("leading_dense_block_count", 0))
	g.def("norm_topk_prob", true)
	g.def("routed_scaling_factor", g.scale("expert_weights_scale"))
}

func exportLFM2Experts(e *ggufExport) {
	c := e.config
	e.int("expert_count", e.rows("feed_forward.gate.weight"))
	e.int("expert_used_count", c.Int("num_experts_per_tok", 4, 1))
	e.int("expert_feed_forward_length", c.Int("moe_intermediate_size", 1792, 1))
	e.int("leading_dense_block_count", c.Int("num_dense_layers", 2, 0))
	e.int("expert_gating_func", 2) // sigmoid
	if s := c.Scale("routed_scaling_factor"); s != 1 || !c.Bool("norm_topk_prob", true) {
		e.note("routed_scaling_factor is %g and norm_topk_prob %v; other programs take 1 and true", s, c.Bool("norm_topk_prob", true))
	}
}

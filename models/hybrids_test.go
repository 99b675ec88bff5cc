package models

import (
	"strings"
	"testing"
)

// hybrids are small configs of the families with attention, open at the end.
var hybrids = map[string]string{
	"zamba":  `{"model_type": "zamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 6, "mamba_d_state": 3, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]`,
	"zamba2": `{"model_type": "zamba2", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 6, "n_mamba_heads": 4, "mamba_ngroups": 2, "mamba_d_state": 3, "adapter_rank": 2, "layers_block_type": ["mamba", "hybrid", "hybrid"]`,
	"jamba":  `{"model_type": "jamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 6, "num_experts": 3, "num_experts_per_tok": 2, "attn_layer_period": 4, "attn_layer_offset": 2`,
	"bamba":  `{"model_type": "bamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 6, "mamba_n_heads": 4, "mamba_d_state": 3, "attn_layer_indices": [1]`,
	"granitemoehybrid": `{"model_type": "granitemoehybrid", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 3, "shared_intermediate_size": 5,
		"num_local_experts": 4, "num_experts_per_tok": 2, "mamba_n_heads": 4, "mamba_d_state": 3, "layer_types": ["mamba", "attention"]`,
	"nemotron_h": `{"model_type": "nemotron_h", "vocab_size": 10, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 5, "mamba_num_heads": 6, "mamba_head_dim": 5, "n_groups": 2,
		"ssm_state_size": 3, "n_routed_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 3, "moe_shared_expert_intermediate_size": 7, "hybrid_override_pattern": "M-*E"`,
	"lfm2": `{"model_type": "lfm2", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12, "block_multiple_of": 5, "layer_types": ["conv", "full_attention"]`,
	"lfm2_moe": `{"model_type": "lfm2_moe", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12, "num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2,
		"moe_intermediate_size": 3, "layer_types": ["conv", "full_attention", "conv"]`,
	"qwen3_next": `{"model_type": "qwen3_next", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 6, "linear_num_key_heads": 2,
		"linear_num_value_heads": 6, "linear_key_head_dim": 3, "linear_value_head_dim": 5, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 3, "shared_expert_intermediate_size": 7`,
	"qwen3_5": `{"model_type": "qwen3_5", "vision_config": {"depth": 2}, "text_config": {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 6,
		"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 3, "linear_value_head_dim": 5, "partial_rotary_factor": 0.75`,
	"falcon_h1": `{"model_type": "falcon_h1", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 6, "mamba_n_heads": 4, "mamba_d_ssm": 16, "mamba_d_state": 3`,
}

// TestKeysOfHybrids: what a key does to the graph.
func TestKeysOfHybrids(t *testing.T) {
	for _, c := range []struct {
		family, keys string
		holds, not   []string
	}{
		{"zamba", `}`, []string{`"model.layers.0.mamba.in_proj.weight"[0:2:16] "model.layers.0.mamba.in_proj.weight"[1:2:16] shape(32 8)`, "{scale=0.5}",
			"%both = concat %/", "= gelu ", "head_down", "head_up"}, []string{"rotary", "lm_head", "in_proj.bias"}},
		{"zamba", `, "hidden_act": "relu", "hidden_mamba_act": "gelu", "mamba_proj_bias": true, "mamba_conv_bias": false, "n_mamba_heads": 4, "attention_head_dim": 2}`,
			[]string{"= relu ", "= gelu ", "in_proj.bias", "out_proj.bias", "f32[t 12/3]", "f32[s c 4/2]", "{scale=1}"}, []string{"conv1d.bias"}},
		{"zamba2", `}`, []string{"group_rmsnorm %mixer.gated @mixer.norm.weight {eps=1e-05 groups=2}", "min=0.001", "gate_up_proj_adapter_list.1.0"}, []string{"rotary", "linear_q_adapter"}},
		{"zamba2", `, "use_mem_rope": true, "use_long_context": true, "use_shared_attention_adapter": true, "rms_norm_eps": 0.01, "add_bias_linear": true, "num_mem_blocks": 2, "time_step_min": 0.5}`,
			[]string{"rotary %attention.linear_q_adapter_list.0 %/seg %/past {dims=8 theta=1", "linear_v_adapter_list.1.1", "{eps=1e-05 groups=2}", "{eps=0.01}", "gate_up_proj.bias",
				`"model.layers.2.shared_transformer.self_attn.q_proj.weight"`, "min=0.5"}, []string{"linear_v_adapter_list.2"}},
		{"jamba", `}`, []string{"= router %mlp.router {top=2}", "@mlp.experts.down_proj.weight {top=2}", `"model.layers.1.feed_forward.experts.2.up_proj.weight"`, "%mixer.dt_norm = rmsnorm", "{eps=1e-06}", "lm_head"}, []string{"rotary"}},
		{"jamba", `, "num_experts": 1, "num_experts_per_tok": 2, "tie_word_embeddings": true}`, []string{"gate_proj"}, []string{"router", "experts", "lm_head"}},
		{"bamba", `}`, []string{"{dims=2 theta=10000}", "%mixer.normed = rmsnorm", "keys"}, []string{"k_proj.bias", "gate_proj.bias"}},
		{"bamba", `, "rope_parameters": {"rope_theta": 500, "rope_type": "default", "partial_rotary_factor": 1.0}, "head_dim": 6, "attention_bias": true, "mlp_bias": true, "mamba_n_groups": 2}`,
			[]string{"{dims=6 theta=500}", "k_proj.bias", "gate_proj.bias", "B:6/3", "%mixer.normed = rmsnorm"}, nil},
		{"falcon_h1", `}`, []string{"add %mixer.out_proj %attention.o_proj", "{dims=4 theta=100000}"}, []string{"normed", "= times ", "concat"}},
		{"falcon_h1", `, "mamba_rms_norm": true, "mamba_n_groups": 2, "ssm_multipliers": [1, 2, 1, 1, 1], "key_multiplier": 0.5, "lm_head_multiplier": 2, "embedding_multiplier": 3, "projectors_bias": true}`,
			[]string{"%mixer.normed = group_rmsnorm %mixer.y", "%mixer.out_in = mul %mixer.normed %mixer.gate", "%mixer.x_scaled = times %mixer.x_in {by=2}", `names="x|B|C"`,
				"%attention.k_scaled = times", "%logits = times %logits_raw {by=2}", "%h_scaled = times %h {by=3}", "out_proj.bias"}, []string{"in_proj.bias", "z_scaled"}},
		{"falcon_h1", `, "mamba_d_ssm": null, "mamba_rms_norm": true, "mamba_norm_before_gate": false}`, []string{"%mixer.normed = rmsnorm %mixer.gated"}, nil},
		{"granitemoehybrid", `}`, []string{"%experts.weights = router %experts.router {norm=1 top=2}", "%ff = add %mlp.output_linear %experts.experts", "{scale=1}", "gate:5/1|up:5/1",
			`"model.layers.1.block_sparse_moe.output_linear.weight"`, "%mixer.normed = rmsnorm", "{max=+inf min=0}", "{eps=1e-06}", `"lm_head.weight"`}, []string{"rotary", "_scaled", "proj.bias"}},
		{"granitemoehybrid", `, "num_local_experts": 0, "num_experts_per_tok": 0, "tie_word_embeddings": true, "embedding_multiplier": 3, "residual_multiplier": 0.5, "attention_multiplier": 0.25, "logits_scaling": 4,
			"position_embedding_type": "rope", "rope_theta": 500, "attention_bias": true, "mamba_proj_bias": true, "mamba_n_groups": 2, "mamba_d_head": "auto"}`,
			[]string{"%h_scaled = times %h {by=3}", "%mixed_scaled = times %mixer.out_proj {by=0.5}", "%ff_scaled = times %mlp.output_linear {by=0.5}", "{scale=0.25}", "%logits = times %logits_raw {by=0.25}",
				"{dims=4 theta=500}", "k_proj.bias", "out_proj.bias", "B:6/3", "%mixer.normed = rmsnorm"}, []string{"router", "experts", "lm_head"}},
		{"granitemoehybrid", `, "layer_types": ["linear_attention", "full_attention"], "position_embedding_type": "rope", "rope_parameters": {"rope_theta": 500, "rope_type": "default"}, "time_step_limit": [0.5, 2]}`,
			[]string{"{dims=4 theta=500}", "{max=2 min=0.5}", "layers.1.self_attn"}, nil},
		{"granitemoehybrid", `, "layer_types": ["attention", "attention"], "position_embedding_type": null, "rope_parameters": {"rope_type": "yarn"}, "rope_theta": 5}`, []string{"keys"}, []string{"ssd_scan", "rotary"}},
		{"granitemoehybrid", `, "layer_types": null, "init_method": "mup", "normalization_function": "rmsnorm"}`, []string{"ssd_scan"}, []string{"keys"}},
		{"lfm2", `}`, []string{"B:8/1|C:8/1|x:8/1", "%mixer.Bx = mul %", "conv1d %mixer.Bx @mixer.conv.weight", "head_rmsnorm %attention.q_proj @attention.q_layernorm.weight {eps=1e-05}", "{dims=4 theta=1e+06}", "f32[10/1 8]",
			`"model.embedding_norm.weight"`, `"model.layers.1.self_attn.out_proj.weight"`, `"model.layers.0.feed_forward.w3.weight"`}, []string{"lm_head", "silu %mixer", "proj.bias", "plus"}},
		{"lfm2", `, "layer_types": null, "full_attn_idxs": [0], "conv_bias": true, "tie_embedding": false, "tie_word_embeddings": null, "block_auto_adjust_ff_dim": false, "norm_eps": 0.01, "conv_L_cache": 4, "num_heads": 2, "rope_theta": 500}`,
			[]string{"mixer.in_proj.bias", "mixer.conv.bias", "out_proj.bias", `"model.layers.1.conv.conv.weight"`, "lm_head", "f32[12/1 8]", "{eps=0.01}", "f32[s 8/1 3]", "theta=500"}, []string{"1e-05"}},
		{"lfm2_moe", `}`, []string{"sigmoid_router %experts.router @experts.expert_bias {eps=1e-06 norm=1 top=2}", `"model.layers.1.feed_forward.experts.2.w3.weight"`, `"model.layers.0.feed_forward.w1.weight"`}, []string{"lm_head", "weights_scaled", "gate_up"}},
		{"lfm2_moe", `, "routed_scaling_factor": 2, "norm_topk_prob": false}`, []string{"{eps=1e-06 top=2}", "times %experts.weights {by=2}"}, nil},
		{"qwen3_next", `}`, []string{"q:6/3|k:6/3|v:30/5|z:30/5", `"model.layers.0.linear_attn.in_proj_qkvz.weight"[0:1:3] "model.layers.0.linear_attn.in_proj_qkvz.weight"[36:1:3]`,
			`"model.layers.0.linear_attn.in_proj_ba.weight"[0:1:3] "model.layers.0.linear_attn.in_proj_ba.weight"[6:1:3] "model.layers.0.linear_attn.in_proj_ba.weight"[3:1:3]`, "plus @norm.weight {by=1}", "{scale=0.5773502691896258}",
			"rmsnorm %mixed %norm_ff_weight {eps=1e-06}", "head_rmsnorm %mixer.delta_out @mixer.norm.weight", "router %experts.router {norm=1 top=2}", "{dims=2 theta=10000}", "%attention.gated = mul %attention.attended %attention.gate_sigmoid",
			`"model.layers.3.self_attn.q_proj.weight"[8:1:8]`, `"model.layers.1.mlp.experts.2.down_proj.weight"`, "lm_head", "experts %norm_ff %experts.shared_gate"}, []string{"mlp.gate_proj", "conv1d.bias"}},
		{"qwen3_next", `, "layer_types": ["full_attention", "linear_attention", "linear_attention", "linear_attention"], "mlp_only_layers": [1], "decoder_sparse_step": 2, "norm_topk_prob": false, "tie_word_embeddings": true}`,
			[]string{"layers.0.self_attn", "layers.3.linear_attn", "layers.1.mlp.gate_proj", "layers.0.mlp.gate_proj", `"model.layers.3.mlp.gate.weight"`, "router %experts.router {top=2}"}, []string{"lm_head", "layers.1.mlp.experts"}},
		{"qwen3_5", `, "rope_parameters": {"rope_theta": 500, "partial_rotary_factor": 0.5, "rope_type": "default", "mrope_section": [1, 1, 0], "mrope_interleaved": true}, "tie_word_embeddings": true}, "tie_word_embeddings": false}`,
			[]string{"q:6/3|k:6/3|v:30/5", "{dims=4 theta=500}", "in_proj_z.weight", "lm_head", "mlp.down_proj"}, []string{"experts", "qkvz"}},
		{"qwen3_5", `, "model_type": "qwen3_5_moe_text", "num_experts": 4, "num_experts_per_tok": 2, "full_attention_interval": 2}}`,
			[]string{`"model.layers.1.self_attn.q_proj.weight"`, `"model.layers.1.mlp.experts.gate_up_proj"`, "{norm=1 top=2}", "{dims=6 theta=10000}"}, []string{"experts.2"}},
		{"nemotron_h", `}`, []string{"%mixer.normed = group_rmsnorm %mixer.gated @mixer.norm.weight {eps=1e-05 groups=2}", "= relu2 %mlp.up_proj", "z:30/5|x:30/5|B:6/3|C:6/3|dt:6/1", "{scale=0.4082482904638631}", "f32[t 12/6]",
			"%experts.weights = sigmoid_router %experts.router @experts.gate.e_score_correction_bias {norm=1 top=3}", "@experts.experts.down_proj.weight {top=3}", `"backbone.layers.3.mixer.experts.2.down_proj.weight"`,
			"%experts.all = add %experts.experts %experts.shared_experts.down_proj", "{max=+inf min=0}", `"lm_head.weight"`}, []string{"rotary", "gate_proj", "latent", "proj.bias", "weights_scaled"}},
		{"nemotron_h", `, "moe_latent_size": 2, "norm_topk_prob": false, "routed_scaling_factor": 2.5, "use_bias": true, "mlp_bias": true, "attention_bias": true, "layer_norm_epsilon": 0.01, "time_step_limit": [0, 2], "mlp_hidden_act": "silu",
			"n_groups": 1, "num_nextn_predict_layers": 1, "n_group": 2, "topk_group": 2}`,
			[]string{"fc1_latent_proj.bias", "%experts.fc2_latent_proj_w = matmul %experts.experts", "@experts.gate.e_score_correction_bias {top=3}", "%experts.weights_scaled = times %experts.weights {by=2.5}", "in_proj.bias", "mlp.down_proj.bias", "k_proj.bias",
				"shared_experts.up_proj.bias", "%mixer.normed = rmsnorm", "{eps=0.01}", "{max=2 min=0}", "= silu %mlp.up_proj"}, []string{"relu2", "1e-05"}},
		{"nemotron_h", `, "layers_block_type": ["linear_attention", "full_attention"], "head_dim": null, "attention_head_dim": 4, "num_hidden_layers": 2}`, []string{"f32[t 8/4]", "layers.1.mixer.k_proj"}, []string{"relu2", "experts"}},
		{"nemotron_h", `, "n_group": 2, "num_experts_per_tok": 2}`, []string{"{groups=2 norm=1 top=2}"}, nil},
		{"nemotron_h", `, "num_nextn_predict_layers": 0, "mtp_layers_block_type": [], "mtp_hybrid_override_pattern": ""}`, nil, []string{"mtp"}},
		{"nemotron_h", `, "layers_block_type": ["moe", "mlp", "mamba", "attention"]}`, []string{"layers.3.mixer.k_proj", "layers.0.mixer.gate"}, nil},
	} {
		m, err := read(hybrids[c.family] + c.keys)
		if err != nil {
			t.Errorf("%s %s: %v", c.family, c.keys, err)
			continue
		}
		if len(m.Unknown) > 0 {
			t.Errorf("%s %s: unknown keys %v", c.family, c.keys, m.Unknown)
		}
		text := graphText(t, m)
		for _, s := range c.holds {
			if !strings.Contains(text, s) {
				t.Errorf("%s %s: no %q in\n%s", c.family, c.keys, s, text)
			}
		}
		for _, s := range c.not {
			if strings.Contains(text, s) {
				t.Errorf("%s %s: %q in\n%s", c.family, c.keys, s, text)
			}
		}
	}
}

// TestLayersOfZamba: the pattern counts from layer 3, unless layers are listed.
func TestLayersOfZamba(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"attn_layer_period": 3, "attn_layer_offset": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(c.zambaKinds(8), " "), "mamba mamba hybrid mamba hybrid mamba mamba hybrid"; got != want || len(c.errs) > 0 {
		t.Errorf("%s, want %s; %v", got, want, c.errs)
	}
	if n := strings.Count(strings.Join(zamba2Kinds(), " "), "hybrid"); n != 9 || zamba2Kinds()[47] != "hybrid" {
		t.Errorf("%d hybrid layers", n)
	}
}

func TestHybridsRefuse(t *testing.T) {
	for _, c := range [][3]string{
		{"zamba", `, "n_mamba_heads": 3}`, "n_mamba_heads is 3; it must be a divisor of mamba_expand × hidden_size"},
		{"zamba", `, "num_key_value_heads": 3}`, "num_key_value_heads is 3; it must be a divisor of num_attention_heads"},
		{"zamba", `, "attention_hidden_size": 8}`, "attention_hidden_size is 8; it must be 2 × hidden_size"},
		{"zamba", `, "layers_block_type": ["mamba"]}`, `layers_block_type is ["mamba"]; it must be 4 times one of mamba, hybrid`},
		{"zamba", `, "layers_block_type": ["mamba", "mamba", "mlp", "mamba"]}`, "it must be 4 times one of mamba, hybrid"},
		{"zamba", `, "attn_layer_offset": 9}`, "attn_layer_offset is 9; it must be below attn_layer_period"},
		{"zamba", `, "layers_block_type": null, "num_hidden_layers": 2}`, "num_hidden_layers is 2; it must be at least 3"},
		{"zamba2", `, "layers_block_type": null}`, "only models with 54 layers have a default"},
		{"zamba2", `, "num_key_value_heads": 1, "use_shared_attention_adapter": true}`, "num_key_value_heads is 1; it must be num_attention_heads"},
		{"zamba2", `, "use_conv_bias": false}`, "use_conv_bias is false"},
		{"zamba2", `, "mamba_ngroups": 3}`, "mamba_ngroups is 3; it must be a divisor of n_mamba_heads"},
		{"zamba2", `, "use_mem_rope": true, "rope_scaling": {"type": "linear", "factor": 2}}`, `rope_scaling: type is "linear"; it must be one of default`},
		{"jamba", `, "num_experts_per_tok": 4}`, "num_experts_per_tok is 4; it must be at most num_experts"},
		{"jamba", `, "num_attention_heads": 3, "num_key_value_heads": 1}`, "num_attention_heads is 3; it must be a divisor of hidden_size"},
		{"jamba", `, "expert_layer_offset": 2}`, "expert_layer_offset is 2; it must be below expert_layer_period"},
		{"jamba", `, "sliding_window": 128}`, "sliding_window is 128; it must be absent"},
		{"jamba", `, "mamba_inner_layernorms": false}`, "mamba_inner_layernorms is false"},
		{"bamba", `, "attn_layer_indices": [2]}`, "attn_layer_indices is [2]; it must be a list of layers, 0 to 1"},
		{"bamba", `, "mamba_d_head": 3}`, "mamba_n_heads is 4; it must be such that mamba_n_heads × mamba_d_head is the inner width"},
		{"bamba", `, "partial_rotary_factor": 0.3, "head_dim": 10}`, "partial_rotary_factor is 0.3; it must be such that an even number"},
		{"bamba", `, "partial_rotary_factor": 1.5}`, "partial_rotary_factor is 1.5; it must be at most 1"},
		{"bamba", `, "rope_scaling": {"rope_type": "yarn"}}`, `rope_type is "yarn"; it must be one of default`},
		{"bamba", `, "rope_scaling": {"rope_type": "default", "factor": 4}}`, "factor is 4; it must be absent"},
		{"falcon_h1", `, "mlp_multipliers": [1]}`, "mlp_multipliers is [1]; it must be 2 numbers"},
		{"falcon_h1", `, "ssm_multipliers": [1, 1, 1, 1, "x"]}`, "it must be 5 numbers"},
		{"falcon_h1", `, "key_multiplier": "x"}`, `key_multiplier is "x"; it must be a number`},
		{"falcon_h1", `, "partial_rotary_factor": 0.5}`, "partial_rotary_factor is 0.5; it must be 1"},
		{"falcon_h1", `, "head_dim": 3}`, "head_dim is 3; it must be even"},
		{"granitemoehybrid", `, "num_experts_per_tok": 5}`, "num_experts_per_tok is 5; it must be at least 1, and at most num_local_experts"},
		{"granitemoehybrid", `, "num_experts_per_tok": 0}`, "num_experts_per_tok is 0; it must be at least 1"},
		{"granitemoehybrid", `, "layer_types": ["mamba"]}`, "it must be 2 times one of mamba, attention, linear_attention, full_attention"},
		{"granitemoehybrid", `, "position_embedding_type": "alibi"}`, `position_embedding_type is "alibi"; it must be one of nope, rope`},
		{"granitemoehybrid", `, "position_embedding_type": "rope", "rope_scaling": {"type": "linear", "factor": 2}}`, `rope_scaling: type is "linear"`},
		{"granitemoehybrid", `, "position_embedding_type": "rope", "hidden_size": 6, "mamba_n_heads": 3}`, "num_attention_heads is 2; it must be such that hidden_size / num_attention_heads is even"},
		{"granitemoehybrid", `, "position_embedding_type": "rope", "partial_rotary_factor": 0.5}`, "partial_rotary_factor is 0.5; it must be 1"},
		{"granitemoehybrid", `, "logits_scaling": 0}`, "logits_scaling is 0; it must be a number above 0"},
		{"lfm2", `, "partial_rotary_factor": 0.5}`, "partial_rotary_factor is 0.5; it must be 1"},
		{"lfm2", `, "layer_types": ["conv"]}`, "it must be 2 times one of conv, full_attention"},
		{"lfm2", `, "num_attention_heads": 8}`, "num_attention_heads is 8; it must be such that hidden_size / num_attention_heads is even"},
		{"lfm2_moe", `, "use_expert_bias": false}`, "use_expert_bias is false; it must be true"},
		{"lfm2_moe", `, "num_experts_per_tok": 5}`, "num_experts_per_tok is 5; it must be at most num_experts"},
		{"qwen3_next", `, "linear_num_value_heads": 5}`, "linear_num_value_heads is 5; it must be a multiple of linear_num_key_heads"},
		{"qwen3_next", `, "num_experts_per_tok": 5}`, "num_experts_per_tok is 5; it must be at most num_experts"},
		{"qwen3_next", `, "attn_output_gate": false}`, "attn_output_gate is false; it must be true"},
		{"qwen3_next", `, "partial_rotary_factor": 0.5, "head_dim": 6}`, "partial_rotary_factor is 0.5; it must be such that an even number"},
		{"qwen3_next", `, "rope_scaling": {"rope_type": "yarn"}}`, `rope_type is "yarn"; it must be one of default`},
		{"qwen3_5", `}, "text_config": 3}`, "text_config is 3; it must be an object"},
		{"qwen3_next", `, "mtp_num_hidden_layers": -1}`, "mtp_num_hidden_layers is -1; it must be an integer from 0 to"},
		{"qwen3_next", `, "mtp_use_dedicated_embeddings": 1}`, "mtp_use_dedicated_embeddings is 1; it must be"},
		{"nemotron_h", `, "num_nextn_predict_layers": "1"}`, `num_nextn_predict_layers is "1"; it must be an integer from 0 to`},
		{"nemotron_h", `, "num_nextn_predict_layers": 1, "mtp_layers_block_type": ["attention", "x"]}`, `mtp_layers_block_type is ["attention","x"]; it must be M, *, - and E`},
		{"nemotron_h", `, "hybrid_override_pattern": null}`, "hybrid_override_pattern is null; it must be there"},
		{"nemotron_h", `, "hybrid_override_pattern": "M-X"}`, `hybrid_override_pattern is "M-X"; it must be M, *, - and E`},
		{"nemotron_h", `, "hybrid_override_pattern": ""}`, `hybrid_override_pattern is ""; it must be M, *, - and E`},
		{"nemotron_h", `, "layers_block_type": ["mamba", 3]}`, `layers_block_type is ["mamba",3]; it must be`},
		{"nemotron_h", `, "num_hidden_layers": 3}`, "num_hidden_layers is 3; it must be 4, the layers of hybrid_override_pattern, or absent"},
		{"nemotron_h", `, "n_groups": 4}`, "n_groups is 4; it must be a divisor of mamba_num_heads"},
		{"nemotron_h", `, "num_experts_per_tok": 5}`, "num_experts_per_tok is 5; it must be at most n_routed_experts"},
		{"nemotron_h", `, "n_group": 2}`, "n_group is 2; it must be at most 64 and divide the 4 experts into groups of at least 3, num_experts_per_tok"},
		{"nemotron_h", `, "topk_group": 2}`, "topk_group is 2; it must be at most n_group"},
		{"nemotron_h", `, "sliding_window": 128}`, "sliding_window is 128; it must be absent"},
	} {
		if _, err := read(hybrids[c[0]] + c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s %s\ngot  %v\nwant %s", c[0], c[1], err, c[2])
		}
	}
}

package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/models"
)

func ggufMamba(g *ggufConfig) {
	g.Set("model_type", "mamba")
	eps := g.float("attention.layer_norm_rms_epsilon")
	if v, _ := g.file.Value("mamba.ssm.dt_b_c_rms"); v == true {
		g.Set("model_type", "falcon_mamba")
		g.def("mixer_rms_eps", eps) // llama.cpp has one for all
	}
	g.Set("layer_norm_epsilon", eps)
	g.set("intermediate_size", g.int("ssm.inner_size", 1))
	g.set("state_size", g.int("ssm.state_size", 1))
	g.set("conv_kernel", g.int("ssm.conv_kernel", 1))
	g.set("time_step_rank", g.int("ssm.time_step_rank", 1))
	g.Set("use_bias", g.any("ssm_in.bias"))
	g.Set("use_conv_bias", g.any("ssm_conv1d.bias"))
}

func ggufMamba2(g *ggufConfig) {
	inner, heads, groups := g.int("ssm.inner_size", 1), g.int("ssm.time_step_rank", 1), g.optional("ssm.group_count", 1)
	g.Set("model_type", "mamba2")
	g.Set("layer_norm_epsilon", g.float("attention.layer_norm_rms_epsilon"))
	g.Set("expand", float64(inner)/g.Value("hidden_size").(float64))
	g.set("num_heads", heads)
	g.set("head_dim", g.divided("ssm.inner_size", inner, heads))
	g.set("n_groups", groups)
	g.def(models.NormGroupsKey, float64(groups)) // as mamba_ssm and llama.cpp have it
	g.set("state_size", g.int("ssm.state_size", 1))
	g.set("conv_kernel", g.int("ssm.conv_kernel", 1))
	g.Set("use_bias", g.any("ssm_in.bias"))
	g.Set("use_conv_bias", g.any("ssm_conv1d.bias"))
}

// like refuses a number that is there and not that of another key.
func (g *ggufConfig) like(key, other string) {
	if a, b := g.optional(key, g.int(other, 0)), g.int(other, 0); a != b {
		g.wrong(g.arch+"."+key, fmt.Sprintf("is %d, and %s is %d; Krait's family has one size for both", a, other, b))
	}
}

func (g *ggufConfig) divided(key string, n, by int) int {
	if n%by != 0 {
		g.wrong(g.arch+"."+key, fmt.Sprintf("is %d, which the %d heads do not divide", n, by))
	}
	return n / by
}

func ggufJamba(g *ggufConfig) {
	g.Set("model_type", "jamba")
	g.Set("rms_norm_eps", g.float("attention.layer_norm_rms_epsilon"))
	g.set("intermediate_size", g.int("feed_forward_length", 1))
	g.set("num_attention_heads", g.same("attention.head_count"))
	kv := g.layers("attention.head_count_kv")
	g.set("num_key_value_heads", max(1, g.same("attention.head_count_kv")))
	g.period("attn_layer", "attention.head_count_kv is not 0", kv)
	g.Set("mamba_expand", float64(g.int("ssm.inner_size", 1))/g.Value("hidden_size").(float64))
	g.set("mamba_d_state", g.int("ssm.state_size", 1))
	g.set("mamba_d_conv", g.int("ssm.conv_kernel", 1))
	g.set("mamba_dt_rank", g.int("ssm.time_step_rank", 1))
	g.Set("mamba_proj_bias", g.any("ssm_in.bias"))
	g.Set("mamba_conv_bias", g.any("ssm_conv1d.bias"))
	g.set("num_experts", max(1, g.optional("expert_count", 1)))
	g.set("num_experts_per_tok", max(1, g.optional("expert_used_count", 1)))
	routed := make([]int, len(kv))
	for i := range routed {
		if g.has(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", i)) {
			routed[i] = 1
		}
	}
	g.period("expert_layer", "there is a ffn_gate_inp.weight", routed)
}

// period writes which layers are something as the family has it: every so many, from one
// on. What a config.json says stays where it says the same.
func (g *ggufConfig) period(prefix, what string, layers []int) {
	var at []int
	for i, n := range layers {
		if n != 0 {
			at = append(at, i)
		}
	}
	offset, period := len(layers), len(layers)+1 // none
	if len(at) > 0 {
		offset, period = at[0], len(layers)
	}
	if len(at) > 1 {
		period = at[1] - at[0]
	}
	if p, ok := g.Value(prefix + "_period").(float64); ok && g.kept && p >= 1 && p < models.MaxDim {
		if o, ok := g.Value(prefix + "_offset").(float64); ok && slices.Equal(at, everyOf(len(layers), int(p), int(o))) {
			return
		}
	}
	if !slices.Equal(at, everyOf(len(layers), period, offset)) || offset >= period {
		g.wrong(g.arch, fmt.Sprintf("the layers in which %s are %v; Krait's family has every n-th, from one below n on", what, at))
	}
	g.set(prefix+"_period", period)
	g.set(prefix+"_offset", offset)
}

func everyOf(n, period, offset int) (at []int) {
	for i := range n {
		if i%period == offset {
			at = append(at, i)
		}
	}
	return at
}

func ggufFalconH1(g *ggufConfig) {
	inner, heads := g.int("ssm.inner_size", 1), g.int("ssm.time_step_rank", 1)
	g.Set("model_type", "falcon_h1")
	g.Set("rms_norm_eps", g.float("attention.layer_norm_rms_epsilon"))
	g.set("intermediate_size", g.same("feed_forward_length"))
	g.set("num_attention_heads", g.same("attention.head_count"))
	g.set("num_key_value_heads", g.same("attention.head_count_kv"))
	g.set("head_dim", g.int("attention.key_length", 1))
	g.Set("rope_theta", g.float("rope.freq_base"))
	g.like("attention.value_length", "attention.key_length")
	g.like("rope.dimension_count", "attention.key_length")
	g.set("mamba_d_ssm", inner)
	g.Set("mamba_expand", float64(inner)/g.Value("hidden_size").(float64))
	g.set("mamba_n_heads", heads)
	g.set("mamba_d_head", g.divided("ssm.inner_size", inner, heads))
	g.set("mamba_n_groups", g.optional("ssm.group_count", 1))
	g.set("mamba_d_state", g.int("ssm.state_size", 1))
	g.set("mamba_d_conv", g.int("ssm.conv_kernel", 1))
	g.Set("mamba_rms_norm", g.any("ssm_norm.weight"))
	g.def("mamba_norm_before_gate", false)
	for key, tensor := range map[string]string{"mamba_proj_bias": "ssm_in.bias", "projectors_bias": "ssm_out.bias", "mamba_conv_bias": "ssm_conv1d.bias",
		"attention_bias": "attn_q.bias", "mlp_bias": "ffn_gate.bias"} {
		g.Set(key, g.any(tensor))
	}
	// The converter multiplies the matrices with all of these.
	for _, key := range falconScales {
		g.Set(key, 1.0)
	}
	g.Set("ssm_multipliers", []any{1.0, 1.0, 1.0, 1.0, 1.0})
	g.Set("mlp_multipliers", []any{1.0, 1.0})
}

var falconScales = []string{"attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "key_multiplier", "embedding_multiplier", "lm_head_multiplier"}

func ggufGranite(g *ggufConfig) {
	inner, heads, groups := g.int("ssm.inner_size", 1), g.int("ssm.time_step_rank", 1), g.optional("ssm.group_count", 1)
	queries := max(1, g.same("attention.head_count"))
	head := g.divided("embedding_length", g.int("embedding_length", 1), queries)
	g.Set("model_type", "granitemoehybrid")
	g.Set("rms_norm_eps", g.float("attention.layer_norm_rms_epsilon"))
	g.set("num_attention_heads", queries)
	g.set("num_key_value_heads", max(1, g.same("attention.head_count_kv")))
	var kinds []any
	for _, n := range g.layers("attention.head_count_kv") {
		kinds = append(kinds, map[bool]string{true: "attention", false: "mamba"}[n > 0])
	}
	g.Set("layer_types", kinds)
	g.Set("attention_multiplier", 1/math.Sqrt(float64(head)))
	for key, scale := range map[string]string{"attention_multiplier": "attention.scale", "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale"} {
		if _, ok := g.file.Value(g.arch + "." + scale); ok {
			g.Set(key, g.float(scale))
		}
	}
	g.Set("position_embedding_type", "rope")
	if v, ok := g.file.Value(g.arch + ".rope.scaling.finetuned"); ok && v == false {
		g.Set("position_embedding_type", "nope")
	} else {
		if g.Set("rope_theta", 10000.0); g.scale("rope.freq_base") != 1 {
			g.Set("rope_theta", g.float("rope.freq_base"))
		}
		if n := g.optional("rope.dimension_count", head); n != head {
			g.wrong(g.arch+".rope.dimension_count", fmt.Sprintf("is %d, and heads have %d channels; Krait's family turns all", n, head))
		}
	}
	g.Set("mamba_expand", float64(inner)/g.Value("hidden_size").(float64))
	g.set("mamba_n_heads", heads)
	g.set("mamba_d_head", g.divided("ssm.inner_size", inner, heads))
	g.set("mamba_n_groups", groups)
	g.def(models.NormGroupsKey, float64(groups))
	g.set("mamba_d_state", g.int("ssm.state_size", 1))
	g.set("mamba_d_conv", g.int("ssm.conv_kernel", 1))
	g.Set("attention_bias", g.any("attn_q.bias"))
	g.Set("mamba_proj_bias", g.any("ssm_in.bias"))
	g.Set("mamba_conv_bias", g.any("ssm_conv1d.bias"))
	experts := g.optional("expert_count", 0)
	g.set("num_local_experts", experts)
	g.set("num_experts_per_tok", g.optional("expert_used_count", 0))
	g.set("intermediate_size", max(1, g.rows("ffn_gate_exps.weight", 1), g.rows("ffn_gate.weight", 0)))
	g.set("shared_intermediate_size", max(1, g.rows("ffn_gate_shexp.weight", 0), g.rows("ffn_gate.weight", 0)))
}

// rows is an axis of a tensor in the first block that has it; 0 where none does.
func (g *ggufConfig) rows(rest string, axis int) int {
	for i := range int(g.Value("num_hidden_layers").(float64)) {
		if t, ok := g.file.Tensor(fmt.Sprintf("blk.%d.%s", i, rest)); ok && axis < len(t.Shape) {
			return t.Shape[axis]
		}
	}
	return 0
}

func ggufNemotron(g *ggufConfig) {
	inner, heads := g.int("ssm.inner_size", 1), g.int("ssm.time_step_rank", 1)
	g.Delete("hidden_act")
	g.Set("model_type", "nemotron_h")
	eps := "attention.layer_norm_rms_epsilon"
	if _, ok := g.file.Value(g.arch + "." + eps); !ok {
		eps = "attention.layer_norm_epsilon"
	}
	g.Set("layer_norm_epsilon", g.float(eps))
	pattern := ""
	kv, ff := g.layers("attention.head_count_kv"), g.layers("feed_forward_length")
	for i := range kv {
		switch {
		case ff[i] == 0 && kv[i] == 0:
			pattern += "M"
		case ff[i] == 0:
			pattern += "*"
		case g.has(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", i)):
			pattern += "E"
		default:
			pattern += "-"
		}
	}
	g.Delete("layers_block_type")
	g.Set("hybrid_override_pattern", pattern)
	g.set("num_attention_heads", max(1, g.same("attention.head_count")))
	g.set("num_key_value_heads", max(1, g.same("attention.head_count_kv")))
	g.like("attention.value_length", "attention.key_length")
	g.set("head_dim", g.int("attention.key_length", 1))
	g.set("mamba_num_heads", heads)
	g.set("mamba_head_dim", g.divided("ssm.inner_size", inner, heads))
	g.set("n_groups", g.optional("ssm.group_count", 1))
	g.set("ssm_state_size", g.int("ssm.state_size", 1))
	g.set("conv_kernel", g.int("ssm.conv_kernel", 1))
	g.Set("use_bias", g.any("ssm_in.bias"))
	g.Set("use_conv_bias", g.any("ssm_conv1d.bias"))
	g.Set("attention_bias", g.any("attn_q.bias"))
	g.Set("mlp_bias", g.any("ffn_up.bias"))
	if n := g.rows("ffn_up.weight", 0); n > 0 {
		g.set("intermediate_size", n)
	}
	if !strings.Contains(pattern, "E") {
		return
	}
	if n := g.optional("expert_group_count", 1); n > 1 {
		g.wrong(g.arch+".expert_group_count", fmt.Sprintf("is %d; Krait chooses among the experts of all groups", n))
	}
	g.set("n_routed_experts", g.int("expert_count", 1))
	g.set("num_experts_per_tok", g.same("expert_used_count"))
	g.set("moe_intermediate_size", g.rows("ffn_up_exps.weight", 1))
	g.set("moe_shared_expert_intermediate_size", g.rows("ffn_up_shexp.weight", 0))
	if n := g.rows("ffn_latent_down.weight", 0); n > 0 {
		g.set("moe_latent_size", n)
	}
	v, _ := g.file.Value(g.arch + ".expert_weights_norm")
	g.Set("norm_topk_prob", v == true)
	g.Set("routed_scaling_factor", g.scale("expert_weights_scale"))
	g.set("n_group", 1)
	g.set("topk_group", 1)
}

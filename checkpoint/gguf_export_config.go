package checkpoint

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/models"
)

// common are the keys of all architectures.
func (e *ggufExport) common() {
	embeddings, _ := e.weights.Look(e.embeddings())
	if len(embeddings.Shape) != 2 {
		e.fail("the checkpoint has no embedding")
		return
	}
	e.int("context_length", e.config.Int("max_position_embeddings", 1<<20, 1))
	e.int("embedding_length", embeddings.Shape[1])
	e.int("block_count", e.Model.Layers)
	e.int("vocab_size", e.Model.Vocab)
	if act := e.config.OneOf("hidden_act", "silu", models.Activations); act != "silu" {
		e.note("hidden_act is %s; other programs take silu", act)
	}
}

// selective are the keys of a selective mixer, and SSD those of the other.
func (e *ggufExport) selective(under string) {
	e.int("ssm.conv_kernel", e.shape(under+"conv1d.weight", 3)[len(e.shape(under+"conv1d.weight", 3))-1])
	inner := e.shape(under+"D", 1)[0]
	e.int("ssm.inner_size", inner)
	e.int("ssm.time_step_rank", e.shape(under+"dt_proj.weight", 2)[1])
	e.int("ssm.state_size", max(e.shape(under+"A_log", 2)[1], e.shape(under+"A", 2)[1]))
	if a, _ := e.weights.Look(e.embeddings()); len(a.Shape) == 2 && inner != 2*a.Shape[1] {
		e.note("the inner width is %d, and the model's %d; llama.cpp loads only twice the width", inner, a.Shape[1])
	}
	e.biases(under)
}

func (e *ggufExport) ssd(under string, groups, state int) {
	e.int("ssm.conv_kernel", e.shape(under+"conv1d.weight", 3)[len(e.shape(under+"conv1d.weight", 3))-1])
	e.int("ssm.inner_size", e.shape(under+"out_proj.weight", 2)[1])
	e.int("ssm.time_step_rank", e.shape(under+"D", 1)[0])
	e.int("ssm.state_size", state)
	e.int("ssm.group_count", groups)
	e.biases(under)
}

func (e *ggufExport) biases(under string) {
	if e.has(under+"in_proj.bias") || e.has(under+"out_proj.bias") {
		e.note("in_proj or out_proj has a bias, of which llama.cpp knows nothing: it does not load the file")
	}
	if !e.has(under + "conv1d.bias") {
		e.note("the convolution has no bias; llama.cpp loads only files with one")
	}
}

func exportMamba(e *ggufExport) {
	c := e.config
	e.int("feed_forward_length", 0)
	e.int("attention.head_count", 0)
	e.selective("mixer.")
	eps := c.Positive("layer_norm_epsilon", 1e-5)
	e.float("attention.layer_norm_rms_epsilon", eps)
	e.put("mamba.ssm.dt_b_c_rms", e.Model.Family == "falcon_mamba")
	if e.Model.Family == "falcon_mamba" && c.Positive("mixer_rms_eps", 1e-6) != eps {
		e.note("mixer_rms_eps is not layer_norm_epsilon; other programs take that for both")
	}
}

func exportMamba2(e *ggufExport) {
	c := e.config
	e.int("feed_forward_length", 0)
	e.int("attention.head_count", 0)
	groups := c.Int("n_groups", 8, 1)
	e.ssd("mixer.", groups, c.Int("state_size", 128, 1))
	e.float("attention.layer_norm_rms_epsilon", c.Positive("layer_norm_epsilon", 1e-5))
	if c.Int(models.NormGroupsKey, 1, 1) != groups {
		e.note("the gated norm is over all channels, as Hugging Face's code has it; other programs norm each of the %d groups, as the original code did", groups)
	}
	e.limits("time_step_limit")
}

// limits notes what clamps dt.
func (e *ggufExport) limits(key string) {
	if l := e.config.Range(key); l != [2]float64{0, math.Inf(1)} {
		e.note("%s is %v; other programs do not clamp dt", key, l)
	}
}

func (e *ggufExport) attention(kv []uint32) {
	e.int("attention.head_count", e.config.Int("num_attention_heads", 32, 1))
	if kv != nil {
		list := make([]int32, len(kv))
		for i, n := range kv {
			list[i] = int32(n)
		}
		e.put(e.arch+".attention.head_count_kv", list)
	}
}

// groups is how many heads of keys each layer has: none where there is no attention.
func (e *ggufExport) groups(rest string, heads int) []uint32 {
	out := make([]uint32, e.Model.Layers)
	for i := range out {
		if _, ok := e.weights.Look(fmt.Sprintf("%slayers.%d.%s", e.table.prefix, i, rest)); ok {
			out[i] = uint32(heads)
		}
	}
	return out
}

func exportJamba(e *ggufExport) {
	c := e.config
	e.int("feed_forward_length", c.Int("intermediate_size", 14336, 1))
	e.attention(e.groups("self_attn.k_proj.weight", c.Int("num_key_value_heads", 8, 1)))
	e.selective("mamba.")
	e.float("attention.layer_norm_rms_epsilon", c.Positive("rms_norm_eps", 1e-6))
	e.int("expert_count", c.Count("num_experts", 16, 1))
	e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 1))
}

func exportFalconH1(e *ggufExport) {
	c := e.config
	hidden := c.Int("hidden_size", 4096, 1)
	heads := c.Int("num_attention_heads", 32, 1)
	e.int("feed_forward_length", c.Int("intermediate_size", 14336, 1))
	e.int("attention.head_count", heads)
	e.int("attention.head_count_kv", c.Int("num_key_value_heads", 8, 1))
	size := c.Int("head_dim", hidden/heads, 1)
	e.int("attention.key_length", size)
	e.int("attention.value_length", size)
	theta, _ := c.Rotary(100000, 1)
	e.float("rope.freq_base", theta)
	e.ssd("mamba.", c.Int("mamba_n_groups", 1, 1), c.Int("mamba_d_state", 256, 1))
	e.float("attention.layer_norm_rms_epsilon", c.Positive("rms_norm_eps", 1e-5))
	if e.has("mamba.norm.weight") && c.Bool("mamba_norm_before_gate", true) {
		e.note("the norm is before the gate; other programs have it after")
	}
	if e.has("self_attn.o_proj.bias") || e.has("feed_forward.down_proj.bias") {
		e.note("there are biases whose factors llama.cpp's converter leaves out; they are multiplied here")
	}
	e.scales = falconFactors(c)
}

func exportGranite(e *ggufExport) {
	c := e.config
	experts := c.Count("num_local_experts", 8, 0)
	e.not = []string{"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"}
	shared := c.Int("shared_intermediate_size", 1024, 1)
	if experts > 0 {
		e.not = []string{"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}
		e.int("feed_forward_length", c.Int("intermediate_size", 11008, 1))
		e.int("expert_shared_feed_forward_length", shared)
		e.int("expert_count", experts)
		e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 0))
	} else {
		e.int("feed_forward_length", shared)
	}
	heads := c.Int("num_attention_heads", 32, 1)
	e.heads(heads, c.Int("num_key_value_heads", heads, 1), "self_attn.")
	e.float("attention.layer_norm_rms_epsilon", c.Positive("rms_norm_eps", 1e-6))
	e.float("attention.scale", c.Scale("attention_multiplier"))
	e.float("embedding_scale", c.Scale("embedding_multiplier"))
	e.float("residual_scale", c.Scale("residual_multiplier"))
	e.float("logit_scale", c.Positive("logits_scaling", 1))
	turned := c.OneOf("position_embedding_type", "nope", map[string]string{"rope": "rope", "nope": "nope"}) == "rope"
	e.put(e.arch+".rope.scaling.finetuned", turned)
	if turned {
		theta, _ := c.Rotary(10000, 1)
		e.float("rope.freq_base", theta)
	}
	groups := c.Int("mamba_n_groups", 1, 1)
	e.ssd("mamba.", groups, c.Int("mamba_d_state", 256, 1))
	if c.Int(models.NormGroupsKey, 1, 1) != groups {
		e.note("the gated norm is over all channels, as Hugging Face's code has it; other programs norm each of the %d groups", groups)
	}
	e.limits("time_step_limit")
}

// heads are the keys of attention where some layers have it, and what turns its rows.
func (e *ggufExport) heads(queries, groups int, under string) {
	kv := e.groups(under+"k_proj.weight", groups)
	e.attention(kv)
	e.table.heads = func(layer int) [2]int { return [2]int{queries, int(kv[layer])} }
}

func exportNemotron(e *ggufExport) {
	c := e.config
	e.heads(c.Int("num_attention_heads", 32, 1), c.Int("num_key_value_heads", 8, 1), "mixer.")
	head := c.Int(c.Either("head_dim", "attention_head_dim"), 128, 1)
	e.int("attention.key_length", head)
	e.int("attention.value_length", head)
	eps := c.Positive("layer_norm_epsilon", 1e-5)
	e.float("attention.layer_norm_rms_epsilon", eps)
	e.float("attention.layer_norm_epsilon", eps)
	e.ssd("mixer.", c.Int("n_groups", 8, 1), c.Int("ssm_state_size", 128, 1))
	e.limits("time_step_limit")
	inner := make([]int32, e.Model.Layers)
	for i := range inner {
		for rest, axis := range map[string]int{"mixer.up_proj.weight": 0, "mixer.experts.0.up_proj.weight": 0} {
			if a, ok := e.weights.Look(fmt.Sprintf("backbone.layers.%d.%s", i, rest)); ok {
				inner[i] = int32(a.Shape[axis])
			}
		}
	}
	e.put(e.arch+".feed_forward_length", inner)
	if act := c.OneOf("mlp_hidden_act", "relu2", models.Activations); act != models.Activations["relu2"] {
		e.note("mlp_hidden_act is %s; other programs take relu2", act)
	}
	if e.arch == "nemotron_h" {
		return
	}
	e.int("expert_count", e.shape("mixer.gate.weight", 2)[0])
	e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 1))
	e.int("expert_feed_forward_length", e.shape("mixer.experts.0.up_proj.weight", 2)[0])
	e.int("expert_shared_feed_forward_length", e.shape("mixer.shared_experts.up_proj.weight", 2)[0])
	e.int("expert_shared_count", 1)
	e.put(e.arch+".expert_weights_norm", c.Bool("norm_topk_prob", true))
	e.float("expert_weights_scale", c.Scale("routed_scaling_factor"))
	e.int("expert_group_count", 1)
	if n := c.Int("moe_latent_size", 0, 1); n > 0 {
		e.int("moe_latent_size", n)
	}
}

package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/models"
)

// A ggufKey is a row of an architecture's table of metadata: read sets keys of the config, and
// write is the inverse. Either may be nil.
type ggufKey struct {
	read  func(g *ggufConfig)
	write func(e *ggufExport)
}

// modelType is the config's model_type.
func modelType(family string) ggufKey {
	return ggufKey{read: func(g *ggufConfig) { g.Set("model_type", family) }}
}

// uniform is a size that all layers share: one number, or a list of equal ones; def is the config's
// default.
func uniform(key, config string, def int) ggufKey {
	return ggufKey{
		func(g *ggufConfig) { g.set(config, g.same(key)) },
		func(e *ggufExport) { e.int(key, e.config.Int(config, def, 1)) },
	}
}

// factor is a number that may be absent on both sides: it is 1 in the config by default.
func factor(key, config string) ggufKey {
	return ggufKey{
		func(g *ggufConfig) {
			if _, ok := g.file.Value(g.arch + "." + key); ok {
				g.Set(config, g.float(key))
			}
		},
		func(e *ggufExport) { e.float(key, e.config.Scale(config)) },
	}
}

// headSize is that of attention, by default as the family says.
func headSize(def func(c *models.Config) (key string, size int)) ggufKey {
	return ggufKey{
		func(g *ggufConfig) {
			g.like("attention.value_length", "attention.key_length")
			g.set("head_dim", g.int("attention.key_length", 1))
		},
		func(e *ggufExport) {
			key, size := def(e.config)
			size = e.config.Int(key, size, 1)
			e.int("attention.key_length", size)
			e.int("attention.value_length", size)
		},
	}
}

// epsilon is that of the norms.
func epsilon(config string, def float64) ggufKey {
	const key = "attention.layer_norm_rms_epsilon"
	return ggufKey{
		func(g *ggufConfig) { g.Set(config, g.float(key)) },
		func(e *ggufExport) { e.float(key, e.config.Positive(config, def)) },
	}
}

// presence sets booleans of the config by the tensors of the file.
func presence(tensors map[string]string) ggufKey {
	return ggufKey{read: func(g *ggufConfig) {
		for config, tensor := range tensors {
			g.Set(config, g.any(tensor))
		}
	}}
}

// noAttention are keys that llama.cpp reads of models without attention, too.
var noAttention = ggufKey{write: func(e *ggufExport) {
	e.int("feed_forward_length", 0)
	e.int("attention.head_count", 0)
}}

// headCounts are the heads of queries and, for each layer, of keys and values; kv is the config's
// default, 0 for as many as queries. The config has at least least heads of queries.
func headCounts(under string, kv, least int) ggufKey {
	return ggufKey{
		func(g *ggufConfig) {
			g.set("num_attention_heads", max(least, g.same("attention.head_count")))
			g.set("num_key_value_heads", max(1, g.same("attention.head_count_kv")))
		},
		func(e *ggufExport) {
			queries := e.config.Int("num_attention_heads", 32, 1)
			if kv == 0 {
				kv = queries
			}
			list := e.groups(under+"k_proj.weight", e.config.Int("num_key_value_heads", kv, 1))
			e.int("attention.head_count", queries)
			e.put(e.arch+".attention.head_count_kv", list)
			e.table.heads = func(layer int) [2]int { return [2]int{queries, int(list[layer])} }
		},
	}
}

// mixer names the keys of a config that describe the state-space mixers, without those that the
// family lacks. The numbers are defaults.
type mixer struct {
	inner, expand       string // inner width, and its ratio to the hidden width
	state, conv, rank   string
	heads, head, groups string
	groupsDef, stateDef int
	groupedNorm, clamps bool // by groups of channels, with dt clamped
}

func (m *mixer) common(g *ggufConfig) {
	inner := g.int("ssm.inner_size", 1)
	if m.inner != "" {
		g.set(m.inner, inner)
	}
	if m.expand != "" {
		g.Set(m.expand, float64(inner)/g.Value("hidden_size").(float64))
	}
	g.set(m.state, g.int("ssm.state_size", 1))
	g.set(m.conv, g.int("ssm.conv_kernel", 1))
}

// kernel writes the width of the convolution.
func (e *ggufExport) kernel(under string) {
	shape := e.shape(under+"conv1d.weight", 3)
	e.int("ssm.conv_kernel", shape[len(shape)-1])
}

// selective are the keys of a selective mixer.
func (m mixer) selective(under string) ggufKey {
	return ggufKey{
		func(g *ggufConfig) {
			m.common(g)
			g.set(m.rank, g.int("ssm.time_step_rank", 1))
		},
		func(e *ggufExport) {
			e.kernel(under)
			inner := e.shape(under+"D", 1)[0]
			e.int("ssm.inner_size", inner)
			e.int("ssm.time_step_rank", e.shape(under+"dt_proj.weight", 2)[1])
			e.int("ssm.state_size", max(e.shape(under+"A_log", 2)[1], e.shape(under+"A", 2)[1]))
			if a, _ := e.weights.Look(e.embeddings()); len(a.Shape) == 2 && inner != 2*a.Shape[1] {
				e.note("the inner width is %d, and the model's %d; llama.cpp loads only twice the width", inner, a.Shape[1])
			}
			e.biases(under)
		},
	}
}

// ssd are the keys of an SSD mixer.
func (m mixer) ssd(under string) ggufKey {
	return ggufKey{
		func(g *ggufConfig) {
			m.common(g)
			heads, groups := g.int("ssm.time_step_rank", 1), g.optional("ssm.group_count", 1)
			g.set(m.heads, heads)
			g.set(m.head, g.divided("ssm.inner_size", g.int("ssm.inner_size", 1), heads))
			g.set(m.groups, groups)
			if m.groupedNorm {
				g.def(models.NormGroupsKey, float64(groups)) // as mamba_ssm and llama.cpp have it
			}
		},
		func(e *ggufExport) {
			groups := e.config.Int(m.groups, m.groupsDef, 1)
			e.kernel(under)
			e.int("ssm.inner_size", e.shape(under+"out_proj.weight", 2)[1])
			e.int("ssm.time_step_rank", e.shape(under+"D", 1)[0])
			e.int("ssm.state_size", e.config.Int(m.state, m.stateDef, 1))
			e.int("ssm.group_count", groups)
			e.biases(under)
			if m.groupedNorm && e.config.Int(models.NormGroupsKey, 1, 1) != groups {
				e.note("the gated norm is over all channels, as Hugging Face's code has it; other programs norm each of the %d groups, as mamba_ssm does", groups)
			}
			if m.clamps {
				e.limits("time_step_limit")
			}
		},
	}
}

// The tables of the architectures: rows that several have, and what only one has.
var (
	ggufMamba = []ggufKey{
		modelType("mamba"), noAttention,
		mixer{inner: "intermediate_size", state: "state_size", conv: "conv_kernel", rank: "time_step_rank"}.selective("mixer."),
		epsilon("layer_norm_epsilon", 1e-5), {falconMamba, exportFalconMamba},
		presence(map[string]string{"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"}),
	}
	ggufMamba2 = []ggufKey{
		modelType("mamba2"), noAttention,
		mixer{expand: "expand", state: "state_size", conv: "conv_kernel", heads: "num_heads", head: "head_dim", groups: "n_groups",
			groupsDef: 8, stateDef: 128, groupedNorm: true, clamps: true}.ssd("mixer."),
		epsilon("layer_norm_epsilon", 1e-5),
		presence(map[string]string{"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"}),
	}
	ggufJamba = []ggufKey{
		modelType("jamba"), epsilon("rms_norm_eps", 1e-6), uniform("feed_forward_length", "intermediate_size", 14336),
		headCounts("self_attn.", 8, 0),
		mixer{expand: "mamba_expand", state: "mamba_d_state", conv: "mamba_d_conv", rank: "mamba_dt_rank"}.selective("mamba."),
		presence(map[string]string{"mamba_proj_bias": "ssm_in.bias", "mamba_conv_bias": "ssm_conv1d.bias"}), {jambaLayers, exportJamba},
	}
	ggufFalconH1 = []ggufKey{
		modelType("falcon_h1"), epsilon("rms_norm_eps", 1e-5), uniform("feed_forward_length", "intermediate_size", 14336),
		uniform("attention.head_count", "num_attention_heads", 32), uniform("attention.head_count_kv", "num_key_value_heads", 8),
		headSize(func(c *models.Config) (string, int) {
			return "head_dim", c.Int("hidden_size", 4096, 1) / c.Int("num_attention_heads", 32, 1)
		}),
		mixer{inner: "mamba_d_ssm", expand: "mamba_expand", state: "mamba_d_state", conv: "mamba_d_conv", heads: "mamba_n_heads",
			head: "mamba_d_head", groups: "mamba_n_groups", groupsDef: 1, stateDef: 256}.ssd("mamba."),
		presence(map[string]string{"mamba_rms_norm": "ssm_norm.weight", "mamba_proj_bias": "ssm_in.bias", "projectors_bias": "ssm_out.bias",
			"mamba_conv_bias": "ssm_conv1d.bias", "attention_bias": "attn_q.bias", "mlp_bias": "ffn_gate.bias"}),
		{falconH1, exportFalconH1},
	}
	ggufGranite = []ggufKey{
		modelType("granitemoehybrid"), epsilon("rms_norm_eps", 1e-6), headCounts("self_attn.", 0, 1),
		{granite, exportGranite},
		factor("attention.scale", "attention_multiplier"), factor("embedding_scale", "embedding_multiplier"),
		factor("residual_scale", "residual_multiplier"), factor("logit_scale", "logits_scaling"),
		mixer{expand: "mamba_expand", state: "mamba_d_state", conv: "mamba_d_conv", heads: "mamba_n_heads", head: "mamba_d_head",
			groups: "mamba_n_groups", groupsDef: 1, stateDef: 256, groupedNorm: true, clamps: true}.ssd("mamba."),
		presence(map[string]string{"attention_bias": "attn_q.bias", "mamba_proj_bias": "ssm_in.bias", "mamba_conv_bias": "ssm_conv1d.bias"}),
	}
	ggufNemotron = []ggufKey{
		modelType("nemotron_h"), headCounts("mixer.", 8, 1),
		headSize(func(c *models.Config) (string, int) { return c.Either("head_dim", "attention_head_dim"), 128 }),
		mixer{state: "ssm_state_size", conv: "conv_kernel", heads: "mamba_num_heads", head: "mamba_head_dim", groups: "n_groups",
			groupsDef: 8, stateDef: 128, clamps: true}.ssd("mixer."),
		presence(map[string]string{"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias", "attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"}),
		{nemotron, exportNemotron},
	}
)

func falconMamba(g *ggufConfig) {
	if v, _ := g.file.Value("mamba.ssm.dt_b_c_rms"); v == true {
		g.Set("model_type", "falcon_mamba")
		g.def("mixer_rms_eps", g.float("attention.layer_norm_rms_epsilon")) // llama.cpp has one for all
	}
}

func exportFalconMamba(e *ggufExport) {
	is := e.Model.Family == "falcon_mamba"
	e.put("mamba.ssm.dt_b_c_rms", is)
	if is && e.config.Positive("mixer_rms_eps", 1e-6) != e.config.Positive("layer_norm_epsilon", 1e-5) {
		e.note("mixer_rms_eps is not layer_norm_epsilon; other programs take that for both")
	}
}

func jambaLayers(g *ggufConfig) {
	kv := g.layers("attention.head_count_kv")
	g.period("attn_layer", "attention.head_count_kv is not 0", kv)
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

func exportJamba(e *ggufExport) {
	c := e.config
	e.int("expert_count", c.Count("num_experts", 16, 1))
	e.int("expert_used_count", c.Int("num_experts_per_tok", 2, 1))
}

func falconH1(g *ggufConfig) {
	g.Set("rope_theta", g.float("rope.freq_base"))
	g.like("rope.dimension_count", "attention.key_length")
	g.def("mamba_norm_before_gate", false)
	// The converter multiplies the matrices with all of these.
	for _, key := range falconScales {
		g.Set(key, 1.0)
	}
	g.Set("ssm_multipliers", []any{1.0, 1.0, 1.0, 1.0, 1.0})
	g.Set("mlp_multipliers", []any{1.0, 1.0})
}

var falconScales = []string{"attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "key_multiplier", "embedding_multiplier", "lm_head_multiplier"}

func exportFalconH1(e *ggufExport) {
	c := e.config
	theta, _ := c.Rotary(100000, 1)
	e.float("rope.freq_base", theta)
	if e.has("mamba.norm.weight") && c.Bool("mamba_norm_before_gate", true) {
		e.note("the norm is before the gate; other programs have it after")
	}
	if e.has("self_attn.o_proj.bias") || e.has("feed_forward.down_proj.bias") {
		e.note("there are biases whose factors llama.cpp's converter leaves out; they are multiplied here")
	}
	e.scales = falconFactors(c)
}

func granite(g *ggufConfig) {
	queries := int(g.Value("num_attention_heads").(float64))
	head := g.divided("embedding_length", g.int("embedding_length", 1), queries)
	var kinds []any
	for _, n := range g.layers("attention.head_count_kv") {
		kinds = append(kinds, map[bool]string{true: "attention", false: "mamba"}[n > 0])
	}
	g.Set("layer_types", kinds)
	g.Set("attention_multiplier", 1/math.Sqrt(float64(head)))
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
	experts := g.optional("expert_count", 0)
	g.set("num_local_experts", experts)
	g.set("num_experts_per_tok", g.optional("expert_used_count", 0))
	g.set("intermediate_size", max(1, g.rows("ffn_gate_exps.weight", 1), g.rows("ffn_gate.weight", 0)))
	g.set("shared_intermediate_size", max(1, g.rows("ffn_gate_shexp.weight", 0), g.rows("ffn_gate.weight", 0)))
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
	turned := c.OneOf("position_embedding_type", "nope", map[string]string{"rope": "rope", "nope": "nope"}) == "rope"
	e.put(e.arch+".rope.scaling.finetuned", turned)
	if turned {
		theta, _ := c.Rotary(10000, 1)
		e.float("rope.freq_base", theta)
	}
}

func nemotron(g *ggufConfig) {
	g.Delete("hidden_act")
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

func exportNemotron(e *ggufExport) {
	c := e.config
	eps := c.Positive("layer_norm_epsilon", 1e-5)
	e.float("attention.layer_norm_rms_epsilon", eps)
	e.float("attention.layer_norm_epsilon", eps)
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

// period sets PREFIX_period and PREFIX_offset such that i % period == offset selects the layers.
// It leaves equivalent values of the embedded config.json as they are.
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

// rows is an axis of a tensor in the first block that has it; 0 where none does.
func (g *ggufConfig) rows(rest string, axis int) int {
	for i := range int(g.Value("num_hidden_layers").(float64)) {
		if t, ok := g.file.Tensor(fmt.Sprintf("blk.%d.%s", i, rest)); ok && axis < len(t.Shape) {
			return t.Shape[axis]
		}
	}
	return 0
}

// common are the keys of all architectures.
func (e *ggufExport) common() {
	embeddings, _ := e.weights.Look(e.embeddings())
	if len(embeddings.Shape) != 2 {
		e.fail("the checkpoint has no embedding")
		return
	}
	e.int("context_length", e.config.Int("max_position_embeddings", 1<<20, 1))
	e.int("embedding_length", embeddings.Shape[1])
	if e.mtp {
		e.int("block_count", e.Model.Layers+1)
		e.int("nextn_predict_layers", 1)
	} else {
		e.int("block_count", e.Model.Layers)
	}
	e.int("vocab_size", e.Model.Vocab)
	if act := e.config.OneOf("hidden_act", "silu", models.Activations); act != "silu" {
		e.note("hidden_act is %s; other programs take silu", act)
	}
}

func (e *ggufExport) biases(under string) {
	if e.has(under+"in_proj.bias") || e.has(under+"out_proj.bias") {
		e.note("in_proj or out_proj has a bias, of which llama.cpp knows nothing: it does not load the file")
	}
	if !e.has(under + "conv1d.bias") {
		e.note("the convolution has no bias; llama.cpp loads only files with one")
	}
}

// limits notes what clamps dt.
func (e *ggufExport) limits(key string) {
	if l := e.config.Range(key); l != [2]float64{0, math.Inf(1)} {
		e.note("%s is %v; other programs do not clamp dt", key, l)
	}
}

// groups returns the number of KV heads of each layer; 0 for layers without attention.
func (e *ggufExport) groups(rest string, heads int) []int32 {
	out := make([]int32, e.Model.Layers)
	for i := range out {
		if _, ok := e.weights.Look(fmt.Sprintf("%slayers.%d.%s", e.table.prefix, i, rest)); ok {
			out[i] = int32(heads)
		}
	}
	return out
}

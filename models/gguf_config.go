package models

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/gguf"
)

// ggufKeep is the key under which krait convert writes the config.json of the folder: for
// what GGUF has no key.
const ggufKeep = "krait.config"

// ggufConfig turns metadata into a config.
type ggufConfig struct {
	*Config
	file  *gguf.File
	arch  string
	table *ggufArch
	lists map[string][]int
	kept  bool // there is a config.json, in which the metadata overwrite what they know
}

// ggufConfigOf is the config of a GGUF file, and its architecture.
func ggufConfigOf(f *gguf.File) (*Config, *ggufArch, error) {
	name, err := f.String("general.architecture")
	if err != nil {
		return nil, nil, err
	}
	a, ok := ggufArchs[name]
	if !ok {
		return nil, nil, fmt.Errorf("%s: general.architecture is %q; Krait knows %s", f.Name(), name, strings.Join(slices.Sorted(maps.Keys(ggufArchs)), ", "))
	}
	text, err := f.String(ggufKeep)
	if err != nil {
		return nil, nil, err
	}
	g := &ggufConfig{file: f, arch: name, table: &a, lists: map[string][]int{}, kept: text != ""}
	if text == "" {
		text = "{}"
	}
	if g.Config, err = ParseConfig(f.Name(), []byte(text)); err != nil {
		return nil, nil, err
	}
	g.read()
	return g.Config, &a, errors.Join(g.errs...)
}

// read sets the keys that the architectures share, and those of its own.
func (g *ggufConfig) read() {
	t, ok := g.file.Tensor("token_embd.weight")
	if !ok || len(t.Shape) != 2 {
		g.wrong("token_embd.weight", "there must be a tensor of that name with two axes")
		return
	}
	g.set("vocab_size", t.Shape[0])
	g.set("hidden_size", g.int("embedding_length", 1))
	g.set("num_hidden_layers", g.int("block_count", 0))
	if n, ok := g.file.Value(g.arch + ".nextn_predict_layers"); ok && g.count(n) > 0 {
		g.set("num_hidden_layers", max(0, g.int("block_count", 0)-g.count(n))) // what follows predicts more tokens, and plain decoding ignores it
	}
	if n := g.values["num_hidden_layers"].(float64); n > maxLayers {
		g.wrong(g.arch+".block_count", fmt.Sprintf("is %.0f; the most that Krait reads is %d", n, maxLayers))
		return
	}
	g.Set("tie_word_embeddings", !g.has("output.weight"))
	g.Set("hidden_act", "silu")
	g.def("bos_token_id", g.ids("bos"))
	g.def("eos_token_id", g.ids("eos", "eot"))
	g.table.width = g.int("ssm.conv_kernel", 1)
	g.table.heads = func(layer int) [2]int {
		return [2]int{g.layer("attention.head_count", layer), g.layer("attention.head_count_kv", layer)}
	}
	for _, key := range []string{".rope.scaling.type", ".expert_group_used_count"} {
		v, ok := g.file.Value(g.arch + key)
		if ok && v != "none" && v != uint32(0) && v != uint32(1) {
			g.wrong(g.arch+key, fmt.Sprintf("is %s, which Krait does not support", brief(v)))
		}
	}
	if len(g.errs) == 0 {
		g.table.config(g)
	}
}

func (g *ggufConfig) set(key string, n int) { g.Set(key, float64(n)) }

// def sets what the metadata do not say, where a config.json is not there to say it.
func (g *ggufConfig) def(key string, v any) {
	if !g.kept {
		g.Set(key, v)
	}
}

func (g *ggufConfig) has(tensor string) bool {
	_, ok := g.file.Tensor(tensor)
	return ok
}

// any reports whether a block has a tensor.
func (g *ggufConfig) any(rest string) bool {
	return slices.ContainsFunc(g.file.Names(), func(name string) bool {
		_, r, ok := ggufLayer(name)
		return ok && r == rest
	})
}

func (g *ggufConfig) wrong(key, text string) {
	g.errs = append(g.errs, fmt.Errorf("%s: %s: %s", g.Path, key, text))
}

// ids are tokens that have a role.
func (g *ggufConfig) ids(roles ...string) []any {
	out := []any{}
	for _, role := range roles {
		if n, ok := ggufInt(g.value("tokenizer.ggml." + role + "_token_id")); ok && !slices.Contains(out, any(float64(n))) {
			out = append(out, float64(n))
		}
	}
	return out
}

func (g *ggufConfig) value(key string) any {
	v, _ := g.file.Value(key)
	return v
}

// count is a number of the metadata as an int; -1 where it is none that fits.
func (g *ggufConfig) count(v any) int {
	n, ok := ggufInt(v)
	if !ok {
		return -1
	}
	return n
}

func ggufInt(v any) (int, bool) {
	n := int64(-1)
	switch v := v.(type) {
	case uint8:
		n = int64(v)
	case uint16:
		n = int64(v)
	case uint32:
		n = int64(v)
	case uint64:
		n = int64(min(v, math.MaxInt64))
	case int8:
		n = int64(v)
	case int16:
		n = int64(v)
	case int32:
		n = int64(v)
	case int64:
		n = v
	}
	return int(n), n >= 0 && n <= maxDim
}

// mostLayers bounds a list with a number for each layer: there may be more than are read.
const mostLayers = 2 * maxLayers

// ggufInts is a list of numbers.
func ggufInts(v any) ([]int, bool) {
	var out []int
	add := func(v any) bool {
		n, ok := ggufInt(v)
		out = append(out, n)
		return ok
	}
	ok := false
	switch v := v.(type) {
	case []int32:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n int32) bool { return !add(n) })
	case []uint32:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n uint32) bool { return !add(n) })
	case []int64:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n int64) bool { return !add(n) })
	case []uint64:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n uint64) bool { return !add(n) })
	}
	return out, ok
}

// int reads a number of the architecture, of at least lowest, that must be there.
func (g *ggufConfig) int(key string, lowest int) int {
	key = g.arch + "." + key
	v, ok := g.file.Value(key)
	if !ok {
		g.wrong(key, "the metadata lack it")
		return lowest
	}
	n, ok := ggufInt(v)
	if !ok || n < lowest {
		g.wrong(key, fmt.Sprintf("is %v; it must be a whole number of at least %d", brief(v), lowest))
		return lowest
	}
	return n
}

// optional is int where it need not be there.
func (g *ggufConfig) optional(key string, def int) int {
	if _, ok := g.file.Value(g.arch + "." + key); !ok {
		return def
	}
	return g.int(key, 0)
}

// layers reads a number for each layer, or one for all.
func (g *ggufConfig) layers(key string) []int {
	if list, ok := g.lists[key]; ok {
		return list
	}
	n := int(g.values["num_hidden_layers"].(float64))
	v, _ := g.file.Value(g.arch + "." + key)
	list, ok := ggufInts(v)
	switch {
	case !ok:
		list = slices.Repeat([]int{g.int(key, 0)}, n)
	case len(list) < n:
		g.wrong(g.arch+"."+key, fmt.Sprintf("has %d numbers, and there are %d layers", len(list), n))
		list = make([]int, n)
	}
	g.lists[key] = list[:n]
	return list[:n]
}

// layer is that of one of them.
func (g *ggufConfig) layer(key string, i int) int {
	if list := g.layers(key); i >= 0 && i < len(list) {
		return list[i]
	}
	return 0
}

// same is what all layers have that have any.
func (g *ggufConfig) same(key string) int {
	list := slices.DeleteFunc(slices.Clone(g.layers(key)), func(n int) bool { return n == 0 })
	if len(list) == 0 {
		return 0
	}
	for _, n := range list {
		if n != list[0] {
			g.wrong(g.arch+"."+key, fmt.Sprintf("layers have %d and %d; Krait's families have as many in all layers", list[0], n))
			return list[0]
		}
	}
	return list[0]
}

// float reads a number that must be there; one of 32 bits is what its decimal says.
func (g *ggufConfig) float(key string) float64 {
	key = g.arch + "." + key
	switch v, _ := g.file.Value(key); v := v.(type) {
	case float32:
		f, _ := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
		return f
	case float64:
		return v
	}
	g.wrong(key, "the metadata lack it, or it is no float")
	return 1
}

// scale is float, and 1 where it is not there.
func (g *ggufConfig) scale(key string) float64 {
	if _, ok := g.file.Value(g.arch + "." + key); !ok {
		return 1
	}
	return g.float(key)
}

// brief is a value for an error text.
func brief(v any) string {
	if v != nil && reflect.TypeOf(v).Kind() == reflect.Slice {
		return "a list"
	}
	text := fmt.Sprint(v)
	return text[:min(len(text), 40)]
}

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
	g.Set("expand", float64(inner)/g.values["hidden_size"].(float64))
	g.set("num_heads", heads)
	g.set("head_dim", g.divided("ssm.inner_size", inner, heads))
	g.set("n_groups", groups)
	g.def(normGroups, float64(groups)) // as mamba_ssm and llama.cpp have it
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
	g.Set("mamba_expand", float64(g.int("ssm.inner_size", 1))/g.values["hidden_size"].(float64))
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
	if p, ok := g.values[prefix+"_period"].(float64); ok && g.kept && p >= 1 && p < maxDim {
		if o, ok := g.values[prefix+"_offset"].(float64); ok && slices.Equal(at, everyOf(len(layers), int(p), int(o))) {
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
	g.Set("mamba_expand", float64(inner)/g.values["hidden_size"].(float64))
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
	g.Set("mamba_expand", float64(inner)/g.values["hidden_size"].(float64))
	g.set("mamba_n_heads", heads)
	g.set("mamba_d_head", g.divided("ssm.inner_size", inner, heads))
	g.set("mamba_n_groups", groups)
	g.def(normGroups, float64(groups))
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
	for i := range int(g.values["num_hidden_layers"].(float64)) {
		if t, ok := g.file.Tensor(fmt.Sprintf("blk.%d.%s", i, rest)); ok && axis < len(t.Shape) {
			return t.Shape[axis]
		}
	}
	return 0
}

func ggufNemotron(g *ggufConfig) {
	inner, heads := g.int("ssm.inner_size", 1), g.int("ssm.time_step_rank", 1)
	delete(g.values, "hidden_act")
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
	delete(g.values, "layers_block_type")
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

package models

import (
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

const minimal = `{"model_type": "mamba", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1`

func read(text string) (*Model, error) {
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		return nil, err
	}
	return Read(c)
}

const minimal2 = `{"model_type": "mamba2", "vocab_size": 10, "hidden_size": 8, "num_heads": 4, "head_dim": 4, "n_groups": 2, "state_size": 3, "num_hidden_layers": 1`

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                       "config.json: not a JSON object",
		`null`:                                   "config.json: not a JSON object",
		`[1]`:                                    "config.json: not a JSON object",
		`{"model_type": "mamba"`:                 "config.json: not a JSON object",
		`{}`:                                     `model_type is ""; Krait knows bamba, falcon_h1, falcon_mamba, granitemoehybrid, jamba, lfm2, lfm2_moe, mamba, mamba2, nemotron_h, qwen3_5_moe_text, qwen3_5_text, qwen3_next, zamba, zamba2`,
		`{"model_type": "llama"}`:                `model_type is "llama"; Krait knows bamba, falcon_h1, falcon_mamba, granitemoehybrid, jamba, lfm2, lfm2_moe, mamba, mamba2, nemotron_h, qwen3_5_moe_text, qwen3_5_text, qwen3_next, zamba, zamba2`,
		`{"model_type": 3}`:                      `model_type is ""`,
		minimal + `, "hidden_size": 0}`:          "hidden_size is 0; it must be an integer from 1",
		minimal + `, "hidden_size": 2.5}`:        "hidden_size is 2.5; it must be an integer",
		minimal + `, "hidden_size": "8"}`:        `hidden_size is "8"; it must be an integer`,
		minimal + `, "hidden_size": 1e30}`:       "hidden_size is 1e+30; it must be an integer",
		minimal + `, "hidden_size": Infinity}`:   `hidden_size is "Infinity"; it must be an integer`,
		minimal + `, "layer_norm_epsilon": NaN}`: "layer_norm_epsilon is NaN",
		minimal + `, "layer_norm_epsilon": {"__float__": "NaN"}}`:                                           "layer_norm_epsilon is NaN",
		minimal + `, "anything": [1, NaN]}`:                                                                 "anything is NaN",
		minimal + `, "layer_norm_epsilon": -1e-5}`:                                                          "layer_norm_epsilon is -0.00001; it must be a number above 0",
		minimal + `, "layer_norm_epsilon": -Infinity}`:                                                      "it must be a number above 0",
		minimal + `, "use_bias": "no"}`:                                                                     `use_bias is "no"; it must be true or false`,
		minimal + `, "hidden_act": "mish"}`:                                                                 `hidden_act is "mish"; it must be one of gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, silu, swish (Krait has no other)`,
		minimal + `, "hidden_act": 1}`:                                                                      "hidden_act is 1; it must be one of",
		minimal + `, "time_step_rank": "full"}`:                                                             `time_step_rank is "full"; it must be an integer`,
		minimal + `, "time_step_rank": 0}`:                                                                  "time_step_rank is 0",
		minimal + `, "conv_kernel": 0}`:                                                                     "conv_kernel is 0",
		minimal + `, "eos_token_id": [1, "x"]}`:                                                             `eos_token_id is [1,"x"]; it must be a token id or a list of them`,
		minimal + `, "tie_word_embeddings": 1}`:                                                             "tie_word_embeddings is 1; it must be true or false",
		minimal + `, "quantization_config": {"bits": 4}}`:                                                   `quantization_config.quant_method is null; it must be one of awq, compressed-tensors, fp8, gptq, modelopt, mxfp4, or krait_q8: Krait supports no other`,
		minimal + `, "quantization_config": {"quant_method": "bitsandbytes"}}`:                              `quantization_config.quant_method is "bitsandbytes"; it must be one of awq`,
		minimal + `, "quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}}`:                        `quantization_config.fmt is "e5m2"; it must be one of e4m3`,
		minimal + `, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}`:           `quantization_config.weight_block_size is [128]; it must be two sizes`,
		minimal + `, "quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 1e300]}}`:      `it must be two sizes of at least 1`,
		minimal + `, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": "lm_head"}}`:  `it must be a list of names of modules`,
		minimal + `, "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["re:("]}}`:    `quantization_config.ignore is ["re:("]; it must be a list of names of modules`,
		minimal + `, "quantization_config": {"quant_method": "compressed-tensors", "format": "marlin-24"}}`: `quantization_config.format is "marlin-24"; it must be one of float-quantized`,
		minimal + `, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}}}`: `it must be FP8, or floats or integers of 4 bits`,
		minimal + `, "quantization_config": {"quant_method": "gptq", "bits": 3}}`:                                                                         `quantization_config.bits is 3; it must be one of 4: Krait supports no other`,
		minimal + `, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 7}}`:                                                        `quantization_config.group_size is 7; it must be -1 or a multiple of 32`,
		minimal + `, "quantization_config": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}}`:                                          `quantization_config.checkpoint_format is "marlin"; it must be one of gptq, gptq_v2`,
		minimal + `, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"}}`:                                     `quantization_config.version is "gemv"; it must be one of gemm`,
		minimal + `, "quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}}`:                                                      `quantization_config.quant_algo is "W4A8_AWQ"; it must be one of FP8,`,
		minimal + `, "is_encoder_decoder": true}`:                                                                                                         "is_encoder_decoder is true",
		minimal + `, "torch_dtype": "int8"}`:                                                                                                              `torch_dtype is "int8"; it must be one of auto, bfloat16, float16`,
		minimal2 + `, "expand": 3}`:                                                                                                                       "num_heads is 4; it must be such that num_heads × head_dim is expand × hidden_size",
		minimal2 + `, "n_groups": 3}`:                                                                                                                     "n_groups is 3; it must be a divisor of num_heads",
		minimal2 + `, "rms_norm": false}`:                                                                                                                 "rms_norm is false; it must be true",
		minimal2 + `, "time_step_limit": [1, 0]}`:                                                                                                         "time_step_limit is [1,0]; it must be two numbers, the lower first",
		minimal2 + `, "time_step_limit": 3}`:                                                                                                              "time_step_limit is 3; it must be two numbers",
		minimal + `, "hidden_size": 0, "state_size": 0}`:                                                                                                  "state_size is 0",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestExcludes: the patterns of each method name modules, and no others.
func TestExcludes(t *testing.T) {
	for pattern, modules := range map[string][2]string{
		"lm_head":                       {"lm_head", "model.lm_heads"},
		"model.layers.0.mlp.gate":       {"model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj"},
		"model.layers.1":                {"model.layers.1.mixer.in_proj", "model.layers.10.mixer.in_proj"},
		"mixer.conv1d":                  {"model.layers.3.mixer.conv1d", "model.layers.3.mixer.in_proj"},
		"model.layers.*.self_attn*":     {"model.layers.7.self_attn.q_proj", "model.layers.7.mlp.up_proj"},
		"re:.*router":                   {"model.layers.2.router.layer", "model.layers.2.mlp"},
		"re:model\\.layers\\.[01]\\..*": {"model.layers.1.mlp", "model.layers.2.mlp"},
	} {
		q := &Quantization{Excluded: []string{pattern}}
		if !q.Excludes(modules[0]) || q.Excludes(modules[1]) {
			t.Errorf("%s: %v %v of %v", pattern, q.Excludes(modules[0]), q.Excludes(modules[1]), modules)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		keys  string
		holds []string // in the graph's text
		not   []string
	}{
		{`}`, []string{"f32[x:16/1|z:16/1 8]", "dt:1|B:16|C:16", "rmsnorm %/h @norm.weight {eps=1e-05}", "conv1d.bias", "= silu", "%logits = matmul %norm_f @embeddings.weight", "[16/1 4]"},
			[]string{"lm_head", "in_proj.bias", "unit_rmsnorm"}},
		{`, "hidden_size": 33, "time_step_rank": "auto"}`, []string{"dt:3|"}, nil},
		{`, "time_step_rank": 5, "state_size": 7}`, []string{"dt:5|B:7|C:7"}, nil},
		{`, "expand": 1.5}`, []string{"x:12/1|z:12/1"}, nil},
		{`, "expand": 16, "intermediate_size": 24}`, []string{"x:24/1|z:24/1"}, nil},
		{`, "conv_kernel": 3, "use_conv_bias": false}`, []string{"[16/1 3]", "f32[s 16/1 2]"}, []string{"conv1d.bias"}},
		{`, "use_bias": true}`, []string{"in_proj.bias", "out_proj.bias"}, nil},
		{`, "tie_word_embeddings": false}`, []string{`"lm_head.weight"`, "%logits = matmul %norm_f @lm_head.weight"}, nil},
		{`, "hidden_act": "gelu_new"}`, []string{"= gelu_tanh"}, []string{"= silu"}},
		{`, "layer_norm_epsilon": 1e-6}`, []string{"{eps=1e-06}"}, []string{"{eps=1e-05}"}},
		{`, "rescale_prenorm_residual": true, "time_step_min": 7, "residual_in_fp32": false}`, []string{"= silu"}, nil},
		{`, "model_type": "falcon_mamba", "mixer_rms_eps": 1e-3}`, []string{"%mixer.dt_norm = unit_rmsnorm %mixer.dt {eps=0.001}", "B_norm", "C_norm"}, nil},
		{`, "torch_dtype": "bfloat16"}`, []string{"@embeddings.weight : bf16[10/1 8]", "@norm.weight : f32[8]"}, nil},
		{`, "dtype": "float16", "torch_dtype": "float32"}`, []string{"@embeddings.weight : f16[10/1 8]"}, nil},
		{`, "num_hidden_layers": 0}`, []string{"%wanted = select_rows %h"}, []string{"block"}},
	} {
		m, err := read(minimal + c.keys)
		if err != nil {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		if len(m.Unknown) > 0 {
			t.Errorf("%s: unknown keys %v", c.keys, m.Unknown)
		}
		text := graphText(t, m)
		for _, s := range c.holds {
			if !strings.Contains(text, s) {
				t.Errorf("%s: no %q in\n%s", c.keys, s, text)
			}
		}
		for _, s := range c.not {
			if strings.Contains(text, s) {
				t.Errorf("%s: %q in\n%s", c.keys, s, text)
			}
		}
	}
}

func TestKeysOfMamba2(t *testing.T) {
	for _, c := range []struct {
		keys  string
		holds []string
		not   []string
	}{
		{`}`, []string{"f32[z:16/4|x:16/4|B:6/3|C:6/3|dt:4/1 8]", `field %mixer.in_proj {name="x|B|C"}`, "f32[s x:16/4|B:6/3|C:6/3 3]", "f32[s 4/1 4 3]",
			"{max=+inf min=0}", "@lm_head.weight", "conv1d.bias", "%mixer.normed = rmsnorm %mixer.gated"}, []string{"in_proj.bias"}},
		{`, "time_step_limit": [0.01, Infinity]}`, []string{"{max=+inf min=0.01}"}, nil},
		{`, "time_step_limit": [0.0, {"__float__": "Infinity"}]}`, []string{"{max=+inf min=0}"}, nil},
		{`, "tie_word_embeddings": true, "use_bias": true, "use_conv_bias": false}`, []string{"in_proj.bias", "out_proj.bias"}, []string{"lm_head", "conv1d.bias"}},
		{`, "n_groups": 1, "chunk_size": 7, "residual_in_fp32": false}`, []string{"B:3/3|C:3/3"}, nil},
	} {
		m, err := read(minimal2 + c.keys)
		if err != nil || len(m.Unknown) > 0 {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		text := graphText(t, m)
		for _, s := range c.holds {
			if !strings.Contains(text, s) {
				t.Errorf("%s: no %q in\n%s", c.keys, s, text)
			}
		}
		for _, s := range c.not {
			if strings.Contains(text, s) {
				t.Errorf("%s: %q in\n%s", c.keys, s, text)
			}
		}
	}
}

// TestPublishedConfig: keys of the published Mamba configs that mean nothing are
// listed once each, sorted, and change nothing.
func TestPublishedConfig(t *testing.T) {
	const extra = `, "d_inner": 16, "d_model": 8, "n_layer": 1, "ssm_cfg": {}, "fused_add_norm": true, "rms_norm": true, "pad_vocab_size_multiple": 8}`
	m, err := read(minimal + extra)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(m.Unknown, " "); got != "d_inner d_model fused_add_norm n_layer pad_vocab_size_multiple rms_norm ssm_cfg" {
		t.Errorf("unknown keys: %s", got)
	}
	plain, err := read(minimal + "}")
	if err != nil {
		t.Fatal(err)
	}
	if graphText(t, m) != graphText(t, plain) {
		t.Error("keys without meaning change the graph")
	}
}

func TestInfinities(t *testing.T) {
	c, err := ParseConfig("c", []byte(`{"a": [0.0, Infinity], "b": -Infinity, "c": {"__float__": "Infinity"}, "d": "Infinity \" NaN", "e": -3}`))
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := number(c.values["a"].([]any)[1]); !ok || !math.IsInf(f, 1) {
		t.Error("a", f, ok)
	}
	if f, ok := number(c.values["b"]); !ok || !math.IsInf(f, -1) {
		t.Error("b", f, ok)
	}
	if f, ok := number(c.values["c"]); !ok || !math.IsInf(f, 1) {
		t.Error("c", f, ok)
	}
	if c.values["d"] != `Infinity " NaN` || c.values["e"] != -3.0 {
		t.Error(c.values)
	}
	if _, ok := number(c.values["d"]); ok {
		t.Error("a text is a number")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(minimal + `, "x": [Infinity, -Infinity]}`))
	f.Add([]byte(`{"model_type": "falcon_mamba", "hidden_act": {"__float__": "NaN"}}`))
	for _, config := range hybrids {
		f.Add([]byte(config + "}"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("config.json", data)
		if err != nil {
			return
		}
		// Some thousands of layers are legal; many fuzzed ones only take time.
		if m, err := Read(c); err == nil && m.Layers < 4 {
			m.Graph(nil) // sizes may be too large, which is an error
		}
	})
}

func graphText(t *testing.T, m *Model) string {
	t.Helper()
	g, err := m.Graph(nil)
	if err != nil {
		t.Fatal(err)
	}
	return graph.Print(g)
}

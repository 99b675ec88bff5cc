package synth

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sizes has a config.json for each published size, with its dimensions. What
// does not change how fast a model runs may differ from the published file.
//
//go:embed sizes/*.json
var sizes embed.FS

// like are the published sizes of a family that differ in a few keys only.
var like = map[string]struct {
	file string
	keys map[string]any
}{
	"mamba-130m":      {"mamba", width(768, 24, 48)},
	"mamba-370m":      {"mamba", width(1024, 48, 64)},
	"mamba-790m":      {"mamba", width(1536, 48, 96)},
	"mamba-1.4b":      {"mamba", width(2048, 48, 128)},
	"mamba-2.8b":      {"mamba", width(2560, 64, 160)},
	"mamba2-130m":     {"mamba2", heads(768, 24)},
	"mamba2-370m":     {"mamba2", heads(1024, 48)},
	"mamba2-780m":     {"mamba2", heads(1536, 48)},
	"mamba2-1.3b":     {"mamba2", heads(2048, 48)},
	"mamba2-2.7b":     {"mamba2", heads(2560, 64)},
	"falcon-mamba-7b": {"falcon-mamba-7b", nil},
	"zamba-7b":        {"zamba-7b", nil},
	"zamba2-1.2b":     {"zamba2-1.2b", nil},
	"zamba2-2.7b":     {"zamba2-1.2b", with(zamba2(2560, 54, []int{6, 12, 18, 24, 30, 36, 42, 47, 51}), map[string]any{"use_mem_rope": false})},
	"zamba2-7b":       {"zamba2-1.2b", with(zamba2(3584, 81, []int{6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77}), map[string]any{"mamba_ngroups": 2})},
	"jamba-52b":       {"jamba-52b", nil},
	"bamba-9b":        {"bamba-9b", nil},
	"falcon-h1-0.5b":  {"falcon-h1-0.5b", nil},

	// LFM2's dimensions are approximate: they give the published number of parameters.
	"lfm2-1.2b":          {"lfm2", nil},
	"lfm2-8b-a1b":        {"lfm2-moe", nil},
	"qwen3.5-0.8b":       {"qwen3.5", qwen(1024, 24, 3584, 8, 2, 16, true)},
	"qwen3.5-4b":         {"qwen3.5", qwen(2560, 32, 9216, 16, 4, 32, true)},
	"qwen3.5-9b":         {"qwen3.5", nil},
	"qwen3.5-27b":        {"qwen3.5", qwen(5120, 64, 17408, 24, 4, 48, false)},
	"qwen3.5-35b-a3b":    {"qwen3.5-moe", nil},
	"qwen3-next-80b-a3b": {"qwen3-next", nil},

	"granite-4.0-h-small": {"granite-4", nil},
	"granite-4.0-h-tiny": {"granite-4", map[string]any{"hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 4, "mamba_n_heads": 48, "logits_scaling": 6,
		"num_local_experts": 64, "num_experts_per_tok": 6, "intermediate_size": 512, "shared_intermediate_size": 1024}},
	"granite-4.0-h-micro": {"granite-4", map[string]any{"hidden_size": 2048, "mamba_n_heads": 64, "attention_multiplier": 0.015625, "logits_scaling": 8,
		"num_local_experts": 0, "num_experts_per_tok": 0, "intermediate_size": 8192, "shared_intermediate_size": 8192}},

	"nemotron-h-8b":       {"nemotron-h", nil},
	"nemotron-h-47b":      {"nemotron-h", nemotron(8192, 64, 30720, "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-", 256, 64, 256)},
	"nemotron-h-56b":      {"nemotron-h", nemotron(8192, 64, 32768, "M-M-M-M*"+strings.Repeat("-M-M-M-M-M*", 9)+"-M-M-M-M-M-", 256, 64, 256)},
	"nemotron-nano-9b-v2": {"nemotron-h", nemotron(4480, 40, 15680, "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", 128, 80, 128)},
	"nemotron-3-nano-30b-a3b": {"nemotron-h", with(nemotron(2688, 32, 1856, strings.Repeat("MEMEM*E", 5)+"MEMEMEM*EMEMEMEME", 64, 64, 128), map[string]any{"num_key_value_heads": 2,
		"n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "routed_scaling_factor": 2.5, "norm_topk_prob": true})},
	"nemotron-3-super-120b-a12b": {"nemotron-h", with(nemotron(4096, 32, 2688, "MEMEMEM*"+strings.Repeat("EMEMEMEM*", 2)+strings.Repeat("EMEMEMEMEM*", 4)+"EMEMEMEM*EMEMEMEME", 128, 64, 128), map[string]any{"num_key_value_heads": 2,
		"n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024, "routed_scaling_factor": 5, "norm_topk_prob": true})},
}

func width(hidden, layers, rank int) map[string]any {
	return map[string]any{"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers, "time_step_rank": rank}
}

func heads(hidden, layers int) map[string]any {
	return map[string]any{"hidden_size": hidden, "num_heads": 2 * hidden / 64, "num_hidden_layers": layers}
}

// zamba2 is a model of that width and number of layers with two shared blocks, which some
// of the layers use.
func zamba2(hidden, layers int, hybrid []int) map[string]any {
	var kinds, ids []any
	for i := range layers {
		if slices.Contains(hybrid, i) {
			kinds, ids = append(kinds, "hybrid"), append(ids, float64(i))
			continue
		}
		kinds = append(kinds, "mamba")
	}
	return map[string]any{"hidden_size": hidden, "intermediate_size": 4 * hidden, "attention_hidden_size": 2 * hidden, "attention_head_dim": 2 * hidden / 32,
		"n_mamba_heads": 2 * hidden / 64, "mamba_d_state": 64, "num_mem_blocks": 2, "use_shared_attention_adapter": false,
		"num_hidden_layers": layers, "layers_block_type": kinds, "hybrid_layer_ids": ids}
}

// nemotron returns the keys of a size: hidden width, attention heads, MLP width, pattern of layers,
// and heads, head size and states of the mixers.
func nemotron(hidden, heads, inner int, pattern string, mixerHeads, head, states int) map[string]any {
	return map[string]any{"hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": inner, "hybrid_override_pattern": pattern,
		"num_hidden_layers": len(pattern), "mamba_num_heads": mixerHeads, "mamba_head_dim": head, "ssm_state_size": states}
}

// qwen returns the keys of a size: hidden width, layers, MLP width, heads of queries and of keys,
// heads of values of the delta rule, and whether the head is tied. Widths of MLPs and heads of the
// 0.8B and 4B are approximate: they give about the published number of parameters.
func qwen(hidden, layers, inner, heads, groups, values int, tied bool) map[string]any {
	return map[string]any{"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner, "num_attention_heads": heads,
		"num_key_value_heads": groups, "linear_num_value_heads": values, "tie_word_embeddings": tied}
}

// with is keys and more of them.
func with(keys, more map[string]any) map[string]any {
	maps.Copy(keys, more)
	return keys
}

// Sizes lists the names of the published sizes.
func Sizes() []string { return slices.Sorted(maps.Keys(like)) }

// size reads the config of a published size and changes its keys.
func size(name string) (text []byte, keys map[string]any, err error) {
	s, ok := like[name]
	if !ok {
		near := slices.DeleteFunc(Sizes(), func(s string) bool { return !strings.HasPrefix(s, name) })
		if len(near) == 0 {
			near = Sizes()
		}
		return nil, nil, fmt.Errorf("unknown size %q; it must be one of %s", name, strings.Join(near, ", "))
	}
	text, err = sizes.ReadFile("sizes/" + s.file + ".json")
	return text, s.keys, err
}

package tests

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// TestCollectives counts at run time: two all_reduces per block by unit ownership,
// of R+2N and of H elements per token, four gathers by the baselines; kinds and
// bytes are the plan's and the proof's.
func TestCollectives(t *testing.T) {
	const hidden, inner, rank, states, layers, vocab = 128, 256, 8, 16, 6, 256
	dbc := rank + 2*states
	strategies := map[string]string{
		"channel":      fmt.Sprintf("all_reduce %d, all_reduce %d", dbc, hidden),
		"naive":        fmt.Sprintf("all_gather %d, all_gather %d, all_gather %d, all_gather %d", 2*inner, dbc, inner, hidden),
		"hoisted":      fmt.Sprintf("all_reduce %d, all_reduce %d", dbc, hidden),
		"sequence":     fmt.Sprintf("all_gather %d, all_reduce %d, reduce_scatter %d", hidden, dbc, hidden),
		"batch":        fmt.Sprintf("all_gather %d, all_reduce %d, reduce_scatter %d", hidden, dbc, hidden),
		"replicated-x": fmt.Sprintf("all_reduce %d", hidden),
		"paper-naive":  fmt.Sprintf("all_gather %d, all_gather %d, all_gather %d, all_gather %d", 2*inner, inner, dbc, inner),
	}
	names, ranks, payloads := slices.Sorted(maps.Keys(strategies)), []int{2, 3, 8}, []string{"", "fp16"}
	for _, c := range covering.Each(t, []int{len(names)}, len(ranks), len(payloads)) {
		sharding := krait.Sharding{Ranks: ranks[c[1]], Strategy: names[c[0]], Payload: payloads[c[2]]}
		t.Run(fmt.Sprintf("%s/tp=%d/%s", sharding.Strategy, sharding.Ranks, sharding.Payload), func(t *testing.T) {
			m, want := embeddedModel(t, krait.Options{Sharding: sharding}), strategies[sharding.Strategy]
			const tokens = 7
			residual := 0 // it is gathered once more in the end
			if strings.Contains(want, "scatter") {
				residual = 1
			}
			counts := countPrompt(t, m, tokens)
			for i := range layers {
				if got := perToken(counts, fmt.Sprint("layers.", i), tokens); got != want {
					t.Errorf("block %d: %s, want %s per token", i, got, want)
				}
			}
			if len(counts) != layers*(strings.Count(want, ",")+1)+2+residual {
				t.Errorf("%d collectives", len(counts))
			}
			comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
			compareProof(t, m, sharding, counts, tokens)
		})
	}
}

// TestCollectivesOfHeads: where a norm spans the ranks, a block has two all_reduces,
// of one number per token and of H elements; hoisted, one that carries both, and
// the statistic stays in f32 when the rest is rounded.
func TestCollectivesOfHeads(t *testing.T) {
	goldens.CI(t)
	const hidden, tokens = 64, 5
	for sharding, want := range map[*krait.Sharding]string{
		{Ranks: 3}:                                       fmt.Sprintf("all_reduce 1, all_reduce %d", hidden),
		{Ranks: 4, Strategy: "naive"}:                    fmt.Sprintf("all_gather %d, all_gather %d", 128+256+8, hidden),
		{Ranks: 4, Strategy: "paper-naive"}:              fmt.Sprintf("all_gather %d, all_gather %d, all_gather %d", 128+256+8, 256, 128),
		{Ranks: 3, Strategy: "paper-naive"}:              fmt.Sprintf("all_gather %d, all_gather %d, all_gather %d", 128+256+8, 256, 128),
		{Ranks: 3, Strategy: "hoisted"}:                  fmt.Sprintf("all_reduce %d", 1+hidden),
		{Ranks: 8, Strategy: "hoisted", Payload: "fp16"}: fmt.Sprintf("all_reduce %d", 1+hidden),
		{Ranks: 4, Strategy: "hoisted", Payload: "int8"}: fmt.Sprintf("reduce_scatter %d, all_gather %[1]d", 1+hidden),
		{Ranks: 2, Payload: "bf16:acc32"}:                fmt.Sprintf("all_reduce 1, all_reduce %d", hidden),
	} {
		m, err := krait.Open("../testdata/golden/mamba2-g4", krait.Options{Sharding: *sharding})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		counts := countPrompt(t, m, tokens)
		for _, block := range m.Graph().Blocks() {
			if got := perToken(counts, block, tokens); got != want {
				t.Errorf("%+v, %s: %s, want %s per token", sharding, block, got, want)
			}
			bytes := int64(0)
			for _, c := range counts {
				if graph.BlockOf(c.Name) == block && c.Kind == "all_reduce" {
					bytes += c.Bytes
				}
			}
			if rounded := map[bool]int64{false: 4, true: 2}[sharding.Payload != ""]; strings.Contains(want, "all_reduce") && bytes != tokens*(4+hidden*rounded) {
				t.Errorf("%+v, %s: %d bytes", sharding, block, bytes)
			}
		}
		comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
		if !strings.Contains(want, "scatter") { // an all_reduce in two is not the minimum
			compareProof(t, m, *sharding, counts, tokens)
		}
	}
}

// TestCollectivesOfHybrids: what each kind of block sends, as it runs: attention
// and MLPs one sum of H elements each; a scan by heads none before out_proj when
// heads lie whole on ranks; norms of groups that cross ranks one number per group.
// Attention beside a mixer shares its sum.
func TestCollectivesOfHybrids(t *testing.T) {
	const tokens = 5
	reduces := func(elems ...int) string {
		var list []string
		for _, n := range elems {
			list = append(list, fmt.Sprintf("all_reduce %d", n))
		}
		return strings.Join(list, ", ")
	}
	type blocks map[int]string
	for _, c := range covering.Drawn(t, []struct {
		model    string
		sharding krait.Sharding
		want     blocks
	}{
		{"zamba", krait.Sharding{Ranks: 2}, blocks{0: reduces(64), 2: reduces(64, 64, 64)}},
		{"zamba", krait.Sharding{Ranks: 3}, blocks{1: reduces(2*(4+16+16), 64), 4: reduces(64, 64, 72, 64)}},
		{"zamba", krait.Sharding{Ranks: 4}, blocks{0: reduces(72, 64), 2: reduces(64, 64, 72, 64)}},
		{"zamba", krait.Sharding{Ranks: 4, Strategy: "replicated-x"}, blocks{0: reduces(64), 2: reduces(64, 64, 64)}},
		{"zamba", krait.Sharding{Ranks: 3, Strategy: "paper-naive"}, blocks{0: "all_gather 256, all_gather 128, all_gather 128",
			2: reduces(64, 64) + ", all_gather 256, all_gather 128, all_gather 128"}},
		{"zamba2", krait.Sharding{Ranks: 2}, blocks{0: reduces(64), 2: reduces(64, 64, 64), 3: reduces(64, 64, 64)}},
		{"zamba2", krait.Sharding{Ranks: 4}, blocks{0: reduces(2, 64), 2: reduces(64, 64, 2, 64)}},
		{"zamba2", krait.Sharding{Ranks: 4, Strategy: "hoisted"}, blocks{0: reduces(2, 64), 2: reduces(64, 64, 2, 64)}},
		{"jamba", krait.Sharding{Ranks: 3}, blocks{0: reduces(8+2*16, 64, 64), 1: reduces(40, 64, 64), 2: reduces(64, 64)}},
		{"jamba", krait.Sharding{Ranks: 8, Strategy: "replicated-x"}, blocks{0: reduces(64, 64), 2: reduces(64, 64)}},
		{"bamba", krait.Sharding{Ranks: 4}, blocks{0: reduces(1, 64, 64), 1: reduces(64, 64)}},
		{"bamba", krait.Sharding{Ranks: 4, Strategy: "hoisted"}, blocks{0: reduces(1+64, 64), 1: reduces(64, 64)}},
		{"falcon-h1", krait.Sharding{Ranks: 3}, blocks{0: reduces(1, 64, 64), 2: reduces(1, 64, 64)}},
		{"falcon-h1", krait.Sharding{Ranks: 8, Strategy: "hoisted", Payload: "fp16"}, blocks{0: reduces(1+64+64, 64)}},
		{"granite-hybrid", krait.Sharding{Ranks: 3}, blocks{0: reduces(1, 48, 48), 2: reduces(48, 48)}},
		{"granite-hybrid-dense", krait.Sharding{Ranks: 2, Strategy: "hoisted"}, blocks{0: reduces(1+64, 64), 1: reduces(64, 64)}},
		{"nemotron-h", krait.Sharding{Ranks: 2}, blocks{0: reduces(48), 1: reduces(48), 3: reduces(48)}},
		{"nemotron-h-moe", krait.Sharding{Ranks: 4}, blocks{0: reduces(2, 48), 1: reduces(48), 2: reduces(48)}},
		{"nemotron-h-latent", krait.Sharding{Ranks: 2}, blocks{0: reduces(48), 1: reduces(48), 2: reduces(48)}},
		// A mixer with a short convolution, or a delta rule of heads of any number, sends one sum.
		{"lfm2", krait.Sharding{Ranks: 3}, blocks{0: reduces(48, 48), 2: reduces(48, 48)}},
		{"lfm2-moe", krait.Sharding{Ranks: 8}, blocks{0: reduces(48, 48), 1: reduces(48, 48), 2: reduces(48, 48)}},
		{"qwen3-5", krait.Sharding{Ranks: 2}, blocks{0: reduces(48, 48), 3: reduces(48, 48)}},
		{"qwen3-5", krait.Sharding{Ranks: 8, Strategy: "hoisted"}, blocks{0: reduces(48, 48), 3: reduces(48, 48)}},
		{"qwen3-5-moe", krait.Sharding{Ranks: 4}, blocks{1: reduces(48, 48), 3: reduces(48, 48)}},
		{"qwen3-next", krait.Sharding{Ranks: 3}, blocks{0: reduces(48, 48), 1: reduces(48, 48), 2: reduces(48, 48)}},
	}) {
		m, err := krait.Open("../testdata/golden/"+c.model, krait.Options{Sharding: c.sharding})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		counts := countPrompt(t, m, tokens)
		for block, want := range c.want {
			if got := perToken(counts, fmt.Sprint("layers.", block), tokens); got != want {
				t.Errorf("%s %+v, block %d: %s, want %s per token", c.model, c.sharding, block, got, want)
			}
		}
		comparePlan(t, m, counts, graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1})
		compareProof(t, m, c.sharding, counts, tokens)
	}
}

// countPrompt feeds a prompt and returns what its collectives did.
func countPrompt(t *testing.T, m *krait.Model, tokens int) []exec.CollectiveCount {
	t.Helper()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	m.Engine().ResetCounts()
	if _, err := s.Step(context.Background(), slices.Repeat([]int{65}, tokens)...); err != nil {
		t.Fatal(err)
	}
	return m.Engine().Collectives()
}

// perToken lists the collectives of a block with their elements per token.
func perToken(counts []exec.CollectiveCount, block string, tokens int64) string {
	var list []string
	for _, c := range counts {
		if graph.BlockOf(c.Name) == block && c.Calls == 1 && c.Elems%tokens == 0 {
			list = append(list, fmt.Sprintf("%s %d", c.Kind, c.Elems/tokens))
		}
	}
	return strings.Join(list, ", ")
}

func comparePlan(t *testing.T, m *krait.Model, counts []exec.CollectiveCount, z graph.Sizes) {
	t.Helper()
	schedules, err := lowering.Lower(m.Compiled())
	if err != nil {
		t.Fatal(err)
	}
	p, err := lowering.NewPlan(schedules)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Collectives) != len(counts) {
		t.Fatalf("%d collectives planned, %d run", len(p.Collectives), len(counts))
	}
	for i, c := range p.Collectives {
		if got := counts[i]; c.Name != got.Name || c.Kind != got.Kind || c.Elems.At(z) != got.Elems || c.Bytes.At(z) != got.Bytes {
			t.Errorf("planned %s %s of %d elements, %d bytes; run %+v", c.Kind, c.Name, c.Elems.At(z), c.Bytes.At(z), got)
		}
	}
}

// bothSides compiles a graph up to partition, and on to where it is proved.
func bothSides(t *testing.T, g *graph.Graph, o passes.Options) (source, partitioned *graph.Graph) {
	t.Helper()
	o.Stop = graph.UnpackedStage
	source, err := passes.Compile(g, o)
	if err == nil {
		o.Stop = graph.PartitionedStage
		partitioned, err = passes.Compile(source, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return source, partitioned
}

func compareProof(t *testing.T, m *krait.Model, sharding krait.Sharding, counts []exec.CollectiveCount, tokens int64) {
	t.Helper()
	o, err := sharding.Options()
	if err != nil {
		t.Fatal(err)
	}
	source, partitioned := bothSides(t, m.Graph(), o)
	c, err := prove.Prove(source, partitioned, prove.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Collectives != len(counts) {
		t.Errorf("%d collectives proved, %d run", c.Collectives, len(counts))
	}
	if s := sharding.Strategy; (s == "channel" || s == "hoisted" || s == "sequence" || s == "batch") && (c.Minimum.Collectives != len(counts) || len(c.Outside) > 0) {
		t.Errorf("the minimum is %d collectives, %d run; outside of the class: %v", c.Minimum.Collectives, len(counts), c.Outside)
	}
	for _, part := range c.Parts {
		for i := range part.Blocks {
			k := 0
			for _, n := range counts {
				if graph.BlockOf(n.Name) != part.Blocks[i] {
					continue
				}
				p := part.Collectives[k]
				if z := (graph.Sizes{Tokens: tokens, Seqs: 1, Rows: 1}); p.Kind != n.Kind || p.Payload.At(z) != n.Bytes {
					t.Errorf("%s: proved %s of %d bytes, run %+v", part.Blocks[i], p.Kind, p.Payload.At(z), n)
				}
				k++
			}
		}
	}
}

// tiny writes a checkpoint of random weights, smaller than many numbers of ranks.
func tiny(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var tensors []safetensors.Tensor
	seen := map[string]bool{}
	for _, n := range g.Leaves("param") {
		shape, size := n.Storage.Shape, 1
		if shape == nil {
			for _, d := range n.Results[0].Type.Dims {
				shape = append(shape, d.Len())
			}
		}
		for _, d := range shape {
			size *= d
		}
		for _, p := range n.Storage.Pieces { // a tensor may have several parameters, and a parameter several tensors
			if seen[p.Tensor] {
				continue
			}
			seen[p.Tensor] = true
			x := safetensors.Tensor{Name: p.Tensor, DType: "F32", Shape: shape}
			for range size {
				x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(float32(rng.NormFloat64())/2))
			}
			tensors = append(tensors, x)
		}
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAnyRanks: 1 to 16 ranks give the logits of one rank, also where channels
// and vocabulary do not divide by them and where a rank owns nothing; by strategies
// other than the first as well.
func TestAnyRanks(t *testing.T) {
	configs := []string{
		`{"model_type": "mamba", "vocab_size": 7, "hidden_size": 5, "intermediate_size": 11, "num_hidden_layers": 2, "state_size": 3, "time_step_rank": 2, "use_bias": true}`,
		`{"model_type": "falcon_mamba", "vocab_size": 13, "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 2, "state_size": 2, "conv_kernel": 2, "tie_word_embeddings": false}`,
		`{"model_type": "mamba", "vocab_size": 2, "hidden_size": 1, "intermediate_size": 1, "num_hidden_layers": 1, "state_size": 1, "conv_kernel": 1}`,
		`{"model_type": "mamba2", "vocab_size": 5, "hidden_size": 10, "num_heads": 5, "head_dim": 4, "n_groups": 5, "state_size": 3, "num_hidden_layers": 2, "use_bias": true}`,
		`{"model_type": "mamba2", "vocab_size": 5, "hidden_size": 6, "num_heads": 6, "head_dim": 2, "n_groups": 2, "state_size": 3, "num_hidden_layers": 2, "tie_word_embeddings": true}`,
		`{"model_type": "mamba2", "vocab_size": 3, "hidden_size": 3, "num_heads": 6, "head_dim": 1, "n_groups": 1, "state_size": 2, "num_hidden_layers": 1, "conv_kernel": 2}`,
		`{"model_type": "zamba", "vocab_size": 5, "hidden_size": 6, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3, "attention_head_dim": 2, "intermediate_size": 5, "mamba_d_state": 3, "n_mamba_heads": 3}`,
		`{"model_type": "zamba2", "vocab_size": 5, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 5, "n_mamba_heads": 6, "mamba_ngroups": 3, "mamba_d_state": 2, "adapter_rank": 2, "use_mem_rope": true, "use_shared_attention_adapter": true, "layers_block_type": ["mamba", "hybrid"]}`,
		`{"model_type": "jamba", "vocab_size": 5, "hidden_size": 10, "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 7, "num_experts": 3, "mamba_d_state": 2, "attn_layer_period": 2, "attn_layer_offset": 1}`,
		`{"model_type": "bamba", "vocab_size": 5, "hidden_size": 9, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "intermediate_size": 5, "mamba_n_heads": 3, "mamba_d_state": 2, "mamba_n_groups": 3, "attn_layer_indices": [1], "attention_bias": true, "mlp_bias": true, "mamba_proj_bias": true}`,
		// As many groups of B and C as of keys, and other numbers of heads.
		`{"model_type": "falcon_h1", "vocab_size": 5, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 2, "intermediate_size": 5, "mamba_n_heads": 6, "mamba_d_ssm": 12, "mamba_d_state": 2, "mamba_n_groups": 3, "mamba_rms_norm": true, "ssm_multipliers": [1, 2, 1, 1, 0.5]}`,
		`{"model_type": "granitemoehybrid", "vocab_size": 5, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 3, "shared_intermediate_size": 5, "num_local_experts": 3, "num_experts_per_tok": 2, "mamba_n_heads": 6, "mamba_n_groups": 3, "mamba_d_state": 2, "layer_types": ["mamba", "attention"], "position_embedding_type": "rope", "residual_multiplier": 0.5, "attention_bias": true, "mamba_proj_bias": true}`,
		`{"model_type": "nemotron_h", "vocab_size": 5, "hidden_size": 7, "hybrid_override_pattern": "ME-*E", "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 2, "intermediate_size": 5, "mamba_num_heads": 6, "mamba_head_dim": 2, "n_groups": 3, "ssm_state_size": 2, "n_routed_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 3, "moe_shared_expert_intermediate_size": 5, "moe_latent_size": 3, "routed_scaling_factor": 2.5, "mlp_bias": true, "use_bias": true, "n_group": 1}`,
		`{"model_type": "lfm2_moe", "vocab_size": 5, "hidden_size": 6, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 5, "num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_bias": true}`,
		`{"model_type": "qwen3_next", "vocab_size": 5, "hidden_size": 7, "num_hidden_layers": 2, "full_attention_interval": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 5, "linear_num_key_heads": 3, "linear_num_value_heads": 9, "linear_key_head_dim": 2, "linear_value_head_dim": 3, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 3, "shared_expert_intermediate_size": 5}`,
		`{"model_type": "qwen3_5_text", "vocab_size": 5, "hidden_size": 7, "num_hidden_layers": 2, "full_attention_interval": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 5, "linear_num_key_heads": 5, "linear_num_value_heads": 5, "linear_key_head_dim": 3, "linear_value_head_dim": 2}`,
	}
	configs = covering.Drawn(t, configs)
	var counts []int
	for n := range passes.MaxRanks {
		counts = append(counts, 1+n)
	}
	if goldens.Few(t) {
		counts = counts[:16]
	}
	counts = covering.Drawn(t, counts)
	dirs, alone := make([]string, len(configs)), make([][][]float32, len(configs))
	for i, config := range configs {
		dirs[i] = tiny(t, config)
		alone[i] = logitsOf(t, dirs[i], krait.Options{})
	}
	for _, c := range covering.Each(t, []int{len(counts), len(configs)}, len(passes.Strategies)) {
		ranks, config, strategy, want := counts[c[0]], configs[c[1]], passes.Strategies[c[2]].Name, alone[c[1]]
		if strategy == "replicated-x" && !strings.Contains(config, `"model_type": "mamba"`) && !strings.Contains(config, "falcon_mamba") {
			continue // it is about the first generation's x_proj
		}
		if strategy == "paper-naive" && (strings.Contains(config, "qwen3") || strings.Contains(config, "lfm2")) {
			continue // it is about scans
		}
		got := logitsOf(t, dirs[c[1]], krait.Options{Sharding: krait.Sharding{Ranks: ranks, Strategy: strategy}})
		for i := range want {
			for j := range want[i] {
				if d := math.Abs(float64(got[i][j] - want[i][j])); !(d <= 1e-4) {
					t.Fatalf("%s, %d ranks, %s: logit %d after step %d is %g, on one rank %g", config, ranks, strategy, j, i, got[i][j], want[i][j])
				}
			}
		}
	}
}

// TestKeepsGroups: a value of groups that is also kept for the caller is right
// where it goes: B of the scan whole in one place, covered in another.
func TestKeepsGroups(t *testing.T) {
	const name = "layers.0.mixer.B"
	want := logitsOf(t, "../testdata/golden/mamba2-g4", krait.Options{})
	for _, ranks := range []int{1, 2, 3, 8} {
		for _, keep := range [][]string{{name}, {name, "layers.0.mixer.in_proj"}, {"layers.0.mixer.C"}} {
			got := logitsOf(t, "../testdata/golden/mamba2-g4", krait.Options{Keep: keep, Sharding: krait.Sharding{Ranks: ranks}})
			for i := range want {
				for j := range want[i] {
					if d := math.Abs(float64(got[i][j] - want[i][j])); !(d <= 1e-4) {
						t.Fatalf("%d ranks, keeping %v: logit %d after step %d is %g, want %g", ranks, keep, j, i, got[i][j], want[i][j])
					}
				}
			}
		}
	}
}

// TestContext: caches that may not grow say so, and leave the sequence as it was.
func TestContext(t *testing.T) {
	m, err := krait.Open("../testdata/golden/zamba", krait.Options{Context: 4, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(context.Background(), 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	const want = "a sequence of 5 tokens; the KV cache has room for 4: open the model with more context"
	if _, err := s.Step(context.Background(), 4, 5); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := s.Step(context.Background(), 4); err != nil {
		t.Error(err)
	}
}

// logitsOf feeds a prompt and then single tokens.
func logitsOf(t *testing.T, dir string, o krait.Options) [][]float32 {
	t.Helper()
	m, err := krait.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for _, tokens := range [][]int{{1, 0, 1, 1, 0}, {1}, {0}} {
		logits, err := s.Step(context.Background(), tokens...)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(logits))
	}
	return out
}

// TestRepeats: a run on many ranks gives the same bits every time.
func TestRepeats(t *testing.T) {
	run := func() []float32 {
		m := embeddedModel(t, krait.Options{Sharding: krait.Sharding{Ranks: 4, Payload: "x_proj=fp16,out_proj=bf16"}})
		s, err := m.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		logits, err := s.Step(context.Background(), readVal(t)[:100]...)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(logits)
	}
	want := run()
	for range 5 {
		if !slices.Equal(run(), want) {
			t.Fatal("two runs on 4 ranks differ")
		}
	}
}

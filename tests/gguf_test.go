package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/convert"
	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestGGUF: files that llama.cpp's library wrote give the logits of the folders whose
// weights they have, 8-bit blocks those of a folder with the weights as that library widens
// them; and its greedy tokens.
func TestGGUF(t *testing.T) {
	list := []struct {
		file, folder string
		tolerance    float64
	}{
		{"mamba-a-f32", "mamba-a", 1e-4}, {"mamba-a-q8_0", "gguf/mamba-a-q8_0", 1e-4},
		{"mamba2-g1-f32", "mamba2-g1", 1e-4}, {"mamba2-g1-q8_0", "gguf/mamba2-g1-q8_0", 1e-4},
	}
	counts := []int{1, 2, 3, 4, 8}
	for _, x := range covering.Each(t, []int{len(list), len(counts)}, 1) {
		c, ranks := list[x[0]], counts[x[1]]
		t.Run(fmt.Sprintf("%s/tp=%d", c.file, ranks), func(t *testing.T) {
			t.Parallel()
			file, folder := filepath.Join("../testdata/golden/gguf", c.file+".gguf"), filepath.Join("../testdata/golden", c.folder)
			o := krait.Options{Sharding: krait.Sharding{Ranks: ranks}}
			nearLogits(t, file, folder, o, c.tolerance)
			sameTokens(t, file, folder, o)
		})
	}
}

// TestConverted: what krait convert makes of checkpoints in 8-bit blocks gives on ranks the
// logits of the folder that it makes of that, which has the numbers in f32; and in f32
// those of the checkpoint, with what llama.cpp's converter multiplies into matrices.
func TestConverted(t *testing.T) {
	for _, name := range covering.Drawn(t, []string{"mamba-a", "mamba-b", "mamba2-g4", "mamba2-clamp", "falcon-mamba", "jamba", "falcon-h1", "granite-hybrid", "granite-hybrid-dense", "nemotron-h", "nemotron-h-moe",
		"lfm2", "lfm2-moe", "qwen3-next", "qwen3-5", "qwen3-5-moe"}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			convertTo := func(from, to, kind string) string {
				t.Helper()
				to = filepath.Join(dir, to)
				if _, err := convert.Write(context.Background(), from, to, kind, nil); err != nil {
					t.Fatal(err)
				}
				return to
			}
			golden := filepath.Join("../testdata/golden", name)
			nearLogits(t, convertTo(golden, "f32.gguf", "f32"), golden, krait.Options{}, 1e-4)
			blocks := convertTo(golden, "q8_0.gguf", "q8_0")
			wide := convertTo(blocks, "wide", "")
			for _, ranks := range []int{1, 3} {
				nearLogits(t, blocks, wide, krait.Options{Sharding: krait.Sharding{Ranks: ranks}}, 1e-4)
			}
			nearLogits(t, convertTo(golden, "bf16.gguf", "bf16"), golden, krait.Options{Sharding: krait.Sharding{Ranks: 2}}, 1)
		})
	}
}

// TestBlocksOfGGUF: files in each of llama.cpp's mixtures give the logits of the folder that
// has their
// numbers in f32, on ranks that cut inside blocks of 256. Goldens have shorter rows, and so the
// formats that stand for those of 256; the wide model has them.
func TestBlocksOfGGUF(t *testing.T) {
	names := []string{"mamba-a", "mamba2-g4", "jamba", "granite-hybrid", "nemotron-h-moe", "lfm2-moe", "qwen3-5-moe"}
	kinds := []string{"q4_k_m", "q5_k_m", "q6_k", "iq4_xs", "q4_0", "q5_0", "iq4_nl"}
	counts := []int{1, 2, 3, 4, 8}
	check := func(name, kind string, ranks int) {
		t.Run(fmt.Sprintf("%s/%s/tp=%d", name, kind, ranks), func(t *testing.T) {
			t.Parallel()
			from, dir := filepath.Join("../testdata/golden", name), t.TempDir()
			if name == "wide" {
				from = filepath.Join(dir, name)
				wideModel(t, from)
			}
			blocks, wide := filepath.Join(dir, "blocks.gguf"), filepath.Join(dir, "again")
			for _, c := range [][3]string{{from, blocks, kind}, {blocks, wide, ""}} {
				if _, err := convert.Write(t.Context(), c[0], c[1], c[2], nil); err != nil {
					t.Fatal(err)
				}
			}
			nearLogits(t, blocks, wide, krait.Options{Sharding: krait.Sharding{Ranks: ranks}}, 1e-4)
		})
	}
	if !goldens.Few(t) {
		for _, x := range covering.Drawn(t, covering.Each(t, []int{4, len(counts)}, 1)) {
			check("wide", kinds[x[0]], counts[x[1]])
		}
	}
	for _, x := range covering.Each(t, []int{len(names), len(kinds), len(counts)}, 1) {
		check(names[x[0]], kinds[x[1]], counts[x[2]])
	}
}

// sameTokens holds the greedy tokens of a model to those of another.
func sameTokens(t *testing.T, got, want string, o krait.Options) {
	t.Helper()
	var lists [2][]int
	for i, m := range []*krait.Model{openModel(t, want, krait.Options{}), openModel(t, got, o)} {
		out, err := m.GenerateIDs(t.Context(), randomIDs(7, m.Vocab()), krait.Generate{MaxTokens: 32, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		lists[i] = out.IDs
	}
	if !slices.Equal(lists[0], lists[1]) {
		t.Errorf("%s, %d ranks: tokens %v, and %v of %s", got, o.Sharding.Ranks, lists[1], lists[0], want)
	}
}

// TestGGUFAsWritten: another order of tensors and keys, formats beside each other, no tokenizer and
// no name make the same model.
func TestGGUFAsWritten(t *testing.T) {
	for _, name := range covering.Drawn(t, []string{"mamba-a", "mamba-b", "mamba2-g1", "mamba2-g4", "jamba", "granite-hybrid", "nemotron-h", "falcon-h1", "qwen3-5-moe"}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden, dir := filepath.Join("../testdata/golden", name), t.TempDir()
			var files []*gguf.File
			for _, kind := range []string{"f32", "f16", "bf16", "q8_0"} {
				path := filepath.Join(dir, kind+".gguf")
				if _, err := convert.Write(t.Context(), golden, path, kind, nil); err != nil {
					t.Fatal(err)
				}
				f, err := gguf.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				files = append(files, f)
			}
			metadata := []gguf.Pair{{Key: "general.source.url", Value: "of another writer"}}
			dropped := []string{"general.name", "general.file_type", "general.quantization_version"}
			for _, key := range slices.Backward(files[0].Keys()) {
				if v, _ := files[0].Value(key); !strings.HasPrefix(key, "tokenizer.") && !slices.Contains(dropped, key) {
					metadata = append(metadata, gguf.Pair{Key: key, Value: v})
				}
			}
			changed := filepath.Join(dir, "changed.gguf")
			for formats, tolerance := range map[int]float64{1: 1e-4, len(files): 1} {
				var tensors []gguf.Tensor
				for _, n := range slices.Backward(files[0].Names()) {
					kind := len(n) % formats // also of matrices that are one parameter
					x, _ := files[kind].Tensor(n)
					tensors = append(tensors, x)
				}
				var b bytes.Buffer
				if err := errors.Join(gguf.Write(&b, metadata, tensors), os.WriteFile(changed, b.Bytes(), 0o600)); err != nil {
					t.Fatal(err)
				}
				o := krait.Options{Sharding: krait.Sharding{Ranks: 3}}
				nearLogits(t, changed, golden, o, tolerance)
				sameTokens(t, changed, changed, o)
			}
		})
	}
}

// TestGGUFBare: files whose tensors are all in 16 bits, also norms and A, without what Krait keeps,
// a tokenizer's tokens and the keys that have defaults, give the logits of the same numbers in f32.
func TestGGUFBare(t *testing.T) {
	goldens.CI(t)
	formats := map[gguf.Type]graph.DType{gguf.F16: graph.F16, gguf.BF16: graph.BF16}
	dropped := []string{"context_length", "vocab_size", "ssm.dt_b_c_rms", "general.type", "general.name", "general.file_type"}
	for _, name := range []string{"mamba-a", "mamba2-g4", "jamba", "falcon-h1", "granite-hybrid", "nemotron-h-moe", "lfm2-moe", "qwen3-5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			whole := filepath.Join(dir, "whole.gguf")
			if _, err := convert.Write(t.Context(), filepath.Join("../testdata/golden", name), whole, "f32", nil); err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Open(whole)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			metadata := []gguf.Pair{{Key: "tokenizer.ggml.model", Value: "gpt2"}, {Key: "tokenizer.ggml.bos_token_id", Value: uint32(0)}}
			for _, key := range f.Keys() {
				v, _ := f.Value(key)
				_, rest, _ := strings.Cut(key, ".")
				single := rest == "ssm.group_count" && v == uint32(1)
				if !single && !strings.HasPrefix(key, "krait.") && !strings.HasPrefix(key, "tokenizer.") && !slices.Contains(dropped, rest) && !slices.Contains(dropped, key) {
					metadata = append(metadata, gguf.Pair{Key: key, Value: v})
				}
			}
			for to, d := range formats {
				var narrow, wide []gguf.Tensor
				for _, n := range f.Names() {
					x, _ := f.Tensor(n)
					values, err := x.Float32s()
					if err != nil {
						t.Fatal(err)
					}
					a, err := graph.ArrayOf(values, x.Shape...).Convert(d)
					if err != nil {
						t.Fatal(err)
					}
					x.Data = graph.ArrayOf(a.Float32s()).Data
					wide = append(wide, x)
					x.Type, x.Data = to, a.Data
					narrow = append(narrow, x)
				}
				var files []string
				for i, tensors := range [][]gguf.Tensor{narrow, wide} {
					var b bytes.Buffer
					files = append(files, filepath.Join(dir, fmt.Sprint(i, ".gguf")))
					if err := errors.Join(gguf.Write(&b, metadata, tensors), os.WriteFile(files[i], b.Bytes(), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				nearLogits(t, files[0], files[1], krait.Options{Sharding: krait.Sharding{Ranks: 2}}, 1e-4)
				if _, err := checkpoint.OpenTokenizer(files[0], 1000); err == nil || !strings.Contains(err.Error(), "have no tokenizer") {
					t.Errorf("a tokenizer without tokens: %v", err)
				}
			}
		})
	}
}

// nearLogits holds a model to the logits of another.
func nearLogits(t *testing.T, got, want string, o krait.Options, tolerance float64) {
	t.Helper()
	right := logitsAfter(t, want, krait.Options{})
	for i, v := range logitsAfter(t, got, o) {
		if d := math.Abs(float64(v - right[i])); !(d <= tolerance) {
			t.Fatalf("%s, %d ranks: logit %d is %g, and %g of %s", got, o.Sharding.Ranks, i, v, right[i], want)
		}
	}
}

// wideModel writes a jamba of a golden's config whose rows have 256 elements or more: scans,
// attention, experts, and layers that have neither.
func wideModel(t *testing.T, dir string) {
	t.Helper()
	config, err := os.ReadFile("../testdata/golden/jamba/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{`"hidden_size": 64`, `"hidden_size": 256`}, {`"intermediate_size": 128`, `"intermediate_size": 512`}, {`"num_experts": 4`, `"num_experts": 2`}, {`"num_hidden_layers": 4`, `"num_hidden_layers": 3`}} {
		wider := strings.Replace(string(config), change[0], change[1], 1)
		if wider == string(config) {
			t.Fatalf("the config of jamba has no %s", change[0])
		}
		config = []byte(wider)
	}
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: config, From: "wide", DType: "f32", Seed: 1}); err != nil {
		t.Fatal(err)
	}
}

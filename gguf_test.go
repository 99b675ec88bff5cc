package krait

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/cmd/krait/convert"
)

// TestGGUF: files that llama.cpp's library wrote give the logits of the folders whose
// weights they have, 8-bit blocks those of a folder with the weights as that library widens
// them.
func TestGGUF(t *testing.T) {
	for _, c := range []struct {
		file, folder string
		tolerance    float64
	}{
		{"mamba-a-f32", "mamba-a", 1e-4}, {"mamba-a-q8_0", "gguf/mamba-a-q8_0", 1e-4},
		{"mamba2-g1-f32", "mamba2-g1", 1e-4}, {"mamba2-g1-q8_0", "gguf/mamba2-g1-q8_0", 1e-4},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			for _, ranks := range []int{1, 2, 3} {
				o := Options{Sharding: Sharding{Ranks: ranks}}
				nearLogits(t, filepath.Join("testdata/golden/gguf", c.file+".gguf"), filepath.Join("testdata/golden", c.folder), o, c.tolerance)
			}
		})
	}
}

// TestConverted: what krait convert makes of checkpoints in 8-bit blocks gives on ranks the
// logits of the folder that it makes of that, which has the numbers in f32; and in f32
// those of the checkpoint, with what llama.cpp's converter multiplies into matrices.
func TestConverted(t *testing.T) {
	for _, name := range []string{"mamba-a", "mamba-b", "mamba2-g4", "mamba2-clamp", "falcon-mamba", "jamba", "falcon-h1", "granite-hybrid", "granite-hybrid-dense", "nemotron-h", "nemotron-h-moe"} {
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
			golden := filepath.Join("testdata/golden", name)
			nearLogits(t, convertTo(golden, "f32.gguf", "f32"), golden, Options{}, 1e-4)
			blocks := convertTo(golden, "q8_0.gguf", "q8_0")
			wide := convertTo(blocks, "wide", "")
			for _, ranks := range []int{1, 3} {
				nearLogits(t, blocks, wide, Options{Sharding: Sharding{Ranks: ranks}}, 1e-4)
			}
			nearLogits(t, convertTo(golden, "bf16.gguf", "bf16"), golden, Options{Sharding: Sharding{Ranks: 2}}, 1)
		})
	}
}

// nearLogits holds a model to the logits of another.
func nearLogits(t *testing.T, got, want string, o Options, tolerance float64) {
	t.Helper()
	right := logitsAfter(t, want, Options{})
	for i, v := range logitsAfter(t, got, o) {
		if d := math.Abs(float64(v - right[i])); !(d <= tolerance) {
			t.Fatalf("%s, %d ranks: logit %d is %g, and %g of %s", got, o.Sharding.Ranks, i, v, right[i], want)
		}
	}
}

package krait

import (
	"math"
	"path/filepath"
	"testing"
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

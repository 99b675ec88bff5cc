package tests

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/quantize"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	kernels "github.com/krait-ml/krait/kernels/cpu"
)

// inBlocks is a folder like another, in 8-bit blocks.
func inBlocks(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	if _, err := quantize.Write(context.Background(), dir, to, "q8", nil); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestBlocksOverRanks: checkpoints in 8-bit blocks give on any number of ranks, most of which begin
// inside of blocks, with the kernels of each instruction set, what the float64 kernels give on one.
func TestBlocksOverRanks(t *testing.T) {
	goldens.CI(t)
	folders, isas, counts := covering.Drawn(t, goldens.Folders(t, "..")), kernels.ISAs(), []int{1, 2, 3, 5, 7}
	cases := covering.Each(t, []int{len(folders)}, len(isas), len(counts))
	for k, golden := range folders {
		t.Run(filepath.Base(golden), func(t *testing.T) {
			t.Parallel()
			dir := inBlocks(t, golden)
			want := logitsAfter(t, dir, krait.Options{Reference: true})
			hold := func(what string, o krait.Options) {
				t.Helper()
				for j, v := range logitsAfter(t, dir, o) {
					if d := math.Abs(float64(v - want[j])); !(d <= goldens.Tolerance(golden)) {
						t.Fatalf("%s, %d ranks: logit %d is %g, want %g", what, o.Sharding.Ranks, j, v, want[j])
					}
				}
			}
			hold("reference", krait.Options{Reference: true, Sharding: krait.Sharding{Ranks: 3}})
			for _, c := range cases {
				if c[0] != k {
					continue
				}
				set, err := kernels.ForISA(isas[c[1]])
				if err != nil {
					t.Fatal(err)
				}
				hold(isas[c[1]], krait.Options{Device: &cpu.Device{Kernels: set}, Sharding: krait.Sharding{Ranks: counts[c[2]]}})
			}
		})
	}
}

// logitsAfter are those after a prompt and a token more.
func logitsAfter(t *testing.T, dir string, o krait.Options) []float32 {
	t.Helper()
	m := openModel(t, dir, o)
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	ids := randomIDs(9, m.Vocab())
	if _, err = s.Step(context.Background(), ids[:8]...); err != nil {
		t.Fatal(err)
	}
	logits, err := s.Step(context.Background(), ids[8])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// TestBlocksLoss: 8-bit blocks cost the embedded model less than 0.01 bits per byte; over
// all of the text it is 0.0001 (docs/q8.md).
func TestBlocksLoss(t *testing.T) {
	const tiny = "../internal/embedded/tiny-mamba"
	text := readVal(t)
	if !goldens.All() {
		text = text[:1024]
	}
	var bits []float64
	for _, dir := range []string{tiny, ""} {
		if dir == "" {
			dir = inBlocks(t, tiny)
		}
		e, err := openModel(t, dir, krait.Options{}).Evaluate(context.Background(), text, krait.Evaluate{Window: 512})
		if err != nil {
			t.Fatal(err)
		}
		bits = append(bits, e.BitsPerToken())
	}
	loss := bits[1] - bits[0]
	t.Logf("%.6f bits per byte, and %.6f in 8-bit blocks: %+.6f", bits[0], bits[1], loss)
	if !(math.Abs(loss) < 0.01) || loss == 0 {
		t.Error("that is not what was measured")
	}
}

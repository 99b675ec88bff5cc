package tests

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/agreement"
)

// TestCutsOfIntegers: with activations in 8 bits, too, neither company nor the number of threads
// changes a bit, nor do cuts at multiples of 16.
func TestCutsOfIntegers(t *testing.T) {
	goldens.CI(t)
	for _, name := range []string{"mamba-a", "jamba", "qwen3-5-moe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := inBlocks(t, filepath.Join("../testdata/golden", name))
			open := func(workers int) *krait.Model {
				return openModel(t, dir, krait.Options{Slots: 3, Device: &cpu.Device{Workers: workers, Math: "int8"}, Sharding: krait.Sharding{Ranks: 2}})
			}
			f := feeding{m: open(2)}
			f.ids = randomIDs(72, f.m.Vocab())
			f.begin(t)
			f.m = open(6)
			for _, c := range cuts[:3] {
				f.check(t, c.name, c.sizes, true, true)
			}
		})
	}
}

// TestIntegersLoss: rounding activations to 8 bits costs the embedded model in 8-bit blocks less
// than 0.002 bits per byte, and in one token of fifty its first choice at most; over the whole text
// it is 0.0003 and 0.6 % (docs/checkpoints.md). A model without blocks has the same bits.
func TestIntegersLoss(t *testing.T) {
	const tiny = "../internal/embedded/tiny-mamba"
	text := readVal(t)
	switch {
	case goldens.Few(t):
		text = text[:512]
	case !goldens.All():
		text = text[:1024]
	}
	o := krait.Evaluate{Window: 512}
	var bits [2]float64
	var m [2]*krait.Model
	dir := inBlocks(t, tiny)
	for i, math := range []string{"f32", "int8"} {
		m[i] = openModel(t, dir, krait.Options{Device: &cpu.Device{Math: math}})
		e, err := m[i].Evaluate(context.Background(), text, o)
		if err != nil {
			t.Fatal(err)
		}
		bits[i] = e.BitsPerToken()
	}
	a, err := agreement.Measure(context.Background(), m[1], m[0], text, o)
	if err != nil {
		t.Fatal(err)
	}
	loss := bits[1] - bits[0]
	t.Logf("%+.6f bits per byte; %.2f %% the same first choice, %.2f %% the same five in order", loss, 100*a.Top1, 100*a.Top5Ordered)
	if !(math.Abs(loss) < 0.002) || loss == 0 || a.Top1 < 0.98 {
		t.Error("that is not what was measured")
	}
	want := logitsAfter(t, tiny, krait.Options{Device: &cpu.Device{Math: "f32"}})
	for i, v := range logitsAfter(t, tiny, krait.Options{Device: &cpu.Device{Math: "int8"}}) {
		if v != want[i] {
			t.Fatalf("without blocks, logit %d is %g, and %g in f32", i, v, want[i])
		}
	}
}

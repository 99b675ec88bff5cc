package tests

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"pgregory.net/rapid"
)

// backwards is a product whose sums go from the last term to the first.
var backwards = kernels.Kernel{
	Units: func(c *kernels.Call) int { return c.Args[1].Rows() },
	Run: func(c *kernels.Call, lo, hi int) {
		x, w := &c.Args[0], &c.Args[1]
		row := make([]float32, w.Cols)
		for j := lo; j < hi; j++ {
			w.Read(row, j*w.Stride)
			for i := range x.Rows() {
				var s float32
				for k := w.Cols - 1; k >= 0; k-- {
					s += x.Row(i)[k] * row[k]
				}
				c.Results[0].Row(i)[j] = s
			}
		}
	},
}

// emulatedWide is a CPU whose products of whole blocks of prompts have other bits than others, as
// with AMX, on any machine.
func emulatedWide(t *testing.T, workers int) *cpu.Device {
	t.Helper()
	chosen, err := kernelscpu.Chosen()
	if err != nil {
		t.Fatal(err)
	}
	set := maps.Clone(chosen)
	set["matmul"] = kernelscpu.ByPosition(set["matmul"], kernelscpu.Wide{Kernel: backwards, Serves: func(c *kernels.Call) bool { return c.Args[1].Blocks == nil }})
	maps.Copy(set, kernelscpu.Experts(set))
	return &cpu.Device{Kernels: set, Workers: workers}
}

// wideCPU is a kind of CPU whose products of whole blocks of prompts have other bits than others.
type wideCPU struct {
	name    string
	weights string // their format; any: those of goldens
	of      func(workers int) *cpu.Device
}

// wideCPUs are the emulated one and those that this machine has: AMX, AVX512_BF16.
func wideCPUs(t *testing.T) []wideCPU {
	list := []wideCPU{{name: "emulated", of: func(workers int) *cpu.Device { return emulatedWide(t, workers) }}}
	for _, isa := range kernelscpu.ISAs() {
		for _, math := range kernelscpu.WideMaths(isa) {
			set, err := kernelscpu.ForISA(isa)
			if math == "bf16" {
				set, err = kernelscpu.RoundingForISA(isa)
			}
			if err != nil {
				t.Fatal(err)
			}
			of := func(workers int) *cpu.Device { return &cpu.Device{Kernels: set, Workers: workers} }
			for _, weights := range slices.Compact([]string{"bf16", math}) {
				list = append(list, wideCPU{fmt.Sprintf("%s, %s by %s", isa, math, weights), weights, of})
			}
		}
	}
	return list
}

// sizes are published ones whose sums are long enough for wide products.
var sizes = []string{"mamba-130m", "mamba2-130m", "falcon-h1-0.5b"}

// folder is a golden, or for products of weights in one format two layers of the i-th of the sizes.
func (w *wideCPU) folder(t *testing.T, golden string, i int) string {
	t.Helper()
	if w.weights == "" {
		return golden
	}
	dir := t.TempDir()
	if _, err := synth.Write(t.Context(), dir, synth.Options{Like: sizes[i%len(sizes)], Layers: 2, Vocab: 300, DType: w.weights}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wideGoldens are some of the goldens, one with experts among them.
func wideGoldens(t *testing.T) []string {
	all := goldens.Folders(t, "..")
	drawn, experts := covering.Drawn(t, all), all[slices.Index(goldens.Names, "granite-hybrid")]
	if !slices.Contains(drawn, experts) {
		drawn = append(drawn, experts)
	}
	return drawn
}

// TestCutsWide is TestCuts with wide products: cuts at multiples of 64 change no bit, others do,
// and neither do company, threads nor overlap.
func TestCutsWide(t *testing.T) {
	folders := wideGoldens(t)
	for _, c := range covering.Each(t, []int{len(folders)}, 3) {
		dir, s := folders[c[0]], []krait.Sharding{{Ranks: 1}, {Ranks: 2}, {Ranks: 3, Overlap: true}}[c[1]]
		t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), s.Ranks), func(t *testing.T) {
			t.Parallel()
			m := openModel(t, dir, krait.Options{Slots: 3, Device: emulatedWide(t, s.Ranks), Sharding: krait.Sharding{Ranks: s.Ranks}})
			f := feeding{m: m, ids: randomIDs(72, m.Vocab())}
			f.begin(t)
			f.m = openModel(t, dir, krait.Options{Slots: 3, Device: emulatedWide(t, 3*s.Ranks), Sharding: s})
			for _, c := range cuts[:3] {
				for _, company := range []bool{false, true} {
					f.check(t, c.name, c.sizes, company, c.every%64 == 0)
				}
			}
		})
	}
}

// TestWideInCompany: with wide products, requests that share steps have the tokens and
// log-probabilities, to the bit, that each has alone in steps of other sizes: with prompts that
// share beginnings and are cached or not, with choices of one prompt, log-probabilities of prompts,
// drafts, and tenants that pause each other.
func TestWideInCompany(t *testing.T) {
	goldens.CI(t)
	folders, cpus := wideGoldens(t), wideCPUs(t)
	list := []krait.Sharding{{Ranks: 1}, {Ranks: 3}, {Ranks: 2, Strategy: "sequence"}, {Ranks: 2, Prefill: "context"}, {Stages: 2}, {Ranks: 2, Prefill: "context", States: "conv=e4m3"}}
	for _, c := range covering.Each(t, []int{len(folders)}, len(list), 2, len(cpus)) {
		dir, s, on := folders[c[0]], list[c[1]], cpus[c[3]]
		t.Run(fmt.Sprintf("%s/%d/cache=%d/%s", filepath.Base(dir), c[1], c[2], on.name), func(t *testing.T) {
			t.Parallel()
			dir := on.folder(t, dir, c[0])
			o := krait.Options{Slots: 3, MaxTokensPerStep: 150, Sharding: s, Device: on.of(6), Speculate: "ngram"}
			a := krait.Options{Slots: 1, Sharding: s, Device: on.of(2)}
			if s.Prefill != "" || s.States != "" { // where a cut changes bits, steps decide it
				a.Slots, a.MaxTokensPerStep = o.Slots, o.MaxTokensPerStep
			}
			if s.States == "" { // states in 16 bits are rounded where the cache takes them, too
				o.PrefixCache, o.PageTokens = int64(c[2])<<24, 24*c[2]
			}
			alone, m := openModel(t, dir, a), openModel(t, dir, o)
			prop.CheckN(t, 1, func(t *rapid.T) { wideInCompany(t, alone, m) })
		})
	}
}

func wideInCompany(t *rapid.T, alone, m *krait.Model) {
	shared := randomIDs(260, alone.Vocab())
	if rapid.Bool().Draw(t, "repeats") { // which n-grams continue
		for i := range shared {
			shared[i] = shared[i%17]
		}
	}
	var all sync.WaitGroup
	for i := range 4 {
		n := rapid.IntRange(1, 250).Draw(t, "prompt")
		g := krait.Generate{MaxTokens: rapid.IntRange(1, 9).Draw(t, "tokens"), LogProbs: true, IgnoreEOS: true, Temperature: float64(i % 2),
			PromptLogProbs: rapid.IntRange(0, 3).Draw(t, "scored") == 0, Tenant: []string{"a", "b"}[i%2]}
		prompt := append(slices.Clone(shared[:n]), i%alone.Vocab(), 3)
		var list []krait.Generate
		var want []*krait.Generation
		for range rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "choices") {
			g.Seed++
			w, err := alone.GenerateIDs(context.Background(), prompt, g)
			if err != nil {
				t.Fatal(err)
			}
			list, want = append(list, g), append(want, w)
		}
		all.Go(func() {
			err := m.GenerateChoices(context.Background(), prompt, list, func(k int, got *krait.Generation, err error) {
				if w := want[k]; err != nil || !slices.Equal(got.IDs, w.IDs) || !reflect.DeepEqual(got.LogProbs, w.LogProbs) || !reflect.DeepEqual(got.PromptLogProbs, w.PromptLogProbs) {
					t.Errorf("choice %d after a prompt of %d tokens has other bits in company: %v, %v, want %v", k, len(prompt), err, got, w)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

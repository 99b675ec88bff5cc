package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/passes"
)

// TestKernelsAsRun: what is measured by itself is what a step launches, as the meter counts
// it, and as often; of prompts with more than 128 rows, whose products are cuBLAS's, too.
func TestKernelsAsRun(t *testing.T) {
	goldens.CI(t)
	defer func(least int) { kernels.PiecesLeast = least }(kernels.PiecesLeast)
	kernels.PiecesLeast = 64 // cuBLAS multiplies small weights, too
	for _, c := range []struct {
		name   string
		prompt int
	}{{"mamba-a", 40}, {"mamba2-g4", 40}, {"falcon-mamba", 40}, {"mamba-a", 65}} {
		if c.name == "mamba-a" && c.prompt == 40 && !goldens.All() {
			continue // falcon-mamba has all of its kernels
		}
		g := goldenGraph(t, c.name, "bf16")
		list, err := Kernels(context.Background(), sim.New(sim.Options{Capability: [2]int{9, 0}}), g, c.name, KernelOptions{Decode: []int{2}, Batch: 2, Prompt: c.prompt})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []phase{{"decode 2", 2, 1, c.prompt}, {fmt.Sprintf("prompt 2x%d", c.prompt), 2, c.prompt, 0}} {
			measured, runs := map[string]int{}, map[string]int{}
			for _, k := range list {
				if way := (&File{Kernels: list}).run(&k); k.Phase != p.name || k.Way != "" && k.Way != way && k.Way != "greedy" {
					continue
				}
				for _, kernel := range strings.Fields(strings.TrimSuffix(k.Launch, " cuBLAS bf16")) {
					measured[kernel] += k.Count
				}
			}
			for _, d := range done(t, g, MeterOptions{Batch: 2, Prompt: c.prompt, Profile: profile(t)}, p) {
				if !d.Kernel {
					continue
				}
				// By itself a scan gives its result whole, and the product after it takes it apart.
				name, apart := strings.CutSuffix(d.Name, "_16_apart")
				if apart {
					name += "_16"
					runs["take_apart_f32"]++
				}
				runs[name]++
			}
			if !maps.Equal(measured, runs) {
				t.Errorf("%s, %s: measured %v, where %v runs", c.name, p.name, measured, runs)
			}
			if (runs["take_apart_f32"] > 0) != (p.past == 0 && c.prompt > 64) {
				t.Errorf("%s, %s: %v runs", c.name, p.name, runs)
			}
		}
	}
}

// TestChoices: rows that say how a token is chosen are such as may be.
func TestChoices(t *testing.T) {
	for _, draw := range []bool{false, true} {
		f := choiceRows(draw)
		for range 3 {
			var row []float32
			for range len(graph.ChoiceType().Dims[1].Fields) {
				row = append(row, f(nil))
			}
			if drawn := row[graph.ChoiceTemperature] > 0; drawn != draw || row[graph.ChoiceUniform] >= 1 || row[graph.ChoiceTopP] > 1 {
				t.Errorf("%v: %v", draw, row)
			}
		}
	}
}

// TestPiecesNarrow: a product that cuBLAS does not do in pieces, since its weight is narrow, runs
// in tiles with slices of k, whose blocks count their arrivals.
func TestPiecesNarrow(t *testing.T) {
	g, err := synth.Graph(synth.Options{Like: "mamba-130m", Layers: 1, DType: "bf16"})
	if err == nil {
		g, err = passes.Compile(g, asOnGPU)
	}
	if err != nil {
		t.Fatal(err)
	}
	narrow := g.Nodes[slices.IndexFunc(g.Nodes, func(n *graph.Node) bool {
		return strings.HasSuffix(n.Results[0].Name, "x_proj")
	})]
	err = onGPU(sim.New(sim.Options{Capability: [2]int{9, 0}}), func(v *gpu) error {
		b, err := newKernelBench(v, true)
		if err != nil {
			return err
		}
		defer b.close()
		b.phase = phase{"prompt", 1, graph.PiecesRows + 1, 0}
		var k Kernel
		if err = b.one(narrow, pieces, &k); err == nil && !strings.HasPrefix(k.Launch, "mma_split_bf16") {
			t.Errorf("%s ran", k.Launch)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

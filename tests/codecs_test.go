package tests

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels/codec"
)

// TestCodecs: every golden with every codec at 2, 3 and 8 ranks: what the first out_proj
// gives is within the bounds of the ranks' blocks and of the sum's of what it is without,
// and bytes are those of the plan, which are the formula's.
func TestCodecs(t *testing.T) {
	kinds, counts := graph.CodecKinds(), []int{2, 3, 8}
	names := covering.Drawn(t, goldens.Names)
	for _, x := range covering.Each(t, []int{len(names), len(kinds)}, len(counts)) {
		golden, ranks := names[x[0]], counts[x[2]]
		c := graph.Codec{Kind: kinds[x[1]], Block: []int{16, 32, 64}[(x[0]+x[2])%3]}
		t.Run(fmt.Sprintf("%s/%s/tp=%d", golden, c, ranks), func(t *testing.T) { runCodec(t, "../testdata/golden/"+golden, c, ranks, nil) })
	}
}

func runCodec(t *testing.T, dir string, c graph.Codec, ranks int, d exec.Device) {
	const tokens = 5
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool {
		return n.Op.Name == "matmul" && strings.Contains(n.Name(), ".out_proj")
	})
	if i < 0 {
		t.Fatal("there is no out_proj")
	}
	n := g.Nodes[i]
	site := n.Name()
	short := site[strings.LastIndexByte(site, '.')+1:]
	keep := []string{n.Args[0].Name, site}
	exact := keptOf(t, openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: ranks}, Keep: keep}), tokens, keep)
	rounded := openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: ranks, Payload: short + "=" + c.String()}, Keep: keep[1:], Device: d})
	got := keptOf(t, rounded, tokens, keep[1:])
	w := matrixOf(t, dir, n.Args[1])
	split := n.Args[0].Type
	split.Layout = graph.SplitOn(1, len(split.Dims[1].Fields))
	for token := range tokens {
		bound, sum := make([]float64, n.Args[1].Type.Dims[0].Len()), []float32(nil)
		for r := range ranks {
			part := make([]float32, len(bound))
			for _, e := range split.Extents(nil, ranks, r) {
				for o := range part {
					for k := e.Start; k < e.End(); k++ {
						part[o] += exact[0][token][k] * w[o*split.Dims[1].Len()+k]
					}
				}
			}
			codec.AddBounds(c, bound, part)
			codec.Round(c, part)
			if sum == nil {
				sum = make([]float32, len(part))
			}
			for o, v := range part {
				sum[o] += v
			}
		}
		codec.AddBounds(c, bound, sum)
		for o, want := range exact[1][token] {
			// Summands here are not those of the run to the last bit.
			if far := math.Abs(float64(got[0][token][o] - want)); !(far <= 1.001*bound[o]+1e-5) {
				t.Fatalf("token %d: element %d is off by %g; the bound is %g", token, o, far, bound[o])
			}
		}
	}
	wireBytes(t, rounded, c, tokens)
}

// wireBytes: all that travelled in codecs had the bytes of the formula, and the plan's.
func wireBytes(t *testing.T, m *krait.Model, c graph.Codec, tokens int64) {
	m.Engine().ResetCounts()
	s := sequence(t, m)
	if _, err := s.Step(context.Background(), slices.Repeat([]int{1}, int(tokens))...); err != nil {
		t.Fatal(err)
	}
	bits := map[graph.CodecKind]int64{graph.Int8: 8, graph.Int4: 4, graph.E4M3: 8, graph.E5M2: 8, graph.Scaled16: 16}[c.Kind]
	joined := map[string]bool{} // beside others, in their formats
	for _, n := range m.Compiled().Nodes {
		joined[n.Name()] = len(n.Args) > 1
	}
	coded, bytes, want := 0, int64(0), int64(0)
	for _, x := range m.Engine().Collectives() {
		if !strings.Contains(x.Name, ".out_proj") {
			continue
		}
		if coded++; !joined[x.Name] {
			bytes += x.Bytes
			width, block := x.Elems/tokens, int64(c.Block)
			want += tokens * ((width + block - 1) / block) * (2 + block*bits/8)
		}
	}
	if coded == 0 || bytes != want {
		t.Errorf("%d collectives carried %d bytes, want %d", coded, bytes, want)
	}
}

// keptOf are values after each token of a prompt.
func keptOf(t *testing.T, m *krait.Model, tokens int, names []string) [][][]float32 {
	t.Helper()
	slot, err := m.Engine().Alloc()
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]int, tokens)
	for i := range prompt {
		prompt[i] = (7*i + 1) % m.Vocab()
	}
	results, err := m.Engine().Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: prompt}}})
	if err != nil {
		t.Fatal(err)
	}
	out := make([][][]float32, len(names))
	for i, name := range names {
		x, err := results.Output(name)
		if err != nil {
			t.Fatal(err)
		}
		for row := range x.Rows() {
			out[i] = append(out[i], slices.Clone(x.Row(row)))
		}
	}
	return out
}

// matrixOf reads a parameter of a checkpoint.
func matrixOf(t *testing.T, dir string, v *graph.Value) []float32 {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := v.Def.Storage.Load(v.Name, v.Type, 1, 0, c.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = a.Convert(graph.F32); err != nil {
		t.Fatal(err)
	}
	return a.Float32s()
}

// TestCodecsNotFinite: a NaN or an infinity in a payload fails the step under
// --check-payloads, by its site, on every codec; on both directions.
func TestCodecsNotFinite(t *testing.T) {
	goldens.CI(t)
	for _, quantize := range []string{"int8", "int4:none", "none:e4m3", "e5m2", "scaled16"} {
		notFinite(t, quantize, nil)
	}
	counts, kinds := []int{1, 3}, []string{"int8", "none:e4m3"}
	for _, c := range covering.Each(t, []int{len(counts), len(kinds)}) {
		notFinite(t, kinds[c[1]], &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true, Devices: counts[c[0]], Ordered: true})})
	}
}

func notFinite(t *testing.T, quantize string, d exec.Device) {
	dir := shallow(t, "mamba-a", 2)
	open := func(by float32) *krait.Model {
		return scaled(t, dir, "layers.1.mixer.out_proj.weight", by, krait.Options{Slots: 1, Device: d,
			Sharding: krait.Sharding{Ranks: 3, Payload: "out_proj=" + quantize, CheckPayloads: true}})
	}
	firstChoices(t, open(1), 5)
	s := sequence(t, open(float32(math.Inf(1))))
	_, err := s.Step(context.Background(), 1, 2, 3)
	if err == nil || !strings.HasPrefix(err.Error(), "layers.1.mixer.out_proj") || !strings.Contains(err.Error(), "is not finite after being sent") {
		t.Errorf("%s: %v", quantize, err)
	}
}

// TestCodecsOnGPUs: every golden with every codec on 2 and 3 simulated GPUs, or ranks that share
// one: sums are within the bounds, and bytes the formula's, as on CPUs.
func TestCodecsOnGPUs(t *testing.T) {
	goldens.CI(t)
	names, kinds := goldens.Names, graph.CodecKinds()
	if !goldens.All() { // what differs by device does not by model
		names = []string{"mamba-a", "mamba2-g4"}
	}
	for _, x := range covering.Each(t, []int{len(names), len(kinds)}, 2, 2) {
		golden, ranks, gpus := names[x[0]], 2+x[2], 1
		if x[3] > 0 {
			gpus = ranks
		}
		c := graph.Codec{Kind: kinds[x[1]], Block: []int{16, 32, 64}[(x[0]+x[2])%3]}
		t.Run(fmt.Sprintf("%s/%s/tp=%d/%d GPUs", golden, c, ranks, gpus), func(t *testing.T) {
			runCodec(t, shallow(t, golden, 1), c, ranks, &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true, Devices: gpus, Ordered: true})})
		})
	}
}

// TestCodecsAlike: ranks that share a GPU and ranks that have one each give the same bits
// with codecs, of summands so far apart that the order of their sum counts.
func TestCodecsAlike(t *testing.T) {
	goldens.CI(t)
	c, err := checkpoint.Open("../testdata/golden/mamba-a")
	if err != nil {
		t.Fatal(err)
	}
	x, err := c.Tensor("backbone.layers.0.mixer.out_proj.weight")
	if err != nil {
		t.Fatal(err)
	}
	inner, dir := x.Shape[1], shallow(t, "mamba-a", 1)
	c.Close()
	apart := func(i int, v float32) float32 { return v * float32(math.Exp2(float64(9*(3*(i%inner)/inner-1)))) }
	for _, c := range []struct{ quantize, strategy string }{
		{"int4:int8", ""}, {"int8:none", ""}, {"e5m2:none", ""}, {"none:e4m3/16", ""}, {"out_proj.rs=scaled16,in_proj.ag=int8/64", "sequence"},
	} {
		var want []float32
		for _, gpus := range []int{1, 3} {
			m := altered(t, dir, ".out_proj.weight", apart, krait.Options{
				Slots:    1,
				Sharding: krait.Sharding{Ranks: 3, Payload: c.quantize, Strategy: c.strategy},
				Device:   &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true, Devices: gpus, Ordered: true})},
			})
			var got []float32
			for _, row := range keptOf(t, m, 5, []string{"logits"})[0] {
				got = append(got, row...)
			}
			if want == nil {
				want = got
			}
			for i := range want {
				if v := got[i]; v != v || math.Float32bits(v) != math.Float32bits(want[i]) {
					t.Fatalf("%s: logit %d is %v on %d GPUs, and %v on one", c.quantize, i, v, gpus, want[i])
				}
			}
		}
	}
}

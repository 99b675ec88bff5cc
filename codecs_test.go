package krait

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/models"
)

// TestCodecs: every golden with every codec at 2, 3 and 8 ranks: what the first out_proj
// gives is within the bounds of the ranks' blocks and of the sum's of what it is without,
// and bytes are those of the plan, which are the formula's.
func TestCodecs(t *testing.T) {
	for i, golden := range goldens.Names {
		dir := "testdata/golden/" + golden
		for k, kind := range graph.CodecKinds() {
			for r, ranks := range []int{2, 3, 8} {
				if !goldens.All() && r != (i+k)%3 {
					continue
				}
				c := graph.Codec{Kind: kind, Block: []int{16, 32, 64}[(i+r)%3]}
				t.Run(fmt.Sprintf("%s/%s/tp=%d", golden, c, ranks), func(t *testing.T) { runCodec(t, dir, c, ranks) })
			}
		}
	}
}

func runCodec(t *testing.T, dir string, c graph.Codec, ranks int) {
	const tokens = 5
	plain := openModel(t, dir, Options{})
	i := slices.IndexFunc(plain.Graph().Nodes, func(n *graph.Node) bool {
		return n.Op.Name == "matmul" && strings.Contains(n.Name(), ".out_proj")
	})
	if i < 0 {
		t.Fatal("there is no out_proj")
	}
	n := plain.Graph().Nodes[i]
	site := n.Name()
	short := site[strings.LastIndexByte(site, '.')+1:]
	keep := []string{n.Args[0].Name, site}
	exact := keptOf(t, openModel(t, dir, Options{Sharding: Sharding{Ranks: ranks}, Keep: keep}), tokens, keep)
	rounded := openModel(t, dir, Options{Sharding: Sharding{Ranks: ranks, Quantize: short + "=" + c.String()}, Keep: keep[1:]})
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
func wireBytes(t *testing.T, m *Model, c graph.Codec, tokens int64) {
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
func keptOf(t *testing.T, m *Model, tokens int, names []string) [][][]float32 {
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
	c, err := models.Open(dir)
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
	for _, quantize := range []string{"int8", "int4:none", "none:e4m3", "e5m2", "scaled16"} {
		open := func(by float32) *Model {
			return scaled(t, "mamba-a", "layers.1.mixer.out_proj.weight", by, Options{Slots: 1,
				Sharding: Sharding{Ranks: 3, Quantize: "out_proj=" + quantize, CheckPayloads: true}})
		}
		firstChoices(t, open(1), 5)
		s := sequence(t, open(float32(math.Inf(1))))
		_, err := s.Step(context.Background(), 1, 2, 3)
		if err == nil || !strings.HasPrefix(err.Error(), "layers.1.mixer.out_proj") || !strings.Contains(err.Error(), "is not finite after travelling") {
			t.Errorf("%s: %v", quantize, err)
		}
	}
}

// TestCodecsOnGPUs: GPUs, which have no kernels for codecs, refuse them by name of what
// would travel and by what to do instead.
func TestCodecsOnGPUs(t *testing.T) {
	for _, nccl := range []bool{false, true} {
		for _, kind := range graph.CodecKinds() {
			for _, quantize := range []string{kind.String(), kind.String() + ":none", "none:" + kind.String()} {
				m, err := Open("testdata/golden/mamba-a", Options{
					Sharding: Sharding{Ranks: 2, Quantize: "out_proj=" + quantize},
					Device:   &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true, Devices: map[bool]int{false: 1, true: 2}[nccl]})},
				})
				if err == nil {
					m.Close()
				}
				if err == nil || !strings.Contains(err.Error(), ".out_proj") || !strings.Contains(err.Error(), "travels as "+kind.String()+"/32, which GPUs do not yet: let it travel as fp16 or bf16 there, or run on the CPU") {
					t.Errorf("%s: %v", quantize, err)
				}
			}
		}
	}
}

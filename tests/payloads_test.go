package tests

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// scaled opens a copy of a checkpoint of which the tensors whose names end with suffix
// are multiplied.
func scaled(t *testing.T, from, suffix string, by float32, o krait.Options) *krait.Model {
	t.Helper()
	return altered(t, from, suffix, func(_ int, v float32) float32 { return by * v }, o)
}

// altered opens a checkpoint with other elements in the tensors of a suffix.
func altered(t *testing.T, from, suffix string, f func(i int, v float32) float32, o krait.Options) *krait.Model {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile(from + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(from + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var tensors []safetensors.Tensor
	for _, name := range file.Names() {
		x, _ := file.Tensor(name)
		if strings.HasSuffix(name, suffix) {
			x.Data = slices.Clone(x.Data)
			for i := 0; i < len(x.Data); i += 4 {
				v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
				binary.LittleEndian.PutUint32(x.Data[i:], math.Float32bits(f(i/4, v)))
			}
		}
		x.Name = name
		tensors = append(tensors, x)
	}
	err = safetensors.WriteFile(dir+"/model.safetensors", tensors, nil)
	if e := os.WriteFile(dir+"/config.json", config, 0o644); err != nil || e != nil {
		t.Fatal(err, e)
	}
	m, err := krait.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// firstChoices are the most likely next tokens after each of n tokens, -1 where logits are NaN.
func firstChoices(t *testing.T, m *krait.Model, n int) []int {
	t.Helper()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	prompt, first := make([]int, n), make([]int, n)
	for i := range prompt {
		prompt[i] = (7*i + 1) % m.Vocab()
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	fed, err := s.Feed(t.Context(), prompt, krait.Selection{Logits: rows})
	if err != nil {
		t.Fatal(err)
	}
	for i, logits := range fed.Logits {
		for j, v := range logits {
			if v != v {
				first[i] = -1
				break
			}
			if v > logits[first[i]] {
				first[i] = j
			}
		}
	}
	return first
}

// TestStatisticsOfGroups: sums of squares per group of channels, out of fp16's
// range, travel in f32 when all else is rounded: the first choices stay.
func TestStatisticsOfGroups(t *testing.T) {
	const tokens = 12
	choices := func(quantize string) []int {
		return firstChoices(t, scaled(t, "../testdata/golden/zamba2", "mamba.in_proj.weight", 30, krait.Options{Sharding: krait.Sharding{Ranks: 3, Payload: quantize}}), tokens)
	}
	want := choices("")
	for _, quantize := range []string{"fp16", "fp16,normed_sumsq=none"} {
		if got := choices(quantize); !slices.Equal(got, want) {
			t.Errorf("%s: first choices %v, want %v", quantize, got, want)
		}
	}
}

// TestCheckPayloads: a payload that leaves the range of fp16 fails the step, is
// named, and leaves a sequence that must be reset; without the check the step runs,
// and with it where nothing overflows.
func TestCheckPayloads(t *testing.T) {
	goldens.CI(t)
	ctx, dir := context.Background(), "../testdata/golden/mamba-a"
	devices := []exec.Device{nil, &cuda.Device{Driver: sim.New(sim.Options{Devices: 1})}}
	for _, c := range covering.Each(t, []int{len(devices), 2}) {
		device, ranks := devices[c[0]], 2+c[1]
		open := func(by float32, quantize string, check bool) *krait.Model {
			return scaled(t, dir, "layers.1.mixer.out_proj.weight", by, krait.Options{Slots: 1, Device: device, Keep: []string{"layers.1.mixer.out_proj"},
				Sharding: krait.Sharding{Ranks: ranks, Payload: quantize, CheckPayloads: check}})
		}
		for _, c := range []struct {
			by       float32
			quantize string
			check    bool
		}{{1, "fp16", true}, {1e6, "fp16", false}, {1e6, "fp16,out_proj=bf16", true}, {1e6, "x_proj=fp16:acc32", true}} {
			m := open(c.by, c.quantize, c.check)
			if c.check {
				firstChoices(t, m, 5)
			} else if s, err := m.NewSequence(); err != nil {
				t.Fatal(err)
			} else if _, err := s.Step(ctx, 1, 2, 3); err != nil || s.Close() != nil {
				t.Errorf("%d ranks, unchecked: %v", ranks, err)
			}
			slot, err := m.Engine().Alloc()
			if err != nil {
				t.Fatal(err)
			}
			results, err := m.Engine().Step(ctx, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1}}}})
			if err != nil {
				t.Fatal(err)
			}
			if x, err := results.Output("layers.1.mixer.out_proj"); err != nil || x.Cols != 64 {
				t.Errorf("%d ranks: the output that was asked for: %+v, %v", ranks, x, err)
			}
		}
		m := open(1e6, "fp16", true)
		const want = "layers.1.mixer.out_proj (and 2 after it) is not finite after being sent as fp16, whose largest value is 65504; send it as scaled16 (payload fp16,out_proj=scaled16), bf16 or f32 (out_proj=none)"
		s, err := m.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Step(ctx, 1, 2, 3); err == nil || err.Error() != want {
				t.Errorf("%d ranks: %v, want %s", ranks, err, want)
			}
			if _, err := s.Step(ctx, 1); err == nil || !strings.Contains(err.Error(), "free or reset it") {
				t.Errorf("%d ranks: after the overflow: %v", ranks, err)
			}
			if err := s.Reset(); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		if _, err := m.GenerateIDs(ctx, []int{1, 2, 3}, krait.Generate{MaxTokens: 4}); err == nil || err.Error() != want {
			t.Errorf("%d ranks: generate: %v, want %s", ranks, err, want)
		}
	}
}

// TestCheckPayloadsOfGraph: at the border of fp16, for each summand and for the
// sum, in a graph that is no family's.
func TestCheckPayloadsOfGraph(t *testing.T) {
	source, err := graph.Parse(`graph "g" stage=model ranks=1
input %x : f32[t 3/1]
param @w : f32[2 3/1]
%y = matmul %x @w : f32[t 2]
output y = %y
`)
	if err != nil {
		t.Fatal(err)
	}
	w := func(string) (graph.Array, error) { return graph.ArrayOf([]float32{1, 1, 1, 0, 0, 0}, 2, 3), nil }
	nan := float32(math.NaN())
	for _, device := range []exec.Device{nil, &cuda.Device{Driver: sim.New(sim.Options{Devices: 1})}} {
		for _, quantize := range []string{"fp16", "y=fp16:acc32"} {
			g, err := compileFor(source, krait.Sharding{Ranks: 3, Payload: quantize, CheckPayloads: true})
			if err != nil {
				t.Fatal(err)
			}
			e, err := krait.NewEngine(g, w, krait.Options{Device: device})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			slot, err := e.Alloc()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				x  [3]float32
				ok bool
			}{
				{[3]float32{65504, 0, 0}, true}, {[3]float32{0, -65519, 0}, true}, {[3]float32{0, 0, 65520}, false},
				{[3]float32{30000, 20000, 10000}, true}, {[3]float32{30000, 30000, 10000}, false}, {[3]float32{1e5, -1e5, 0}, false},
				{[3]float32{0, nan, 0}, false}, {[3]float32{1, 2, 3}, true},
			} {
				rows := append([]float32{1, 1, 1}, c.x[:]...)
				b := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: 2}}, Inputs: map[string]graph.Array{"x": graph.ArrayOf(rows, 2, 3)}}
				_, err := e.Step(context.Background(), &b)
				if (err == nil) != c.ok || err != nil && !strings.HasPrefix(err.Error(), "y is not finite after being sent as fp16") {
					t.Errorf("%s, %v: %v", quantize, c.x, err)
				}
				if err := e.Reset(slot); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestCheckPayloadsRefuses: without a payload in fp16 or a codec there is nothing to check.
func TestCheckPayloadsRefuses(t *testing.T) {
	const want = "no payload is fp16 or a codec"
	for _, s := range []krait.Sharding{{}, {Ranks: 2}, {Ranks: 2, Payload: "bf16"}, {Ranks: 2, Payload: "out_proj=none"}} {
		s.CheckPayloads = true
		if _, err := krait.Embedded(krait.Options{Sharding: s}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}

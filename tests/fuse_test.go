package tests

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// TestFusedModels: for every checkpoint, on one rank and on three, what runs gives
// the bits of the graph that is proved and drawn, in which nothing is fused.
func TestFusedModels(t *testing.T) {
	for _, dir := range covering.Drawn(t, goldens.Folders(t, "..")) {
		for _, ranks := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), ranks), func(t *testing.T) {
				m, err := krait.Open(dir, krait.Options{Slots: 2, Sharding: krait.Sharding{Ranks: ranks}})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				compareApart(t, m, weights(t, dir))
			})
		}
	}
}

// compareApart runs two sequences, a prompt and then a token each, on the model's
// engine and on one of its graph as it is.
func compareApart(t *testing.T, m *krait.Model, weights krait.Weights) {
	g := m.Graph()
	if m.Ranks() > 1 {
		_, g = bothSides(t, g, passes.Options{Ranks: m.Ranks()})
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	apart, err := exec.New(schedules, weights, exec.Options{Device: &cpu.Device{}, Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer apart.Close()
	for _, e := range []*exec.Engine{m.Engine(), apart} {
		for range 2 {
			if _, err := e.Alloc(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, batch := range []exec.Batch{
		{Sequences: []exec.Sequence{{Slot: 1, Tokens: []int{1, 2, 3, 4, 5, 6, 7}, Rows: []int{0, 6}}, {Slot: 0, Tokens: []int{9, 8}, Rows: []int{1}}}},
		{Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{3}, Rows: []int{0}}, {Slot: 1, Tokens: []int{5}, Rows: []int{0}}}},
	} {
		got, want := stepAll(t, m, m.Engine(), &batch), stepAll(t, m, apart, &batch)
		if !slices.Equal(got, want) {
			t.Fatal("logits or states are not what they are apart")
		}
	}
}

// stepAll steps an engine and gives the bits of its logits, and of the states.
func stepAll(t *testing.T, m *krait.Model, e *exec.Engine, b *exec.Batch) (bits []uint32) {
	t.Helper()
	results, err := e.Step(context.Background(), b)
	if err != nil {
		t.Fatal(err)
	}
	add := func(values []float32) {
		for _, v := range values {
			bits = append(bits, math.Float32bits(v))
		}
	}
	out, err := results.Output("logits")
	if err != nil {
		t.Fatal(err)
	}
	for row := range out.Rows() {
		add(out.Row(row))
	}
	for _, state := range e.States() {
		for slot := range 2 {
			s, err := e.State(slot, state.Name)
			if err != nil {
				t.Fatal(err)
			}
			add(s)
		}
	}
	return bits
}

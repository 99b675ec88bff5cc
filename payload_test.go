package krait

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/models"
)

// scaledEngine is an engine for a golden of which the tensors whose names end with
// suffix are multiplied.
func scaledEngine(t *testing.T, dir, suffix string, by float32, o Options) *exec.Engine {
	t.Helper()
	c, err := models.Open("testdata/golden/" + dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, err := Shard(c.Graph, o.Sharding)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Compile(g, func(name string) (graph.Array, error) {
		a, err := c.Tensor(name)
		if err != nil || !strings.HasSuffix(name, suffix) {
			return a, err
		}
		values := make([]float32, a.Elems())
		for i, v := range a.Float32s() {
			values[i] = by * v
		}
		return graph.ArrayOf(values, a.Shape...), nil
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// feedAll runs a prompt of n tokens and wants all of its rows.
func feedAll(e *exec.Engine, n int) error {
	slot, err := e.Alloc()
	if err != nil {
		return err
	}
	q := exec.Sequence{Slot: slot}
	for i := range n {
		q.Tokens, q.Rows = append(q.Tokens, (7*i+1)%256), append(q.Rows, i)
	}
	return e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{q}})
}

// firstChoices are the most likely next tokens after each of n tokens, -1 where
// logits are NaN.
func firstChoices(t *testing.T, e *exec.Engine, n int) []int {
	t.Helper()
	if err := feedAll(e, n); err != nil {
		t.Fatal(err)
	}
	logits, err := e.Output("logits")
	if err != nil {
		t.Fatal(err)
	}
	first := make([]int, n)
	for i := range first {
		for j, v := range logits.Row(i) {
			if math.IsNaN(float64(v)) {
				first[i] = -1
				break
			}
			if v > logits.Row(i)[first[i]] {
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
	open := func(quantize string) *exec.Engine {
		return scaledEngine(t, "zamba2", "mamba.in_proj.weight", 30, Options{Sharding: Sharding{Ranks: 3, Quantize: quantize}})
	}
	want := firstChoices(t, open(""), tokens)
	for _, quantize := range []string{"fp16", "fp16,normed_sumsq=none"} {
		same := 0
		for i, id := range firstChoices(t, open(quantize), tokens) {
			if id == want[i] {
				same++
			}
		}
		if same != tokens {
			t.Errorf("%s keeps %d of %d first choices", quantize, same, tokens)
		}
	}
}

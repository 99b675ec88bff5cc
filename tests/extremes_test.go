package tests

import (
	"context"
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
)

// extreme opens a golden whose tensors of some names are set to one value.
func extreme(t *testing.T, golden string, values map[string]float32, o krait.Options) *exec.Engine {
	t.Helper()
	c, err := checkpoint.Open(shallow(t, golden, 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e, err := krait.NewEngine(c.Graph, func(name string) (graph.Array, error) {
		a, err := c.Tensor(name)
		for part, v := range values {
			if err == nil && strings.HasSuffix(name, part) {
				a, err = graph.ArrayOf(slices.Repeat([]float32{v}, a.Elems()), a.Shape...).Convert(a.DType)
			}
		}
		return a, err
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// prefilled is the logits after a prompt, and after one token more.
func prefilled(t *testing.T, e *exec.Engine, ids []int) (out []float32) {
	t.Helper()
	slot, err := e.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range [][]int{ids, {7}} {
		r, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: tokens}}})
		if err != nil {
			t.Fatal(err)
		}
		logits, err := r.Output("logits")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, logits.Row(0)...)
	}
	return out
}

// TestExtremeRates: where exp(A_log) is beyond float32, and where a step is 0, all
// devices give what the float64 kernels do.
func TestExtremeRates(t *testing.T) {
	goldens.CI(t)
	ids := randomIDs(37, 60) // chunks of both devices, and what is left of one
	models := []string{"mamba2-g1", "mamba-a"}
	values := []map[string]float32{
		{"A_log": 89}, {"A_log": 1e30}, {"A_log": 88.6, "dt_bias": -200, "dt_proj.bias": -200}, {"A_log": 200, "dt_bias": -200, "dt_proj.bias": -200},
	}
	devices := []krait.Options{{}, {Sharding: krait.Sharding{Ranks: 2}}, {Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: 1})}}}
	known := map[[2]int][]float32{} // by model and values
	for _, c := range covering.Cases(t, len(models), len(values), len(devices)) {
		golden, v := models[c[0]], values[c[1]]
		want := known[[2]int(c)]
		if want == nil {
			want = prefilled(t, extreme(t, golden, v, krait.Options{Reference: true}), ids)
			known[[2]int(c)] = want
		}
		for i, got := range prefilled(t, extreme(t, golden, v, devices[c[2]]), ids) {
			if d := math.Abs(float64(got - want[i])); !(d <= 1e-4) {
				t.Errorf("%s, %v, device %d: logit %d is %g, want %g", golden, v, c[2], i, got, want[i])
				break
			}
		}
	}
}

// TestOverflowingNorm: a sum of squares beyond float32, as ranks exchange it, is
// no norm of zeros: logits are NaN, which nothing chooses from.
func TestOverflowingNorm(t *testing.T) {
	for what, o := range map[string]krait.Options{
		"2 ranks": {Sharding: krait.Sharding{Ranks: 2}},
		"cuda":    {Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: 1})}},
	} {
		logits := prefilled(t, extreme(t, "mamba2-g1", map[string]float32{"mixer.norm.weight": 1, "D": 1e25}, o), []int{1, 2, 3})
		if !slices.ContainsFunc(logits, func(x float32) bool { return x != x }) {
			t.Errorf("%s: logits are %v", what, logits[:4])
		}
	}
}

package importance

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/imatrix"
)

const goldens = "../../testdata/golden"

func measure(t *testing.T, name string, ids []int) *imatrix.Matrix {
	t.Helper()
	open := func(dir string, keep []string) (*krait.Model, error) {
		return krait.Open(dir, krait.Options{Slots: 1, Keep: keep})
	}
	m, err := Run(t.Context(), filepath.Join(goldens, name), open, ids, Options{Window: 40})
	if err != nil {
		t.Fatal(name, err)
	}
	return m
}

func someIDs(n int) (ids []int) {
	for i := range n {
		ids = append(ids, i*7%50)
	}
	return ids
}

// TestFirst: the inputs of the first layer are the normed rows of the embedding, in float64.
func TestFirst(t *testing.T) {
	ids := someIDs(100)
	c, err := checkpoint.Open(filepath.Join(goldens, "mamba-a"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	table, err := c.Tensor("backbone.embeddings.weight")
	norm, err2 := c.Tensor("backbone.layers.0.norm.weight")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	x, w := table.Float32s(), norm.Float32s()
	want := make([]float64, len(w))
	for _, id := range ids {
		row, squares := x[id*len(w):][:len(w)], 0.0
		for _, v := range row {
			squares += float64(v) * float64(v)
		}
		by := squares/float64(len(w)) + 1e-5
		for j, v := range row {
			want[j] += float64(v) * float64(v) / by * float64(w[j]) * float64(w[j])
		}
	}
	e := measure(t, "mamba-a", ids).Entries["blk.0.ssm_in.weight"]
	if e == nil || len(e.Counts) != 1 || e.Counts[0] != float32(len(ids)) {
		t.Fatalf("%+v", e)
	}
	for j, v := range want {
		if math.Abs(float64(e.Sums[j])-v) > 1e-4*v {
			t.Errorf("column %d: %g, want %g", j, e.Sums[j], v)
		}
	}
}

// TestExperts: experts have the inputs of the tokens that chose them: top for each token, whose
// sums are top times those of all tokens; whether a file has one tensor of them or several.
func TestExperts(t *testing.T) {
	for _, c := range []struct {
		name, all, experts string
		top                float32
	}{
		{"jamba", "blk.1.ffn_gate_inp.weight", "blk.1.ffn_up_exps.weight", 2},
		{"qwen3-5-moe", "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight", 2},
	} {
		ids := someIDs(90)
		m := measure(t, c.name, ids)
		all, e := m.Entries[c.all], m.Entries[c.experts]
		if all == nil || e == nil || len(e.Counts) < 2 {
			t.Fatalf("%s: %v, %v", c.name, all, e)
		}
		var tokens float32
		sums := make([]float64, len(all.Sums))
		for k, n := range e.Counts {
			tokens += n
			for j := range sums {
				sums[j] += float64(e.Sums[k*len(sums)+j])
			}
		}
		if tokens != c.top*float32(len(ids)) {
			t.Errorf("%s: %g tokens of experts, want %g of each of %d", c.name, tokens, c.top, len(ids))
		}
		for j, v := range all.Sums {
			if want := float64(c.top * v); math.Abs(sums[j]-want) > 1e-4*want {
				t.Errorf("%s: column %d of experts sums to %g, want %g", c.name, j, sums[j], want)
			}
		}
		for name := range m.Entries {
			if strings.Contains(name, "down_exps") {
				t.Errorf("%s: %s has an entry, and its inputs are no value", c.name, name)
			}
		}
	}
}

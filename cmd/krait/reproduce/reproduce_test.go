package reproduce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport runs the evaluation: it is what docs/reproduction says, and it has what does
// not hang on rates, which is Mamba's longest prompts, and the paper's counts.
func TestReport(t *testing.T) {
	r, err := Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exact := 0
	for _, x := range r.Lines {
		if strings.HasPrefix(x.Claim, "max_input") && strings.Contains(x.Claim, ".Mamba.") || strings.HasPrefix(x.Claim, "collectives") && x.Simulated != "" {
			exact++
			if x.Difference != "none" {
				t.Errorf("%s: published %s, simulated %s", x.Claim, x.Published, x.Simulated)
			}
		}
		for claim, want := range map[string]string{"+max_input_length_batch_256.A6000.Mamba.TP2": "128", "+max_input_length_batch_256.A100.Mamba.TP2": "256"} {
			if x.Claim == claim && x.Simulated != want {
				t.Errorf("%s: %s, want %s", claim, x.Simulated, want)
			}
		}
	}
	if exact != 8 {
		t.Errorf("%d figures that must be exact, want 8", exact)
	}
	for _, o := range r.Order {
		if o.After >= o.Before {
			t.Errorf("%s, batch %d: a step takes %g s with overlap, and %g without", o.Machine, o.Batch, o.After, o.Before)
		}
	}
	committed(t, r)
}

// committed holds the report against that of docs.
func committed(t *testing.T, r *Report) {
	t.Helper()
	dir, docs := t.TempDir(), "../../../docs/reproduction"
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(list) != 5 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	for _, file := range list {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(docs, filepath.Base(file)))
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/reproduction/%s is not what comes out; krait reproduce -o docs/reproduction writes it anew (%v)", filepath.Base(file), err)
		}
	}
}

// TestClaims: every figure is there once, with a range that is one.
func TestClaims(t *testing.T) {
	claims, err := readClaims()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range claims {
		if seen[c.Leaf] {
			t.Errorf("%s is there twice", c.Leaf)
		}
		seen[c.Leaf] = true
		if len(c.Published) == 2 && c.Published[0] >= c.Published[1] {
			t.Errorf("%s: %v is no range", c.Leaf, c.Published)
		}
		for _, m := range c.models() {
			if c.Measure != "" && c.In != 0 && len(c.points(m)) == 0 {
				t.Errorf("%s: the grid of %s has no such point", c.Leaf, m.name)
			}
		}
	}
}

// TestOutside: a range beyond another is told at the end that is further out.
func TestOutside(t *testing.T) {
	for _, c := range []struct {
		a, b span
		want float64
	}{{span{2, 3}, span{1, 4}, 0}, {span{0, 3}, span{1, 4}, -1}, {span{0, 9}, span{1, 4}, 5}, {span{-9, 5}, span{1, 4}, -10}, {span{7, 7}, span{5, 5}, 2}} {
		if got := c.a.outside(c.b); got != c.want {
			t.Errorf("%v outside of %v: %g, want %g", c.a, c.b, got, c.want)
		}
	}
}

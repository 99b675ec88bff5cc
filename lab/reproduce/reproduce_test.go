package reproduce

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

// TestReport runs the evaluation: docs/reproduction is up to date, and what does not depend on
// rates equals the paper: Mamba's longest prompts, and counts.
func TestReport(t *testing.T) {
	if !goldens.All() {
		t.Skip("with KRAIT_TEST_ALL: it takes ten CPU-seconds")
	}
	r, err := Run(t.Context(), nil)
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
	holds(t, r)
	committed(t, r)
}

// holds fails where what the report says of its answers is not so.
func holds(t *testing.T, r *Report) {
	t.Helper()
	find := func(machine, what string) *Answer {
		i := slices.IndexFunc(r.Answers, func(a Answer) bool { return a.Machine == machine && a.If == what })
		if i < 0 {
			t.Fatalf("no answer for %s if %s", machine, what)
		}
		return &r.Answers[i]
	}
	mamba, mamba2, falcon, zamba := 0, 1, 2, 3
	a6000, a100 := span{226, 298}, span{150, 199}
	within := func(machine, what string, model int, points float64) {
		t.Helper()
		of := map[string]span{"A6000": a6000, "A100": a100}[machine]
		if d := find(machine, what).gains[model].outside(of); d < -points || d > points {
			t.Errorf("%s, if %s: %s is %+.1f points outside", machine, what, evaluated[model].name, d)
		}
	}
	fp16 := func(machine, what string, of span) {
		t.Helper()
		if x := find(machine, what).fp16; x.outside(of) != 0 {
			t.Errorf("%s, if %s: sums in fp16 bring %v", machine, what, x)
		}
	}
	within("A6000", "sums took no time", mamba, 2)
	for _, what := range []string{"kernels took twice as long", "kernels took three times as long"} {
		within("A6000", what, mamba, 15)
		within("A6000", what, mamba2, 76)
		fp16("A6000", what, span{3, 12})
	}
	for _, model := range []int{falcon, zamba} {
		within("A6000", "4 GPUs had the batch of one, and kernels took three times as long", model, 25)
		if x := find("A6000", "4 GPUs had the batch of one").gains[model]; x.hi > a6000.lo {
			t.Errorf("%s gains %v with the batch of one GPU", evaluated[model].name, x)
		}
	}
	for _, what := range []string{"nothing: as simulated above", "kernels took three times as long", "a launch took 10 µs"} {
		for model, x := range find("A100", what).gains {
			if x.lo < 250 {
				t.Errorf("A100, if %s: %s gains %v", what, evaluated[model].name, x)
			}
		}
	}
	slow := "sums took what they take over the A6000's PCIe"
	for _, model := range []int{mamba, mamba2, falcon} {
		within("A100", slow, model, 15)
	}
	if x := find("A100", slow).fp16; x.lo < 10 {
		t.Errorf("slower sums in fp16 bring %v", x)
	}
	fp16("A100", slow+", and kernels twice as long", span{3, 10.5})
	few := find("A100", "the batch were 64, and a launch took 10 µs")
	if few.tpot < 0.9*18.2 || few.tpot > 1.1*18.2 || few.fp16.hi > 0 || few.gains[mamba].lo > 199 || few.gains[mamba].hi < 199 {
		t.Errorf("64 sequences: %+v", few)
	}
	if most := find("A100", "nothing: as simulated above").tpot; most < 5.5*18.2 || most > 6.5*18.2 {
		t.Errorf("the largest batch takes %g ms for a token", most)
	}
}

// committed holds the report against that of docs.
func committed(t *testing.T, r *Report) {
	t.Helper()
	dir, docs := t.TempDir(), "../../docs/reproduction"
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

// TestSummary: a figure comes out if its range is inside the published one, not if it contains it,
// and what is part of a figure does not count.
func TestSummary(t *testing.T) {
	r := &Report{}
	for _, x := range []struct {
		leaf      string
		simulated span
	}{{"inside", span{60, 70}}, {"equal", span{50, 80}}, {"contains", span{10, 120}}, {"near", span{40, 95}}, {"+part", span{60, 70}}} {
		c := &claim{Leaf: x.leaf, Unit: "%"}
		r.Lines = append(r.Lines, Line{claim: c, published: span{50, 80}, simulated: x.simulated, Difference: "any"})
	}
	if got, want := r.summary(), "Of 4 figures that are simulated, 2 come out, and 1 more within 15 points."; got != want {
		t.Errorf("%s, want %s", got, want)
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

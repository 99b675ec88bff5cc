package check

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/passes"
)

// hasValue reports whether the first mixer has one of the values.
func hasValue(t *testing.T, dir string, names ...string) bool {
	t.Helper()
	_, g, err := models.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := g.Value("layers.0.mixer." + name)
		return ok
	})
}

// tolerances are those that the goldens' README suggests where it is not 1e-4:
// that reference's own two paths differ by 1e-4.
var tolerances = map[string]float64{"zamba2": 3e-4}

// TestRanks: every golden checkpoint passes on 1, 2, 3, 4 and 8 ranks, by every
// strategy, within the tolerance of one rank, in all ways of running it, with the
// same greedy tokens.
func TestRanks(t *testing.T) {
	configs, err := filepath.Glob("../../testdata/golden/*/config.json")
	if err != nil || len(configs) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, config := range configs {
		dir := filepath.Dir(config)
		for _, ranks := range []int{1, 2, 3, 4, 8} {
			for _, s := range passes.Strategies {
				if s.Name == "paper-naive" && !hasValue(t, dir, "x_proj") || s.Name == "replicated-x" && !hasValue(t, dir, "x_proj", "dt_proj_w") {
					continue // they are about the first generation's x_proj
				}
				t.Run(fmt.Sprintf("%s/tp=%d/%s", filepath.Base(dir), ranks, s.Name), func(t *testing.T) {
					tolerance := 1e-4
					if x, ok := tolerances[filepath.Base(dir)]; ok {
						tolerance = x
					}
					chunks := []int{1, 3, 16}
					if ranks == 2 || ranks == 3 {
						chunks = []int{3} // chunks are nothing to ranks; all of them at some counts will do
					}
					o := Options{Tolerance: tolerance, Chunks: chunks, Sharding: krait.Sharding{Ranks: ranks, Strategy: s.Name}}
					ok, err := Run(context.Background(), dir, o, func(l Line) {
						if l.Fail != "" {
							t.Errorf("%s %s: %g at %v, %s: %s", l.Prompt, l.Quantity, l.Max, l.At, l.Way, l.Fail)
						}
					})
					if err != nil || !ok {
						t.Errorf("passed: %v, %v", ok, err)
					}
				})
			}
		}
	}
}

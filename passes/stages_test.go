package passes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

// TestCutEvenly: the largest run is the least of all cuts, by trying all.
func TestCutEvenly(t *testing.T) {
	r := rand.New(rand.NewPCG(prop.Seed(t), 0))
	for range 400 {
		costs := make([]float64, 1+r.IntN(9))
		for i := range costs {
			costs[i] = float64(r.IntN(20))
		}
		n := 1 + r.IntN(len(costs))
		got := cutEvenly(costs, n)
		if len(got) != n-1 || !slices.IsSorted(got) || slices.Contains(got, 0) || len(slices.Compact(slices.Clone(got))) != n-1 {
			t.Fatalf("%v in %d: %v", costs, n, got)
		}
		if a, b := largest(costs, got), leastOf(costs, n); a != b {
			t.Fatalf("%v in %d: cut at %v the largest is %g, the least %g", costs, n, got, a, b)
		}
	}
}

// largest is the largest sum of runs that begin at cuts.
func largest(costs []float64, cuts []int) (most float64) {
	from := 0
	for _, to := range append(slices.Clone(cuts), len(costs)) {
		sum := 0.0
		for _, c := range costs[from:to] {
			sum += c
		}
		most, from = max(most, sum), to
	}
	return most
}

// leastOf tries all cuts in n runs.
func leastOf(costs []float64, n int) float64 {
	if n == 1 {
		return largest(costs, nil)
	}
	least := largest(costs, nil)
	for k := n - 1; k < len(costs); k++ {
		least = min(least, max(leastOf(costs[:k], n-1), largest(costs[k:], nil)))
	}
	return least
}

package ptx

import (
	"math"
	"slices"
	"testing"
)

// TestProduct: sums of a product stay in accumulators of tensor cores, which cut off what is below
// the last of their bits at each step.
func TestProduct(t *testing.T) {
	row := func(first, rest float32, n int) []float32 {
		return append([]float32{first}, slices.Repeat([]float32{rest}, n-1)...)
	}
	ones, inf, nan := row(1, 1, 40), float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		what       string
		capability [2]int
		a, b       []float32
		tf32       bool
		want       float32
	}{
		{"the last bit on 8.0", [2]int{8, 0}, row(1, 0x1p-24, 33), ones, false, 1 + 30*0x1p-24},
		{"a bit below it on 8.0", [2]int{8, 0}, row(1, 0x1p-25, 33), ones, false, 1},
		{"the last bit on 9.0", [2]int{9, 0}, row(1, 0x1p-25, 33), ones, false, 1 + 28*0x1p-25},
		{"a bit below it on 9.0", [2]int{9, 0}, row(1, 0x1p-26, 33), ones, false, 1},
		{"a step of 8", [2]int{8, 0}, row(1, 0x1p-24, 7), ones, false, 1 + 6*0x1p-24},
		{"two of 4, of tf32", [2]int{8, 0}, row(1, 0x1p-24, 7), ones, true, 1 + 4*0x1p-24},
		{"whole numbers", [2]int{9, 0}, row(-3, 2, 17), ones, false, 29},
		{"infinity", [2]int{9, 0}, row(1, inf, 20), ones, false, inf},
		{"infinity times 0", [2]int{9, 0}, row(inf, 1, 20), row(0, 1, 20), false, nan},
		{"NaN", [2]int{8, 0}, row(1, 1, 20), row(1, nan, 20), false, nan},
		{"one term", [2]int{8, 0}, row(3, 0, 1), row(5, 0, 1), false, 15},
	} {
		k := len(c.a)
		got := Product(c.capability, slices.Concat(ones[:k], c.a), c.b[:k], 2, 1, k, c.tf32)[1]
		if got != c.want && (got == got || c.want == c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

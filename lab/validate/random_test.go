package validate

import (
	"math"
	"slices"
	"testing"
)

// TestRandom: any part can be made alone, the numbers have the mean and the
// deviation that they should, and other names and seeds have others.
func TestRandom(t *testing.T) {
	const n = 1 << 16
	s := newStream(1, "tensor w")
	all := make([]float32, n)
	s.fill(all, 0, 0.5)
	for _, at := range []int{0, 1, 2, 63, 64, 65, 4093, n - 1} {
		part := make([]float32, min(17, n-at))
		s.fill(part, at, 0.5)
		if !slices.Equal(part, all[at:at+len(part)]) {
			t.Errorf("other numbers from %d on", at)
		}
	}
	var sum, squares, product float64
	for i, v := range all {
		x := float64(v)
		sum += x
		squares += x * x
		if product += x * float64(all[(i+1)%n]); math.Abs(x) > 0.5*sqrt3 {
			t.Fatalf("entry %d is %g", i, x)
		}
	}
	if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.01 || math.Abs(deviation-0.5) > 0.01 || math.Abs(product/n) > 0.01 {
		t.Errorf("mean %g, deviation %g, product of neighbours %g", mean, deviation, product/n)
	}
	if v := s.value(7); v != float64(float32(v)) || float32(v/2) != all[7] {
		t.Errorf("entry 7 is %g, and %g of half the size", v, all[7])
	}
	for _, other := range []stream{newStream(2, "tensor w"), newStream(1, "tensor v"), newStream(1, "value w"), newStream(1, "tensor w.x")} {
		same := 0
		for i := range n {
			if other.bits(i) == s.bits(i) {
				same++
			}
		}
		if same > 0 {
			t.Errorf("%d of %d entries are the same", same, n)
		}
	}
}

func TestInParts(t *testing.T) {
	for _, n := range []int{0, 1, 1<<16 - 1, 1 << 16, 5<<16 + 3} {
		seen := make([]bool, n)
		inParts(n, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				seen[i] = true
			}
		})
		if slices.Contains(seen, false) {
			t.Errorf("some of %d are left out", n)
		}
	}
}

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// dotPairs is what VDPBF16PS adds to a lane: the upper product first, each rounded once, where
// numbers below 2^-126 are 0, and results that are below it once rounded to 24 bits.
func dotPairs(a, b uint32, c float32) float32 {
	lower := func(pair uint32) float32 { return math.Float32frombits(pair << 16) }
	upper := func(pair uint32) float32 { return math.Float32frombits(pair &^ 0xffff) }
	return flushedFMA(lower(a), lower(b), flushedFMA(upper(a), upper(b), c))
}

// flushedFMA is a b + c rounded once, where numbers below 2^-126 are 0, and results that are below
// it once rounded to 24 bits; NaN in c comes out.
func flushedFMA(a, b, c float32) float32 {
	flush := func(x float32) float32 {
		if math.Abs(float64(x)) < 0x1p-126 {
			return float32(math.Copysign(0, float64(x)))
		}
		return x
	}
	if c != c {
		return c
	}
	sum, finite := oddFMA(flush(a), flush(b), flush(c))
	if finite && math.Abs(sum) < 0x1p-125 { // rounded as if no exponent were too low
		if sum = float64(float32(sum*0x1p200)) * 0x1p-200; math.Abs(sum) < 0x1p-126 {
			sum = math.Copysign(0, sum)
		}
	}
	return float32(sum)
}

// TestDotPairs holds the emulation against cases that were measured on a Zen 4.
func TestDotPairs(t *testing.T) {
	bits := math.Float32frombits
	pair := func(lower, upper float32) uint32 {
		return math.Float32bits(lower)>>16 | math.Float32bits(upper)&^0xffff
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		a, b uint32
		c    float32
		want float32
	}{
		{pair(1, 2), pair(3, 5), 7, 20},
		{pair(0x1p-30, 1), pair(1, -1), 1, 0x1p-30},                // lower first would lose it
		{pair(1, 0), pair(1, 0), bits(1), 1},                       // c below the normal numbers is 0
		{pair(0x1p-130, 0), pair(0x1p100, 0), 0, 0},                // a, too
		{pair(0x1p-63, 0), pair(-0x1p-64, 0), 0x1p-126, 0},         // and a result
		{pair(0x1p-100, 0), pair(-0x1p-50, 0), 0x1p-126, 0},        // 24 bits less than 2^-126, which fmaf rounds up
		{pair(0x1p-100, 0), pair(-0x1p-51, 0), 0x1p-126, 0x1p-126}, // rounds to 2^-126
		{pair(inf, 0), pair(0, 0), 0, float32(math.NaN())},
		{pair(1, inf), pair(1, 1), 0, inf},
	} {
		if got := dotPairs(c.a, c.b, c.c); got != c.want && (got == got || c.want == c.want) {
			t.Errorf("%#x times %#x and %g is %g, want %g", c.a, c.b, c.c, got, c.want)
		}
	}
}

// emulatedDots are dots with another set's packing, which multiply in Go.
func emulatedDots(like *panels) panels {
	p := *like
	for v := range p.multiply {
		p.multiply[v] = func(w, x, sums *float32, steps, groups, adds, apart int, _ uintptr, _, _ int) {
			emulatePanel(p.lanes, v+1, w, x, sums, steps, groups, adds, apart)
		}
	}
	p.packBF16, p.tokens, p.depth = nil, 1, 1
	return p
}

// emulatePanel is what a panelTile does; see the generator.
func emulatePanel(lanes, vectors int, w, x, sums *float32, steps, groups, adds, apart int) {
	each, width := lanes/panelParts, lanes*vectors
	size := tokenGroup * width
	weights, tokens := unsafe.Slice(w, steps*each*width), unsafe.Slice(x, groups*steps*each*tokenGroup)
	out := unsafe.Slice(sums, adds*apart+groups*size)
	for g := range groups {
		for i := range size {
			t, r := i/width, i%width
			var s [2]float32
			for k := range steps * each {
				s[k%each] = dotPairs(math.Float32bits(weights[k*width+r]), math.Float32bits(tokens[(g*steps*each+k)*tokenGroup+t]), s[k%each])
			}
			sum := s[0]
			if each == 2 {
				sum = s[1] + s[0]
			}
			for level := range adds {
				sum += out[level*apart+g*size+i]
			}
			out[adds*apart+g*size+i] = sum
		}
	}
}

// TestDots: the processor's products of pairs of bf16 have the bits of the emulation.
func TestDots(t *testing.T) {
	if !hasAVX512BF16() {
		t.Skip("this machine has no AVX512_BF16; see TestDotsInterpreted")
	}
	emulated := emulatedDots(&panelsAVX512)
	checkDots(t, wideProducts["bf16"]["avx512_bf16"][0], emulated.ofPairs(&convertAVX2))
}

// checkDots: products of pairs of bf16 are near to float64, in tiles of all sizes, and a token has
// the same bits alone, and by other panels.
func checkDots(t *testing.T, kernel, other Wide) {
	t.Helper()
	rng := rand.New(rand.NewPCG(41, 0))
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	for i, tokens := range []int{1, 4, 5, 19} {
		for j, n := range []int{49, 16, 47, 1} {
			if i != j && !goldens.All() {
				continue
			}
			k := kernels.ShortDepth + 2*[]int{0, 1, 16, 17}[(i+j/2)%4]
			x, w := table(graph.F32, tokens, k, k+rng.IntN(3), rng.IntN(8)), table(graph.BF16, n, k, k+2*rng.IntN(3), rng.IntN(16))
			y := table(graph.F32, tokens, n, n+rng.IntN(6), rng.IntN(8))
			fill(&x, gauss)
			fill(&w, gauss)
			fill(&y, func() float32 { return 1e30 })
			run := func(by Wide, x, y kernels.Tensor) {
				runAll(by.Kernel, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
			}
			run(kernel, x, y)
			what := fmt.Sprintf("%d tokens, %d columns of %d", tokens, n, k)
			token := rng.IntN(tokens)
			one := table(graph.F32, 1, n, n, 0)
			run(kernel, part(x, token, token+1), one)
			if !slices.Equal(one.Row(0), y.Row(token)) {
				t.Fatalf("%s: token %d has other bits alone", what, token)
			}
			run(other, part(x, token, token+1), one)
			if !slices.Equal(one.Row(0), y.Row(token)) {
				t.Fatalf("%s: token %d has other bits than by other panels", what, token)
			}
			kernels.Round(graph.BF16, x.F32)
			checkWide(t, what, &x, &w, &y, 16)
			checkBetween(t, what, &y)
		}
	}
}

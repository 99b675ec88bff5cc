package ptx

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

// What PTX's arithmetic must give, by other means than the interpreter's: sums
// and products in big.Float, without rounding, then rounded there.

// roundBig rounds to a format, by a precision that shrinks among subnormals.
func roundBig(f format, x *big.Float, mode rounding) uint64 {
	sign := uint64(0)
	if x.Signbit() {
		sign = 1 << (f.exp + f.man)
	}
	if x.Sign() == 0 {
		return sign
	}
	bias := 1<<(f.exp-1) - 1
	unit := x.MantExp(nil) - 1 - f.man // of the last place
	unit = max(unit, 1-bias-f.man)
	// Scaled so that the last place is 1, it is rounded to an integer.
	scaled := new(big.Float).SetMantExp(x, -unit)
	q := roundInteger(scaled, mode)
	m := new(big.Float).SetMantExp(new(big.Float).SetInt(q), unit)
	limit := new(big.Float).SetMantExp(big.NewFloat(1), bias+1)
	inf := uint64(1<<f.exp-1) << f.man
	if new(big.Float).Abs(m).Cmp(limit) >= 0 {
		if mode == roundZero || mode == roundDown && sign == 0 || mode == roundUp && sign != 0 {
			return sign | (inf - 1)
		}
		return sign | inf
	}
	if q.Sign() == 0 {
		return sign
	}
	e := m.MantExp(nil) - 1
	mantissa := new(big.Float).SetMantExp(new(big.Float).Abs(m), -max(e, 1-bias)+f.man)
	v, _ := mantissa.Uint64()
	if e >= 1-bias {
		v = v - 1<<f.man + uint64(e+bias)<<f.man
	}
	return sign | v
}

func roundInteger(x *big.Float, mode rounding) *big.Int {
	floor, acc := x.Int(nil) // toward zero
	if acc == big.Exact {
		return floor
	}
	away := big.NewInt(int64(x.Sign()))
	rest := new(big.Float).SetPrec(exactPrec).Sub(x, new(big.Float).SetInt(floor))
	half := new(big.Float).Abs(rest).Cmp(big.NewFloat(0.5))
	up := false
	switch mode {
	case roundEven:
		up = half > 0 || half == 0 && floor.Bit(0) == 1
	case roundAway:
		up = half >= 0
	case roundDown:
		up = x.Sign() < 0
	case roundUp:
		up = x.Sign() > 0
	}
	if up {
		floor.Add(floor, away)
	}
	return floor
}

// sticky makes an inexact quotient or root fit for rounding: 300 bits and one
// more for the rest.
func sticky(x *big.Float) *big.Float {
	if x.Acc() == big.Exact {
		return x
	}
	tiny := new(big.Float).SetMantExp(big.NewFloat(float64(x.Sign())), x.MantExp(nil)-302)
	return new(big.Float).SetPrec(400).Add(x, tiny)
}

// arity is how many operands an operation has.
var arity = map[string]int{"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}

// referenceFloat computes an operation in a format.
func referenceFloat(op string, f format, mode rounding, x, y, w uint64) uint64 {
	a, b, c := f.value(x), f.value(y), f.value(w)
	native := map[string]float64{
		"add": a + b, "sub": a - b, "mul": a * b, "fma": math.FMA(a, b, c), "mad": math.FMA(a, b, c), "div": a / b, "rcp": 1 / a, "sqrt": math.Sqrt(a),
	}[op]
	special := native != native || op == "div" && b == 0 || op == "rcp" && a == 0
	for _, v := range []float64{a, b, c}[:arity[op]] {
		special = special || math.IsInf(v, 0) || v != v
	}
	if special {
		return f.round(native, roundEven)
	}
	exact := func(v float64) *big.Float { return new(big.Float).SetPrec(exactPrec).SetFloat64(v) }
	var r *big.Float
	var terms [2]*big.Float
	switch op {
	case "add":
		terms = [2]*big.Float{exact(a), exact(b)}
	case "sub":
		terms = [2]*big.Float{exact(a), exact(-b)}
	case "fma", "mad":
		p := exact(a)
		terms = [2]*big.Float{p.Mul(p, exact(b)), exact(c)}
	case "mul":
		r = exact(a)
		r.Mul(r, exact(b))
	case "div":
		r = sticky(new(big.Float).SetPrec(300).SetMode(big.ToZero).Quo(exact(a), exact(b)))
	case "rcp":
		r = sticky(new(big.Float).SetPrec(300).SetMode(big.ToZero).Quo(exact(1), exact(a)))
	case "sqrt":
		if a == 0 {
			return x
		}
		r = new(big.Float).SetPrec(300).Sqrt(exact(a))
		square := exact(0)
		if square.Mul(r, r).Cmp(exact(a)) != 0 { // Sqrt rounds to nearest and does not say how
			tiny := new(big.Float).SetMantExp(big.NewFloat(1), r.MantExp(nil)-302)
			if square.Cmp(exact(a)) > 0 {
				tiny.Neg(tiny)
			}
			r = new(big.Float).SetPrec(400).Add(r, tiny)
		}
	}
	if terms[0] != nil {
		r = exact(0)
		r.Add(terms[0], terms[1])
		if r.Sign() == 0 {
			negative := mode == roundDown
			if terms[0].Signbit() == terms[1].Signbit() {
				negative = terms[0].Signbit()
			}
			if negative {
				return 1 << (f.exp + f.man)
			}
			return 0
		}
	}
	return roundBig(f, r, mode)
}

// A draw is a source of operands.
type draw = func(r *rand.Rand) uint64

// pair draws two of 16 bits.
func pair(g draw) draw { return func(r *rand.Rand) uint64 { return g(r) | g(r)<<16 } }

// seeds runs a test with 40 seeds.
func seeds(t *testing.T, test func(t *testing.T, random *rand.Rand)) {
	t.Helper()
	seed := prop.Seed(t)
	for i := range 40 {
		test(t, rand.New(rand.NewPCG(seed, 0)))
		seed = uint64(i)
	}
}

// numbers draws bits of a format that are apt to go wrong.
func numbers(f format) draw {
	top := uint64(1)<<(f.exp+f.man+1) - 1
	inf := uint64(1<<f.exp-1) << f.man
	one := uint64(1<<(f.exp-1)-1) << f.man
	specials := []uint64{0, 1, 1<<f.man - 1, 1 << f.man, 1<<f.man + 1, inf, inf - 1, inf + 1<<(f.man-1), one, one + 1, one - 1, one + 1<<f.man}
	return func(r *rand.Rand) uint64 {
		v := r.Uint64() & top
		switch r.IntN(5) {
		case 0:
			return specials[v%uint64(len(specials))] | v&^(top>>1)
		case 1: // near one, with few bits, so that sums and ties are exact
			return v&^(top>>1) | one + v>>3&7<<f.man + v>>7&7<<(f.man-3)
		case 2: // near one, with all bits
			return v&^(top>>1) | one + v>>60&3<<f.man + v&(1<<f.man-1)
		case 3: // half an ulp of those
			return v&^(top>>1) | one - uint64(f.man+1)<<f.man + v>>3&7<<f.man + v>>9&1
		}
		return v
	}
}

// integers draws bits of a width.
func integers(width int) draw {
	mask := ^uint64(0) >> (64 - width)
	return func(r *rand.Rand) uint64 {
		v := r.Uint64()
		switch r.IntN(4) {
		case 0:
			return []uint64{0, 1, mask, mask >> 1, mask>>1 + 1, 2, mask - 1, 31, 32, 33, 64}[v%11] & mask
		case 1:
			return v & 255 & mask
		case 2: // of any length
			return v & mask >> r.IntN(width)
		}
		return v & mask
	}
}

// check runs an instruction on drawn operands and compares.
func (o operation) check(t *testing.T, x, y, w draw, want func(x, y, w uint64) uint64) {
	t.Helper()
	t.Run(o.text, func(t *testing.T) {
		m, err := Parse(o.text, o.kernel())
		if err != nil {
			t.Fatal(err)
		}
		e := entry(t, m, "k")
		gens := [3]draw{x, y, w}
		seeds(t, func(t *testing.T, random *rand.Rand) {
			var operands [32][3]uint64
			for i := range operands {
				for j, g := range gens {
					if g != nil {
						operands[i][j] = g(random)
					}
				}
			}
			r := rig{nil, sharedMemory}
			got := r.evaluate(e, operands[:])
			for i, v := range operands {
				if w := want(v[0], v[1], v[2]); got[i] != w {
					t.Fatalf("of %#x, %#x, %#x: got %#x, want %#x", v[0], v[1], v[2], got[i], w)
				}
			}
		})
	})
}

// sharedMemory saves thousands of tests their own.
var sharedMemory = NewMemory(1 << 20)

func (r rig) evaluate(e *Entry, operands [][3]uint64) []uint64 {
	in, out := must(r.mem.Alloc(int64(24*len(operands)))), must(r.mem.Alloc(int64(8*len(operands))))
	defer r.mem.Free(in)
	defer r.mem.Free(out)
	data := must(r.mem.SliceForWrite(in, int64(24*len(operands))))
	for i, v := range operands {
		for j := range v {
			put(data[24*i+8*j:], 8, v[j])
		}
	}
	block := make([]byte, 20)
	put(block, 8, out)
	put(block[8:], 8, in)
	put(block[16:], 4, uint64(len(operands)))
	if err := r.launch(e, Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{len(operands), 1, 1}, Params: block}); err != nil {
		panic(err)
	}
	result := make([]uint64, len(operands))
	data = must(r.mem.Slice(out, int64(8*len(operands))))
	for i := range result {
		result[i] = get(data[8*i:], 8)
	}
	return result
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sext(v uint64, width int) int64 { return int64(v<<(64-width)) >> (64 - width) }

func mask(width int) uint64 { return ^uint64(0) >> (64 - width) }

// TestReference checks the reference against Go's own arithmetic.
func TestReference(t *testing.T) {
	f := formats[tF64]
	g := numbers(f)
	seeds(t, func(t *testing.T, random *rand.Rand) {
		x, y, w := g(random), g(random), g(random)
		a, b, c := math.Float64frombits(x), math.Float64frombits(y), math.Float64frombits(w)
		for op, want := range map[string]float64{"add": a + b, "mul": a * b, "div": a / b, "sqrt": math.Sqrt(a), "fma": math.FMA(a, b, c)} {
			if got := referenceFloat(op, f, roundEven, x, y, w); got != bits64(want) {
				t.Fatalf("%s of %v, %v, %v: got %v, want %v", op, a, b, c, math.Float64frombits(got), want)
			}
		}
	})
}

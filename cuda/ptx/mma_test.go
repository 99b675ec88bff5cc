package ptx

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// fragmentKernel loads na, nb and nc words for each lane, multiplies, and
// stores nd.
func fragmentKernel(instruction string, na, nb, nc int) string {
	var b strings.Builder
	b.WriteString("mov.u32 %r0, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];\n")
	n := na + nb + nc
	fmt.Fprintf(&b, "mad.wide.u32 %%d0, %%r0, %d, %%d0; mad.wide.u32 %%d1, %%r0, %d, %%d1;\n", 4*n, 4*nc)
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("%%r%d", i+1)
		fmt.Fprintf(&b, "ld.global.b32 %s, [%%d0+%d];\n", names[i], 4*i)
	}
	list := func(v []string) string { return "{" + strings.Join(v, ", ") + "}" }
	c := list(names[na+nb:])
	fmt.Fprintf(&b, "%s %s, %s, %s, %s;\n", instruction, c, list(names[:na]), list(names[na:na+nb]), c)
	for i := range nc {
		fmt.Fprintf(&b, "st.global.b32 [%%d1+%d], %s;\n", 4*i, names[na+nb+i])
	}
	return kernel(".param .u64 out, .param .u64 in", b.String())
}

// place is where element i of a lane's fragment lies in its matrix, as the PTX
// manual gives it for each shape.
type place func(lane, i int) (row, column int)

// TestMMA puts matrices into fragments as the PTX manual lays them out, and
// compares with their product, of which truncation leaves about 22 bits.
func TestMMA(t *testing.T) {
	accumulators := func(lane, i int) (int, int) { return lane/4 + i/2*8, lane%4*2 + i%2 }
	a16 := func(lane, i int) (int, int) {
		row := lane / 4
		if i == 2 || i == 3 || i == 6 || i == 7 {
			row += 8
		}
		column := lane%4*2 + i&1
		if i >= 4 {
			column += 8
		}
		return row, column
	}
	b16 := func(lane, i int) (int, int) {
		row := lane%4*2 + i&1
		if i >= 2 {
			row += 8
		}
		return row, lane / 4
	}
	tf32a := func(lane, i int) (int, int) { return lane/4 + i%2*8, lane%4 + i/2*4 }
	tf32b := func(lane, i int) (int, int) { return lane%4 + i*4, lane / 4 }
	for _, c := range []struct {
		instruction  string
		depth        int
		in, acc      typ
		na, nb       int // elements
		aPlace, bPut place
	}{
		{"m16n8k16.row.col.f32.bf16.bf16.f32", 16, tBF16, tF32, 8, 4, a16, b16},
		{"m16n8k16.row.col.f32.f16.f16.f32", 16, tF16, tF32, 8, 4, a16, b16},
		{"m16n8k16.row.col.f16.f16.f16.f16", 16, tF16, tF16, 8, 4, a16, b16},
		{"m16n8k8.row.col.f32.bf16.bf16.f32", 8, tBF16, tF32, 4, 2, a16, b16},
		{"m16n8k8.row.col.f32.f16.f16.f32", 8, tF16, tF32, 4, 2, a16, b16},
		{"m16n8k8.row.col.f16.f16.f16.f16", 8, tF16, tF16, 4, 2, a16, b16},
		{"m16n8k8.row.col.f32.tf32.tf32.f32", 8, tTF32, tF32, 4, 2, tf32a, tf32b},
		{"m16n8k4.row.col.f32.tf32.tf32.f32", 4, tTF32, tF32, 2, 1, tf32a, tf32b},
	} {
		t.Run(c.instruction, func(t *testing.T) {
			values := random(16*16+16*8+16*8, 2)
			A, B, C := values[:256], values[256:384], values[384:]
			for i := range A {
				A[i] = exactIn(c.in, A[i])
			}
			for i := range B {
				B[i] = exactIn(c.in, B[i])
				C[i] = exactIn(c.acc, C[i])
			}
			packed := 32 / map[typ]int{tBF16: 16, tF16: 16, tTF32: 32}[c.in]
			accPacked := 32 / c.acc.bits()
			na, nb, nc := c.na/packed, c.nb/packed, 4/accPacked
			words := make([]uint32, 32*(na+nb+nc))
			for lane := range 32 {
				w := words[lane*(na+nb+nc):]
				for i := range c.na {
					row, column := c.aPlace(lane, i)
					w[i/packed] |= encode(c.in, A[row*16+column]) << (32 / packed * (i % packed))
				}
				for i := range c.nb {
					row, column := c.bPut(lane, i)
					w[na+i/packed] |= encode(c.in, B[row*8+column]) << (32 / packed * (i % packed))
				}
				for i := range 4 {
					row, column := accumulators(lane, i)
					w[na+nb+i/accPacked] |= encode(c.acc, C[row*8+column]) << (32 / accPacked * (i % accPacked))
				}
			}
			r := newRig(t)
			out := r.alloc(4 * 32 * nc)
			m := parse(t, fragmentKernel("mma.sync.aligned."+c.instruction, na, nb, nc))
			r.mustRun(entry(t, m, "k"), 1, 32, out, r.put(words))
			got := make([]uint32, 32*nc)
			r.get(out, got)
			for lane := range 32 {
				for i := range 4 {
					row, column := accumulators(lane, i)
					sum := float64(C[row*8+column])
					for k := range c.depth {
						sum += float64(A[row*16+k]) * float64(B[k*8+column])
					}
					v := got[lane*nc+i/accPacked]
					if c.acc == tF16 {
						half := float64(half16(uint64(v >> (16 * (i % 2)))))
						if math.Abs(half-sum) > 1e-3*(1+math.Abs(sum)) {
							t.Fatalf("element %d,%d is %v, want %v", row, column, half, sum)
						}
					} else if g := math.Float32frombits(v); math.Abs(float64(g)-sum) > 1e-6*(1+math.Abs(sum)) {
						t.Fatalf("element %d,%d is %v, want %v", row, column, g, sum)
					}
				}
			}
		})
	}
}

func encode(ty typ, v float32) uint32 {
	if ty == tF32 || ty == tTF32 {
		return math.Float32bits(v)
	}
	return uint32(formats[ty].round(float64(v), roundEven))
}

// exactIn rounds to a type.
func exactIn(ty typ, v float32) float32 {
	if ty == tTF32 {
		return math.Float32frombits(math.Float32bits(v) &^ 0x1fff)
	}
	return float32(formats[ty].value(formats[ty].round(float64(v), roundEven)))
}

// TestMMATruncates holds sums of one row of a and one column of b against cases worked out by hand.
func TestMMATruncates(t *testing.T) {
	const one = 1
	type terms map[int][2]float32 // factors by their place along k
	all := func(a, b float32) terms {
		x := terms{}
		for k := range 16 {
			x[k] = [2]float32{a, b}
		}
		return x
	}
	for _, c := range []struct {
		about        string
		c            float32
		terms        terms
		want80, want float32 // of 8.0, and of 9.0 and later
	}{
		{"exact", 3, terms{0: {2, 4}, 15: {-1.5, 1}}, 9.5, 9.5},
		{"products below the last bit are lost", one, all(0x1p-13, 0x1p-13), one, one},
		{"2^-25 is kept on 9.0 only", one, all(0x1p-12, 0x1p-13), one, one + 0x1p-21},
		{"2^-24 is kept on both", one, all(0x1p-12, 0x1p-12), one + 0x1p-20, one + 0x1p-20},
		{"negative products are truncated toward zero", one, all(-0x1p-13, 0x1p-13), one, one},
		{"so is a small accumulator", 0x1p-26, terms{3: {1, 1}, 4: {-1, 1}}, 0, 0},
		{"the sum is truncated to f32", one + 0x1p-23, terms{0: {0x1p-12, 0x1p-12}, 1: {0x1p-12, 0x1p-13}}, one + 0x1p-23, one + 0x1p-23},
		{"a negative sum is truncated toward zero", -one, terms{0: {-0x1p-12, 0x1p-12}}, -one, -one},
		{"products are aligned before they are normalized", 0, terms{0: {1.5, 1.5}, 1: {-1.5, 1.5}, 2: {0x1p-12, 0x1p-13}}, 0, 0x1p-25},
		{"9.0 aligns 16 products, 8.0 twice 8", 0, terms{0: {0x1p12, 0x1p12}, 1: {-0x1p12, 0x1p12}, 8: {0x1p-5, 0x1p-5}}, 0x1p-10, 0},
		{"zeros", 0, nil, 0, 0},
		{"infinity", 1, terms{2: {float32(math.Inf(1)), 1}}, float32(math.Inf(1)), float32(math.Inf(1))},
		{"an overflow of the first products stays", 0, terms{0: {0x1p127, 1}, 1: {0x1p127, 1}, 9: {1, 1}}, float32(math.Inf(1)), float32(math.Inf(1))},
		{"zero times infinity", 1, terms{2: {float32(math.Inf(1)), 0}}, float32(math.NaN()), float32(math.NaN())},
		{"infinity elsewhere truncates nothing less", float32(math.Inf(-1)), terms{0: {1, 1}}, float32(math.Inf(-1)), float32(math.Inf(-1))},
	} {
		for capability, want := range map[[2]int]float32{{}: c.want80, {8, 0}: c.want80, {9, 0}: c.want, {10, 0}: c.want} {
			if got := oneSum(t, capability, c.c, c.terms); got != want && !(got != got && want != want) {
				t.Errorf("%s, on %v: %g, want %g", c.about, capability, got, want)
			}
		}
	}
}

// oneSum returns c plus the products of factors at places along k, by mma of bf16.
func oneSum(t *testing.T, capability [2]int, c float32, terms map[int][2]float32) float32 {
	words := make([]uint32, 32*10) // of a lane 4 of a, 2 of b, 4 of c
	words[6] = math.Float32bits(c)
	for k, v := range terms {
		lane, half := words[k%8/2*10:], 16*(k%2)
		lane[k/8*2] |= encode(tBF16, v[0]) << half
		lane[4+k/8] |= encode(tBF16, v[1]) << half
	}
	r := newRig(t)
	out := r.alloc(4 * 32 * 4)
	e := entry(t, parse(t, fragmentKernel("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4)), "k")
	l := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Params: params(t, e, out, r.put(words)), Capability: capability}
	if err := e.Run(t.Context(), r.mem, l); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 1)
	r.get(out, got)
	return got[0]
}

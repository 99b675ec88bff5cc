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
// compares with their product.
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
					} else if g := math.Float32frombits(v); math.Abs(float64(g)-sum) > 1e-7*(1+math.Abs(sum)) {
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

// TestLoadMatrix: four matrices of numbered elements in shared memory.
func TestLoadMatrix(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, trans := range []bool{false, true} {
			modifier, list := "", []string{"{%r1}", "{%r1, %r2}", "", "{%r1, %r2, %r3, %r4}"}[n-1]
			if trans {
				modifier = ".trans"
			}
			body := fmt.Sprintf(`.shared .align 16 .b8 s[512];
mov.u32 %%r0, %%tid.x; mov.u32 %%r9, s; ld.param.u64 %%d1, [out];
mad.lo.u32 %%r8, %%r0, 16, %%r9;
mul.lo.u32 %%r5, %%r0, 0x80008; add.u32 %%r1, %%r5, 0x10000; add.u32 %%r2, %%r5, 0x30002; add.u32 %%r3, %%r5, 0x50004; add.u32 %%r4, %%r5, 0x70006;
st.shared.v4.b32 [%%r8], {%%r1, %%r2, %%r3, %%r4};
bar.warp.sync -1;
mov.b32 %%r1, 0; mov.b32 %%r2, 0; mov.b32 %%r3, 0; mov.b32 %%r4, 0;
ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 %s, [%%r8];
mad.wide.u32 %%d1, %%r0, 16, %%d1;
st.global.v4.b32 [%%d1], {%%r1, %%r2, %%r3, %%r4};`, n, modifier, list)
			r := newRig(t)
			out := r.alloc(512)
			r.mustRun(entry(t, parse(t, kernel(".param .u64 out", body)), "k"), 1, 32, out)
			got := make([]uint16, 256)
			r.get(out, got)
			for lane := range 32 {
				for i := range n {
					for j := range 2 {
						row, column := lane/4, lane%4*2+j
						if trans {
							row, column = column, row
						}
						if want := uint16((8*i+row)*8 + column); got[lane*8+2*i+j] != want {
							t.Fatalf("x%d%s: lane %d, matrix %d, half %d: got %d, want %d", n, modifier, lane, i, j, got[lane*8+2*i+j], want)
						}
					}
				}
			}
		}
	}
}

func TestMoveMatrix(t *testing.T) {
	body := `mov.u32 %r0, %tid.x; ld.param.u64 %d1, [out];
mul.lo.u32 %r1, %r0, 0x20002; add.u32 %r1, %r1, 0x10000;
movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;
mad.wide.u32 %d1, %r0, 4, %d1; st.global.b32 [%d1], %r2;`
	r := newRig(t)
	out := r.alloc(128)
	r.mustRun(entry(t, parse(t, kernel(".param .u64 out", body)), "k"), 1, 32, out)
	got := make([]uint16, 64)
	r.get(out, got)
	for i, v := range got {
		if want := uint16(i%8*8 + i/8); v != want {
			t.Errorf("element %d is %d, want %d", i, v, want)
		}
	}
}

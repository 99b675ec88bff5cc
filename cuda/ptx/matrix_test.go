package ptx

import (
	"fmt"
	"testing"
)

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

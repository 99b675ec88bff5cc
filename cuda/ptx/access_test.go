package ptx

import "testing"

// accesses is a loop, so that each instruction has a region from its last time: all lanes load far
// into a large one, then the odd ones from a small one, then each from the one or the other.
const accesses = `mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; ld.param.u64 %d2, [out];
mad.wide.u32 %d3, %r0, 128, %d0; mad.wide.u32 %d4, %r0, 4, %d1; mad.wide.u32 %d2, %r0, 4, %d2;
and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 1;
selp.b64 %d5, %d3, %d4, %p1;
mov.u32 %r2, 0; mov.u32 %r6, 0;
LOOP:
ld.global.u32 %r3, [%d3]; add.s32 %r6, %r6, %r3;
@%p1 ld.global.u32 %r4, [%d4]; @%p1 add.s32 %r6, %r6, %r4;
ld.global.u32 %r5, [%d5]; add.s32 %r6, %r6, %r5;
st.global.u32 [%d5], %r5;
add.s32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra LOOP;
st.global.u32 [%d2], %r6;`

// TestAccesses: lanes of one load or store reach what each is to, whether all do in one region or
// some elsewhere, and whatever those that take no part did before.
func TestAccesses(t *testing.T) {
	r, e := newRig(t), entry(t, parse(t, kernel(".param .u64 x, .param .u64 y, .param .u64 out", accesses)), "k")
	x, y := make([]int32, 1024), make([]int32, 32)
	for i := range x {
		x[i] = int32(i)
	}
	for i := range y {
		y[i] = int32(10000 + i)
	}
	out, got := r.alloc(128), make([]int32, 32)
	r.mustRun(e, 1, 32, r.put(x), r.put(y), out)
	r.get(out, got)
	for l, g := range got {
		want := 3 * (x[32*l] + y[l]) // an even lane loads from the one, then the other
		if l%2 == 1 {
			want += 3 * x[32*l]
		}
		if g != want {
			t.Errorf("lane %d has %d, want %d", l, g, want)
		}
	}
}

package ptx

import (
	"context"
	"testing"
)

// benchmark runs a launch and reports millions of thread-instructions a
// second.
func benchmark(b *testing.B, r rig, e *Entry, l Launch) {
	var n int64
	for b.Loop() {
		if err := e.Run(context.Background(), r.mem, l); err != nil {
			b.Fatal(err)
		}
		n += r.mem.scratch.x.threadInstrs
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Minst/s")
}

const arithmeticLoop = `mov.u32 %r1, 0;
mov.u32 %r2, %tid.x;
cvt.rn.f32.u32 %r3, %r2;
mov.b32 %r4, 0f3F800100;
LOOP:
fma.rn.f32 %r5, %r3, %r4, %r5;
mul.f32 %r3, %r3, %r4;
add.f32 %r6, %r6, %r3;
xor.b32 %r7, %r7, %r2;
mad.lo.s32 %r8, %r1, %r2, %r7;
shl.b32 %r9, %r8, 3;
max.f32 %r6, %r6, %r5;
add.s32 %r1, %r1, 1;
setp.lt.s32 %p1, %r1, 1000;
@%p1 bra LOOP;`

const memoryLoop = `mov.u32 %r1, 0;
mov.u32 %r2, %tid.x;
ld.param.u64 %d1, [x];
mad.wide.u32 %d1, %r2, 4, %d1;
LOOP:
ld.global.f32 %r3, [%d1];
ld.global.f32 %r4, [%d1+1024];
add.f32 %r3, %r3, %r4;
st.global.f32 [%d1], %r3;
add.s32 %r1, %r1, 1;
setp.lt.s32 %p1, %r1, 1000;
@%p1 bra LOOP;`

func BenchmarkRun(b *testing.B) {
	one := [3]int{1, 1, 1}
	b.Run("arithmetic", func(b *testing.B) {
		e := entry(b, parse(b, kernel("", arithmeticLoop)), "k")
		benchmark(b, newRig(b), e, Launch{Grid: one, Block: [3]int{256, 1, 1}})
	})
	b.Run("memory", func(b *testing.B) {
		r := newRig(b)
		e := entry(b, parse(b, kernel(".param .u64 x", memoryLoop)), "k")
		x := r.put(make([]float32, 512))
		benchmark(b, r, e, Launch{Grid: one, Block: [3]int{256, 1, 1}, Params: params(b, e, x)})
	})
	m := testdata(b, "kernels.sm_80.ptx")
	b.Run("rmsnorm", func(b *testing.B) {
		r, e := newRig(b), entry(b, m, "rmsnorm")
		y, x, w := r.alloc(4*32*1024), r.put(random(32*1024, 1)), r.put(random(1024, 1))
		benchmark(b, r, e, Launch{Grid: [3]int{32, 1, 1}, Block: [3]int{256, 1, 1}, Params: params(b, e, y, x, w, int32(1024), float32(1e-5))})
	})
	b.Run("gemv", func(b *testing.B) {
		r, e := newRig(b), entry(b, m, "gemv")
		y, x, w := r.alloc(4*256), r.put(random(1024, 1)), r.put(toBF16s(random(256*1024, 1)))
		benchmark(b, r, e, Launch{Grid: [3]int{64, 1, 1}, Block: [3]int{128, 1, 1}, Params: params(b, e, y, w, x, int32(1024))})
	})
	b.Run("scan", func(b *testing.B) {
		r, e := newRig(b), entry(b, m, "scan16")
		const T, D, N = 32, 256, 16
		y, h, a := r.alloc(4*T*D), r.put(make([]float32, D*N)), r.put(make([]float32, D*N))
		x, c := r.put(random(T*D, 1)), r.put(random(T*N, 1))
		benchmark(b, r, e, Launch{Grid: [3]int{2, 1, 1}, Block: [3]int{128, 1, 1}, Params: params(b, e, y, h, x, x, a, c, c, int32(T), int32(D))})
	})
	b.Run("matmul", func(b *testing.B) {
		r, e := newRig(b), entry(b, m, "matmul")
		c, x := r.alloc(4*64*64), r.put(toBF16s(random(64*256, 1)))
		benchmark(b, r, e, Launch{Grid: [3]int{4, 8, 1}, Block: [3]int{32, 1, 1}, Params: params(b, e, c, x, x, int32(64), int32(256))})
	})
}

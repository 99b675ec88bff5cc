// Products of small matrices on tensor cores: d[16, 8] += a[16, 16] b[8, 16]ᵀ, of
// bf16, summed in f32. A lane has pairs of neighbours in k. With g = lane / 4 and
// c = 2 (lane % 4) it has of a: rows g, g+8 at c, then both at c+8; of b: row g
// at c and c+8; of d: row g, columns c and c+1, then row g+8.
#pragma once
#include "krait.h"

DEVICE void mma(f32x4 &d, u32x4 a, u32x2 b) {
	float d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
		"{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
	d = f32x4{d0, d1, d2, d3};
}

// The same, d beginning at 0.
DEVICE void mma_from_zero(f32x4 &d, u32x4 a, u32x2 b) {
	float d0, d1, d2, d3;
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
		"{%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
		: "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
	d = f32x4{d0, d1, d2, d3};
}

// Returns v, and keeps the compiler from moving its computation to where it is used, until when
// registers would hold what it is made of.
DEVICE f32x4 computed(f32x4 v) {
	float v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
	asm volatile("" : "+f"(v0), "+f"(v1), "+f"(v2), "+f"(v3));
	return f32x4{v0, v1, v2, v3};
}

// Four 8 by 8 matrices from shared memory: lanes 8 i to 8 i + 7 give the
// addresses of the rows of matrix i; of its row g, a lane gets the pair at c.
DEVICE u32x4 load_matrices(const u16 *row) {
	u32 v[4];
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		: "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
		: "r"(shared_address(row))
		: "memory");
	return u32x4{v[0], v[1], v[2], v[3]};
}

// Two of them, of which the first 16 lanes give the addresses.
DEVICE u32x2 load_two_matrices(const u16 *row) {
	u32 v[2];
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
		: "=r"(v[0]), "=r"(v[1])
		: "r"(shared_address(row))
		: "memory");
	return u32x2{v[0], v[1]};
}

// Four, with rows and columns exchanged.
DEVICE u32x4 load_transposed(const u16 *row) {
	u32 v[4];
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		: "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
		: "r"(shared_address(row))
		: "memory");
	return u32x4{v[0], v[1], v[2], v[3]};
}

DEVICE void put_pair(u16 *p, u32 v) { *(u32 *)p = v; }
DEVICE void put_pairs(u16 *p, u32x2 v) { *(u32x2 *)p = v; }
DEVICE void put_pairs(u16 *p, u32x4 v) { *(u32x4 *)p = v; }

DEVICE u32x4 pairs(Raw<bf16> r) { return r.v; }

DEVICE u32x4 pairs(Raw<f16> r) {
	u32x4 v;
	UNROLL for (int i = 0; i < 4; i++) v[i] = bf16x2(widen(f16{(u16)r.v[i]}), widen(f16{(u16)(r.v[i] >> 16)}));
	return v;
}

DEVICE u32x4 pairs(Raw<float> r) {
	f32x4 low = r.low, high = r.high;
	return u32x4{bf16x2(low[0], low[1]), bf16x2(low[2], low[3]), bf16x2(high[0], high[1]), bf16x2(high[2], high[3])};
}

// Two neighbours, as lanes have them of sums, where they are aligned to their size.
DEVICE f32x2 load_pair(const float *p) { return *(const f32x2 *)p; }

DEVICE f32x2 load_pair(const bf16 *p) {
	u32 v = *(const u32 *)p;
	return f32x2{float_of(v << 16), float_of(v & 0xffff0000)};
}

DEVICE void store_pair(float *p, float first, float second) { *(f32x2 *)p = f32x2{first, second}; }
DEVICE void store_pair(bf16 *p, float first, float second) { *(u32 *)p = bf16x2(first, second); }

// Gives a warp's sums one by one: row, column, sum, of tiles of 16 rows and 8 columns.
template <int tall, int wide, class F> DEVICE void each_sum(const f32x4 (&sums)[tall][wide], F f) {
	UNROLL for (int i = 0; i < tall; i++)
		UNROLL for (int e = 0; e < wide; e++)
			UNROLL for (int p = 0; p < 4; p++)
				f(16 * i + p / 2 * 8 + lane() / 4, 8 * e + lane() % 4 * 2 + p % 2, sums[i][e][p]);
}

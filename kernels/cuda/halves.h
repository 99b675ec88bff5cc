// Numbers of f32 as sums of two f16, which have 22 bits of a number that is not below 2^-17 of the
// largest, after all are scaled by a power of two; and products of such, of which the least is left
// out, as by Ootomo and Yokota (2022).
#pragma once
#include "mma.h"

// The power of two that brings numbers of up to top below 2^15, and the one that brings them back.
struct Scale {
	float up, down;
};

DEVICE Scale scale_of(float top) {
	int exponent = min(268 - (int)(bits_of(top) >> 23), 227); // of up, with its bias
	return Scale{float_of((u32)exponent << 23), float_of((u32)(254 - exponent) << 23)};
}

DEVICE float size_of(float a, f32x4 v) {
	UNROLL for (int i = 0; i < 4; i++) a = max(a, __builtin_fabsf(v[i]));
	return a;
}

// Two f16 in a word, the first in the low half.
DEVICE u32 f16x2(float lo, float hi) {
	u32 y;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}

// Takes two neighbours apart: what is nearest to them, and to what that leaves.
DEVICE void take_halves(float first, float second, u32 &high, u32 &low) {
	u16 x, y;
	high = f16x2(first, second);
	asm("mov.b32 {%0, %1}, %2;" : "=h"(x), "=h"(y) : "r"(high));
	low = f16x2(first - widen(f16{x}), second - widen(f16{y}));
}

// Stores eight neighbours, to each of two arrays their part.
template <int Rows, int Stride>
DEVICE void put_halves(u16 (&to)[2][Rows][Stride], int row, int column, f32x4 a, f32x4 b) {
	u32x4 high, low;
	UNROLL for (int i = 0; i < 4; i++) {
		u32 h, l;
		take_halves(i < 2 ? a[2 * i] : b[2 * i - 4], i < 2 ? a[2 * i + 1] : b[2 * i - 3], h, l);
		high[i] = h, low[i] = l;
	}
	put_pairs(&to[0][row][column], high);
	put_pairs(&to[1][row][column], low);
}

// a bᵀ + d of operands in f16: see mma.
DEVICE f32x4 mma_f16(u32x4 a, u32x2 b, f32x4 d) {
	float d0, d1, d2, d3;
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
		"{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
		: "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
	return f32x4{d0, d1, d2, d3};
}

// The products of Steps steps of 16 along k, for two tiles beside each other, the smaller
// first: what tensor cores truncate grows with how often they add to a large sum. a has the halves
// of each step; b(half, step) gives those of both tiles.
template <int Steps, class B> DEVICE void products(f32x4 (&sums)[2], const u32x4 (&a)[2][Steps], B b) {
	u32x4 high[Steps];
	UNROLL for (int q = 0; q < 2; q++) sums[q] = 0;
	UNROLL for (int k = 0; k < Steps; k++) {
		high[k] = b(0, k);
		u32x4 low = b(1, k);
		UNROLL for (int q = 0; q < 2; q++) {
			sums[q] = mma_f16(a[1][k], u32x2{high[k][2 * q], high[k][2 * q + 1]}, sums[q]);
			sums[q] = mma_f16(a[0][k], u32x2{low[2 * q], low[2 * q + 1]}, sums[q]);
		}
	}
	UNROLL for (int k = 0; k < Steps; k++)
		UNROLL for (int q = 0; q < 2; q++)
			sums[q] = mma_f16(a[0][k], u32x2{high[k][2 * q], high[k][2 * q + 1]}, sums[q]);
}

// Where a lane's row of four matrices of 8 by 8 begins, of operands as mma takes them: of a, of two
// tiles of b, and of either where rows are along k.
template <int Stride> DEVICE const u16 *of_a(const u16 (*rows)[Stride], int column) {
	return &rows[lane() % 16][column + lane() / 16 * 8];
}
template <int Stride> DEVICE const u16 *of_b(const u16 (*rows)[Stride], int column) {
	return &rows[lane() / 16 * 8 + lane() % 8][column + lane() / 8 % 2 * 8];
}

// What the kernels of the scan on tensor cores share: chunks of tokens, which come to
// shared memory in bf16.
#pragma once
#include "mma.h"

const int chunk = 64; // tokens

// Fills chunk rows of Cols columns, by 128 threads; elements beyond the end are 0. Rows in
// bf16 already are copied while the threads go on.
template <int Cols> DEVICE void fetch(u16 (*to)[Cols + 8], const bf16 *from, i64 apart, int rows, int cols) {
	const int per_row = Cols / 8, step = 128 / per_row;
	int r = thread() / per_row, k = thread() % per_row * 8;
	from += r * apart + k;
	rows = k < cols ? rows - r : 0;
	u32 at = shared_address(&to[r][k]);
	UNROLL_4 for (int i = 0; i < chunk; i += step) {
		copy_async_16(at + 2 * i * (Cols + 8), from, i < rows ? 16 : 0);
		from += step * apart;
	}
}

template <int Cols> DEVICE void fetch(u16 (*to)[Cols + 8], const float *from, i64 apart, int rows, int cols) {
	const int per_row = Cols / 8, step = 128 / per_row;
	int r = thread() / per_row, k = thread() % per_row * 8;
	from += r * apart + k;
	NO_UNROLL for (int i = 0; i < chunk; i += 2 * step) {
		Raw<float> v[2];
		UNROLL for (int j = 0; j < 2; j++)
			load_raw(v[j], from + (i + j * step) * apart, r + i + j * step < rows ? cols - k : 0);
		UNROLL for (int j = 0; j < 2; j++) put_pairs(&to[r + i + j * step][k], pairs(v[j]));
	}
}

// Adds 16 states' share to C Bᵀ of the warp's 16 tokens with all up to them: a has C's.
template <int Stride> DEVICE void add_dots(f32x4 (&sums)[8], u32x4 a, const u16 (*b)[Stride], int k) {
	UNROLL for (int e = 0; e < 4; e++) if (e <= warp()) {
		u32x4 v = load_matrices(&b[16 * e + lane() / 16 * 8 + lane() % 8][k + lane() / 8 % 2 * 8]);
		mma(sums[2 * e], a, u32x2{v[0], v[1]});
		mma(sums[2 * e + 1], a, u32x2{v[2], v[3]});
	}
}

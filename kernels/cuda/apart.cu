// Activations taken apart for products by a library: each number is the sum of three bf16, unless
// it is below 2^-110.
#include "split.h"

// Rows of k columns, by fours; each piece has all rows, packed. Blocks of 256 threads are (rows,
// columns / 1024).
KERNEL THREADS(256) take_apart_f32(bf16 *__restrict__ y, const float *__restrict__ x, i64 xs, int rows, int k) {
	int j = 4 * (block_y() * 256 + thread());
	if (j >= k)
		return;
	u32x2 p[pieces];
	take_apart(whole4(x + block_x() * xs + j), p);
	y += (i64)block_x() * k + j;
	UNROLL for (int i = 0; i < pieces; i++) put_pairs((u16 *)y + (i64)i * rows * k, p[i]);
}

// The same of rows that are normed first, with the bits of rmsnorm in norm.cu: threads and the
// order of sums are those. Blocks are rows.
KERNEL THREADS(1024) norm_apart_f32(bf16 *__restrict__ y, const float *__restrict__ x, i64 xs,
		const float *__restrict__ w, int rows, int k, float eps) {
	x += block_x() * xs;
	y += (i64)block_x() * k;
	float sum = 0;
	for (int j = 4 * thread(); j < k; j += 4 * threads()) {
		f32x4 v = whole4(x + j);
		UNROLL for (int e = 0; e < 4; e++) sum = fma(v[e], v[e], sum);
	}
	float factor = inverse_rms(block_sum(sum), k, eps);
	for (int j = 4 * thread(); j < k; j += 4 * threads()) {
		u32x2 p[pieces];
		take_apart(whole4(x + j) * factor * whole4(w + j), p);
		UNROLL for (int i = 0; i < pieces; i++) put_pairs((u16 *)y + (i64)i * rows * k + j, p[i]);
	}
}

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

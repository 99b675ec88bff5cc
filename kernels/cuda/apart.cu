// Activations taken apart for products by a library: of each row three bf16, whose sum it is but
// for the bits below the last.
#include "split.h"

// Rows of k columns, by eights; each piece has all rows, packed. Blocks of 256 threads are (rows,
// columns / 2048).
KERNEL THREADS(256) take_apart_f32(bf16 *__restrict__ y, const float *__restrict__ x, i64 xs, int rows, int k) {
	int j = 8 * (block_y() * 256 + thread());
	if (j >= k)
		return;
	u32x2 low[pieces], high[pieces];
	take_apart(whole4(x + block_x() * xs + j), low);
	take_apart(whole4(x + block_x() * xs + j + 4), high);
	y += (i64)block_x() * k + j;
	UNROLL for (int p = 0; p < pieces; p++) *(u32x4 *)(y + (i64)p * rows * k) = u32x4{low[p][0], low[p][1], high[p][0], high[p][1]};
}

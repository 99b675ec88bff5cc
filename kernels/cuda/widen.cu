// Weights in blocks, widened for products of many rows. FORMAT is theirs.
// Formats: BLOCKS
#include "blocks.h"

DEVICE void put_eight(float *to, Eight e) {
	put4(to, f32x4{e.v[0], e.v[1], e.v[2], e.v[3]});
	put4(to + 4, f32x4{e.v[4], e.v[5], e.v[6], e.v[7]});
}

DEVICE void put_eight(bf16 *to, Eight e) {
	u32x4 v;
	UNROLL for (int i = 0; i < 4; i++) v[i] = bf16x2(e.v[2 * i], e.v[2 * i + 1]);
	*(u32x4 *)to = v;
}

// Rows of k columns, by eights. Blocks of 256 threads are (rows, columns / 2048).
template <class Y> DEVICE void widen_rows(Y *y, const FORMAT *w, i64 ws, int k) {
	int j = 8 * (block_y() * 256 + thread());
	if (j < k)
		put_eight(y + (i64)block_x() * k + j, widen(row_of(w, block_x(), ws).eight(j, 8)));
}

KERNEL THREADS(256) widen_f32(float *__restrict__ y, const FORMAT *__restrict__ w, i64 ws, int k) {
	widen_rows(y, w, ws, k);
}
KERNEL THREADS(256) widen_bf16(bf16 *__restrict__ y, const FORMAT *__restrict__ w, i64 ws, int k) {
	widen_rows(y, w, ws, k);
}

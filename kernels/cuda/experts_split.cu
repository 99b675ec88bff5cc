// The products of experts with many rows on tensor cores, by weights in 16 bits, with f32's result
// but for the last bits: see matmul_split.cu. FORMAT is the weights'.
// Formats: f16 bf16
#include "experts.h"
#include "split.h"

// Of two pieces of w wide tiles would not fit shared memory.
const int tile_rows = 64, cols = weight_pieces<FORMAT> == 1 ? 256 : 128;

// Blocks are (rows / 64, columns / cols, experts).
template <class T> DEVICE void product(float *y, i64 ys, const float *x, i64 xs, const T *w, const T *w1, i64 ws, int n,
		int k, int vec, const Experts &of) {
	int e = block_z(), from = block_x() * tile_rows, col = block_y() * (of.both ? cols / 2 : cols);
	Listed rows = of.rows(e);
	if (from < rows.count)
		split_tile<T, tile_rows, cols>(x, xs, rows, from, Paired<T>{w + e * of.es, w1 - w, ws, col, n, of.both}, k,
			Finish<2, cols, float>{of, rows, e, y, ys, from, col, n, vec});
}

#define SPLIT(T) \
	KERNEL THREADS_BLOCKS(256, 2) expert_mma_split_##T(float *__restrict__ y, i64 ys, const float *__restrict__ x, \
			i64 xs, const T *__restrict__ w, const T *__restrict__ w1, i64 ws, int n, int k, int vec, Experts of) { \
		product(y, ys, x, xs, w, w1, ws, n, k, vec, of);                                                           \
	}

#define ALL(T) SPLIT(T)
ALL(FORMAT)

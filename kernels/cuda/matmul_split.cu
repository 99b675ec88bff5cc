// Matrix products y = x wᵀ of many rows on tensor cores that are those of f32 arithmetic but for
// the last bits: an element of x is the sum of three bf16, one of w of one, in f16 of two, in f32 of
// three, and their products are summed in f32. A row of y
// does not depend on which rows come with it, nor on the width of tiles. The operands' rows are
// aligned, and k is a multiple of 8. Where a weight is infinite, or x by f16 or f32, a product may be NaN that
// would be infinite: a piece of the other may be 0.
// Formats: f16 bf16 f32
#include "split.h"

template <class T, int rows, int cols> DEVICE void split(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, int t, int n, int k, Sum sum) {
	int from = block_x() * rows, col = block_y() * cols;
	split_tile<T, rows, cols>(x, xs, All{t}, from, Columns<T>{w, ws, col, n}, k, [=](f32x4 (&sums)[rows / 32][cols / 32], int r, int c, float *) ALWAYS_INLINE {
		each_sum(sums, [=](int i, int j, float v) ALWAYS_INLINE {
			int m = from + r + i, at = col + c + j;
			if (m < t && at < n)
				y[m * ys + at] = sum.to(v, m, at);
		});
	});
}

#define SPLIT(T, rows, cols, blocks)                                                                                                   \
	KERNEL THREADS_BLOCKS(256, blocks) mma_split_##T##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int, const float *add, i64 as) { \
		split<T, rows, cols>(y, ys, x, xs, w, ws, t, n, k, Sum{add, as});                                             \
	}

// Wide tiles of bf16 where enough blocks remain. The most of three pieces are w's: more rows share them.
#define TILES_bf16 SPLIT(bf16, 64, 128, 3) SPLIT(bf16, 64, 256, 2)
#define TILES_f16 SPLIT(f16, 64, 128, 2)
#define TILES_f32 SPLIT(f32, 128, 128, 2)
#define TILES(T) TILES_##T
#define ALL(T) TILES(T)
ALL(FORMAT)

// Matrix products y = x wᵀ on tensor cores: both operands are rounded to bf16,
// sums are in f32. A row of y does not depend on which rows come with it. The
// operands' rows are aligned, and k is a multiple of 8. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "tile_mma.h"

// Stores sums where they belong, the tile's first row and column being from and col.
struct Stored {
	float *y;
	i64 ys;
	int from, col, t, n;
	Sum add;

	__attribute__((device, always_inline)) void put(int row, int c, float v, float *) const {
		int m = from + row, at = col + c;
		if (m < t && at < n)
			y[m * ys + at] = add.to(v, m, at);
	}
	__attribute__((device, always_inline)) void done(float *) const {}
	__attribute__((device, always_inline)) void operator()(f32x4 (&sums)[4][4], int r, int c, float *) const {
		each_sum(sums, [=, this](int i, int j, float v) ALWAYS_INLINE { put(r + i, c + j, v, nullptr); });
	}
};

// Blocks are (rows / 32, columns / 64) and (rows / 128, columns / 128).
#define PRODUCT(name, T, product, rows, cols)                                                                              \
	KERNEL THREADS(256) name##_##T(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int, const float *add, i64 as) { \
		int from = block_x() * rows, col = block_y() * cols;                                                         \
		product<T>(x, xs, All{t}, from, Columns<T>{w, ws, col, n}, k, Stored{y, ys, from, col, t, n, Sum{add, as}});       \
	}

#define ALL(T)                                                                                                             \
	PRODUCT(mma_few, T, few, few_rows, few_cols)                                                                       \
	PRODUCT(mma_tile, T, tile, tile_rows, tile_cols)

ALL(FORMAT)

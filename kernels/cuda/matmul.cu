// Matrix products y = x wᵀ in f32: x[t, k] of activations, w[n, k] in any format.
// A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "tile.h"

template <class T> DEVICE void matmul(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, int t, int n, int k,
		int vec, Sum add) {
	int from = block_x() * tile_rows, col = block_y() * tile_cols;
	tile<T>(x, xs, All{t}, from, Columns<T>{w, ws, col, n}, k, vec,
			[=](f32x4 (&sums)[8][2], int r, int c, float *) ALWAYS_INLINE {
		UNROLL for (int i = 0; i < 8; i++) {
			int m = from + r + i % 4 + i / 4 * (tile_rows / 2);
			if (m < t) {
				float *out = y + m * ys;
				UNROLL for (int half = 0; half < 2; half++) {
					int at = col + c + half * (tile_cols / 2);
					f32x4 v = sums[i][half];
					if (add.y)
						UNROLL for (int e = 0; e < 4; e++) if (at + e < n) v[e] = add.to(v[e], m, at + e);
					store4(out + at, v, n - at, vec & stores);
				}
			}
		}
	});
}

#define TILE(T) \
	KERNEL THREADS(128) matmul_##T(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, \
			i64 ws, int t, int n, int k, int vec, const float *add, i64 as) { \
		matmul(y, ys, x, xs, w, ws, t, n, k, vec, Sum{add, as});                                                   \
	}

#define ALL(T) TILE(T)
ALL(FORMAT)

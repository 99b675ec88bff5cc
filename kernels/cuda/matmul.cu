// Matrix products y = x wᵀ in f32: x[t, k] of activations, w[n, k] in any format.
// A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "tile.h"

template <class T> DEVICE void matmul(const Matmul<T> &arg) {
	int from = block_x() * tile_rows, col = block_y() * tile_cols, n = arg.n;
	tile<T>(arg.x, arg.xs, All{arg.t}, from, Columns<T>{arg.w, arg.ws, col, n}, arg.k, arg.vec,
			[=](f32x4 (&sums)[8][2], int top, int left, float *) ALWAYS_INLINE {
		UNROLL for (int i = 0; i < 8; i++) {
			int row = from + top + i % 4 + i / 4 * (tile_rows / 2);
			if (row < arg.t) {
				float *out = arg.y + row * arg.ys;
				UNROLL for (int half = 0; half < 2; half++) {
					int at = col + left + half * (tile_cols / 2);
					f32x4 v = sums[i][half];
					if (arg.add.y)
						UNROLL for (int e = 0; e < 4; e++) if (at + e < n) v[e] = arg.add.to(v[e], row, at + e);
					store4(out + at, v, n - at, arg.vec & stores);
				}
			}
		}
	});
}

#define TILE(T) \
	KERNEL THREADS(128) matmul_##T(Matmul<T> arg) { matmul(arg); }

#define ALL(T) TILE(T)
ALL(FORMAT)

// Matrix products y = x wᵀ in f32: x[t, k] of activations, w[n, k] in any format.
// A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "gemv.h"

// Many rows: a block of 128 threads makes a tile of 128 rows and 64 columns of y,
// 8 times 8 per thread, 16 deep at a time. While it multiplies one step, the next
// comes to registers. Each element is summed along k in order.
const int gemv_cols = 4; // of a block of experts
const int tile_rows = 128, tile_cols = 64, tile_depth = 16;

struct alignas(16) Step {
	float x[tile_depth][tile_rows + 4], w[tile_depth][tile_cols + 4];
};

template <class T, class Rows>
DEVICE void tile(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, Rows rows, int from, int col, int n, int k, int vec, Sum add) {
	SHARED static Step steps[2];
	// Four threads load 16 neighbours of a row.
	int row = thread() / 4, part = 4 * (thread() % 4);
	const float *in[4];
	const T *weight[2];
	UNROLL for (int i = 0; i < 4; i++) in[i] = x + rows.in(min(from + row + 32 * i, rows.count - 1)) * xs;
	UNROLL for (int i = 0; i < 2; i++) weight[i] = w + min(col + row + 32 * i, n - 1) * ws;
	f32x4 a[4], b[2];
	auto load = [&](int j) {
		j += part;
		UNROLL for (int i = 0; i < 4; i++) a[i] = load4(in[i] + j, k - j, vec & loads);
		UNROLL for (int i = 0; i < 2; i++) b[i] = load4(weight[i] + j, k - j, vec & loads);
	};
	auto store = [&](Step &to) {
		UNROLL for (int e = 0; e < 4; e++) {
			UNROLL for (int i = 0; i < 4; i++) to.x[part + e][row + 32 * i] = a[i][e];
			UNROLL for (int i = 0; i < 2; i++) to.w[part + e][row + 32 * i] = b[i][e];
		}
	};
	// A thread's rows and columns are two fours, half a tile apart.
	int r = 4 * (thread() / 8), c = 4 * (thread() % 8);
	f32x4 sums[8][2] = {};
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Step &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		_Pragma("unroll 4") for (int d = 0; d < tile_depth; d++) {
			f32x4 w0 = whole4(&now.w[d][c]), w1 = whole4(&now.w[d][c + tile_cols / 2]);
			UNROLL for (int half = 0; half < 2; half++) {
				f32x4 v = whole4(&now.x[d][r + half * (tile_rows / 2)]);
				UNROLL for (int i = 0; i < 4; i++)
					UNROLL for (int e = 0; e < 4; e++) {
						sums[4 * half + i][0][e] = fma(v[i], w0[e], sums[4 * half + i][0][e]);
						sums[4 * half + i][1][e] = fma(v[i], w1[e], sums[4 * half + i][1][e]);
					}
			}
		}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	UNROLL for (int i = 0; i < 8; i++) {
		int m = from + r + i % 4 + i / 4 * (tile_rows / 2);
		if (m < rows.count) {
			float *out = y + rows.out(m) * ys;
			UNROLL for (int half = 0; half < 2; half++) {
				int at = col + c + half * (tile_cols / 2);
				f32x4 v = sums[i][half];
				if (add.y)
					UNROLL for (int e = 0; e < 4; e++) if (at + e < n) v[e] = add.to(v[e], rows.out(m), at + e);
				store4(out + at, v, n - at, vec & stores);
			}
		}
	}
}

#define TILE(T)                                                                                                            \
	KERNEL THREADS(128) matmul_##T(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int vec, const float *add, i64 as) { \
		tile(y, ys, x, xs, w, ws, All{t}, block_x() * tile_rows, block_y() * tile_cols, n, k, vec, Sum{add, as});  \
	}

template <int M, class T, class Rows> DEVICE void expert_gemv(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, Rows rows, int from, int col, int n, int k, int vec, Sum add) {
	gemv<M, gemv_cols, false>(y, ys, x, xs, w, ws, rows, from, col, n, k, vec, nullptr, 0, add);
}

// The products of experts: blocks are (passes, columns / 4 or 64, experts · weights).
#define EXPERTS(T, m)                                                                                                      \
	KERNEL THREADS(256) expert_gemv_##T##_##m(float *__restrict__ y, float *__restrict__ y1, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, const T *__restrict__ w1, i64 es, i64 ws, int n, int k, int second, int vec, Expert expert) { \
		EXPERT_PRODUCT(T, expert_gemv<m>, block_x() * m, block_y() * gemv_cols)                                           \
	}

#define EXPERT_TILE(T)                                                                                                     \
	KERNEL THREADS(128) expert_matmul_##T(float *__restrict__ y, float *__restrict__ y1, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, const T *__restrict__ w1, i64 es, i64 ws, int n, int k, int second, int vec, Expert expert) { \
		EXPERT_PRODUCT(T, tile, block_x() * tile_rows, block_y() * tile_cols)                                      \
	}

#define ALL(T)                                                                                                             \
	TILE(T)                                                                                                            \
	EXPERTS(T, 1)                                                                                                      \
	EXPERTS(T, 8)                                                                                                      \
	EXPERT_TILE(T)

ALL(FORMAT)

// Matrix products y = x wᵀ in f32: x[t, k] of activations, w[n, k] in any format.
// A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "matmul.h"

// A few rows: a block multiplies up to M of them with 4 rows of the weight, so
// that weights come once from memory, in pieces of 8 per thread (16 bytes of a
// short format): 4 to 8 loads in flight per thread hide the latency when some
// 20 warps share a multiprocessor. The host gives as many threads as have work.
const int gemv_cols = 4;

template <int M, class T, class Rows>
DEVICE void gemv(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, Rows rows, int from, int col, int n, int k, int vec) {
	SHARED static float parts[8][M * gemv_cols];
	const float *in[M];
	const T *weight[gemv_cols];
	// What lies beyond the last row is the last row again, and not stored.
	UNROLL for (int m = 0; m < M; m++) in[m] = x + rows.in(min(from + m, rows.count - 1)) * xs;
	UNROLL for (int r = 0; r < gemv_cols; r++) weight[r] = w + min(col + r, n - 1) * ws;
	float sums[M * gemv_cols] = {};
	for (int j = 8 * thread(); j < k; j += 8 * threads()) {
		if ((vec & loads) && k - j >= 8) {
			Eight b[gemv_cols];
			UNROLL for (int r = 0; r < gemv_cols; r++) b[r] = whole8(weight[r] + j);
			UNROLL for (int m = 0; m < M; m++) {
				Eight a = whole8(in[m] + j);
				UNROLL for (int r = 0; r < gemv_cols; r++)
					UNROLL for (int i = 0; i < 8; i++) sums[m * gemv_cols + r] = fma(a.v[i], b[r].v[i], sums[m * gemv_cols + r]);
			}
			continue;
		}
		NO_UNROLL for (int i = j; i < min(j + 8, k); i++) {
			UNROLL for (int m = 0; m < M; m++)
				UNROLL for (int r = 0; r < gemv_cols; r++) sums[m * gemv_cols + r] = fma(in[m][i], widen(weight[r][i]), sums[m * gemv_cols + r]);
		}
	}
	const int each = 32 / (M * gemv_cols); // lanes that get the same sum
	float sum = warp_sums(sums);
	if (lane() % each == 0)
		parts[warp()][lane() / each] = sum;
	sync();
	int m = thread() / gemv_cols, c = col + thread() % gemv_cols;
	if (m >= M || from + m >= rows.count || c >= n)
		return;
	float total = 0;
	for (int i = 0; i < threads() / 32; i++)
		total += parts[i][thread()];
	y[rows.out(from + m) * ys + c] = total;
}

// Many rows: a block of 128 threads makes a tile of 128 rows and 64 columns of y,
// 8 times 8 per thread, 16 deep at a time. While it multiplies one step, the next
// comes to registers. Each element is summed along k in order.
const int tile_rows = 128, tile_cols = 64, tile_depth = 16;

struct alignas(16) Step {
	float x[tile_depth][tile_rows + 4], w[tile_depth][tile_cols + 4];
};

template <class T, class Rows>
DEVICE void tile(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, Rows rows, int from, int col, int n, int k, int vec) {
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
				store4(out + at, sums[i][half], n - at, vec & stores);
			}
		}
	}
}

// Blocks are (passes over the rows · columns / 4).
#define GEMV(T, m)                                                                                                         \
	KERNEL THREADS(256) gemv_##T##_##m(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec) { \
		gemv<m>(y, ys, x, xs, w, ws, All{t}, block_x() % passes * m, block_x() / passes * gemv_cols, n, k, vec);   \
	}

#define TILE(T)                                                                                                            \
	KERNEL THREADS(128) matmul_##T(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int vec) { \
		tile(y, ys, x, xs, w, ws, All{t}, block_x() * tile_rows, block_y() * tile_cols, n, k, vec);                \
	}

// The products of experts: blocks are (passes, columns / 4 or 64, experts · weights).
#define EXPERTS(T, m)                                                                                                      \
	KERNEL THREADS(256) expert_gemv_##T##_##m(float *__restrict__ y, float *__restrict__ y1, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, const T *__restrict__ w1, i64 es, i64 ws, int n, int k, int second, int vec, Expert expert) { \
		EXPERT_PRODUCT(T, gemv<m>, block_x() * m, block_y() * gemv_cols)                                           \
	}

#define EXPERT_TILE(T)                                                                                                     \
	KERNEL THREADS(128) expert_matmul_##T(float *__restrict__ y, float *__restrict__ y1, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, const T *__restrict__ w1, i64 es, i64 ws, int n, int k, int second, int vec, Expert expert) { \
		EXPERT_PRODUCT(T, tile, block_x() * tile_rows, block_y() * tile_cols)                                      \
	}

#define ALL(T)                                                                                                             \
	GEMV(T, 1)                                                                                                         \
	GEMV(T, 2)                                                                                                         \
	GEMV(T, 4)                                                                                                         \
	GEMV(T, 8)                                                                                                         \
	TILE(T)                                                                                                            \
	EXPERTS(T, 1)                                                                                                      \
	EXPERTS(T, 8)                                                                                                      \
	EXPERT_TILE(T)

ALL(FORMAT)

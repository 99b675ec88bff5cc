// Matrix products y = x wᵀ of a few rows in f32: x[t, k] of activations, w[n, k] in any
// format. A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "gemv.h"

template <int M, int Cols, bool Normed, class T>
DEVICE void product(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, int t, int n, int k, int passes, int vec, const float *norm, float eps, Sum add) {
	SHARED static Parts<M, Cols> parts;
	int from = block_x() % passes * M, col = block_x() / passes * Cols;
	gemv<T, M, Cols, Normed>(parts, x, xs, All{t}, from, Columns<T>{w, ws, col, n}, k, vec, norm);
	int m = thread() / Cols, c = col + thread() % Cols;
	if (m >= M || from + m >= t || c >= n)
		return;
	float total = parts.sum(thread());
	if (Normed)
		total *= parts.norm(m, k, eps);
	y[(from + m) * ys + c] = add.to(total, from + m, c);
}

// Blocks are (passes over the rows · columns / cols); of norm_gemv, x is normed first. What
// is added may lie where y does, which is not __restrict__ therefore.
#define GEMV(T, m, cols, threads) \
	KERNEL threads gemv_##T##_##m##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec, const float *add, i64 as) { \
		product<m, cols, false>(y, ys, x, xs, w, ws, t, n, k, passes, vec, nullptr, 0, Sum{add, as}); \
	}                                                                                                                  \
	KERNEL threads norm_gemv_##T##_##m##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec, const float *add, i64 as, const float *__restrict__ norm, float eps) { \
		product<m, cols, true>(y, ys, x, xs, w, ws, t, n, k, passes, vec, norm, eps, Sum{add, as}); \
	}

// The rows of two weights, in turn.
template <class T> struct InTurn {
	const T *w, *v;
	i64 ws, vs;
	int from, n;

	__attribute__((device)) const T *row(int r) const {
		int at = min(from + r / 2, n - 1);
		return r % 2 ? v + at * vs : w + at * ws;
	}
};

// silu(x wᵀ) · (x vᵀ), of which a block has two columns; of norm_gated_gemv, x is normed first.
template <int M, bool Normed, class T>
DEVICE void gated(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, const T *v, i64 vs, int t, int n, int k, int passes, int vec, const float *norm, float eps) {
	SHARED static Parts<M, 4> parts;
	int from = block_x() % passes * M, col = block_x() / passes * 2;
	gemv<T, M, 4, Normed>(parts, x, xs, All{t}, from, InTurn<T>{w, v, ws, vs, col, n}, k, vec, norm);
	int m = thread() / 2, c = col + thread() % 2;
	if (m >= M || from + m >= t || c >= n)
		return;
	float gate = parts.sum(2 * thread()), up = parts.sum(2 * thread() + 1);
	if (Normed) {
		float f = parts.norm(m, k, eps);
		gate *= f, up *= f;
	}
	y[(from + m) * ys + c] = math::silu(gate) * up;
}

#define GATED(name, normed, T, m, threads) \
	KERNEL threads name##_##T##_##m(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec, const T *__restrict__ v, i64 vs, const float *__restrict__ norm, float eps) { \
		gated<m, normed>(y, ys, x, xs, w, ws, v, vs, t, n, k, passes, vec, norm, eps); \
	}

// Blocks of one row by weights in 16 bits that a multiprocessor has room for, as of other products of one row. For
// 4 that norm theirs ptxas 12.4 spills on 9.0.
constexpr int gated_blocks(int bytes, bool normed) { return bytes != 2 ? 1 : normed ? 3 : 4; }

#define ALL(T) \
	GEMV(T, 1, 1, THREADS(256)) \
	GEMV(T, 1, 4, THREADS(256)) \
	GEMV(T, 2, 4, THREADS(256)) \
	GEMV(T, 4, 4, THREADS_BLOCKS(256, 1)) \
	GEMV(T, 8, 4, THREADS_BLOCKS(256, 1)) \
	GATED(gated_gemv, false, T, 1, THREADS_BLOCKS(256, gated_blocks(sizeof(T), false))) \
	GATED(norm_gated_gemv, true, T, 1, THREADS_BLOCKS(256, gated_blocks(sizeof(T), true))) \
	GATED(norm_gated_gemv, true, T, 2, THREADS(256)) \
	GATED(norm_gated_gemv, true, T, 4, THREADS_BLOCKS(256, 1)) \
	GATED(norm_gated_gemv, true, T, 8, THREADS_BLOCKS(256, 1))

ALL(FORMAT)

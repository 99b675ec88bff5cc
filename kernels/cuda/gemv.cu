// Matrix products y = x wᵀ of a few rows in f32: x[t, k] of activations, w[n, k] in any
// format. A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16 BLOCKS
#include "gemv.h"

// Of one row, whose steps are the launch's start and weights; others have no registers for it.
template <class T, int M> const bool early = M == 1 && sizeof(T) == 2;

template <int M, int Cols, bool Normed, class T>
DEVICE void product(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, int t, int n, int k, int vec,
		const float *norm, float eps, Sum add) {
	SHARED static Parts<M, Cols> parts;
	int from = block_x() * M, col = block_in_yz() * Cols;
	gemv<T, M, Cols, Normed, early<T, M>>(parts, x, xs, All{t}, from, Columns<T>{w, ws, col, n}, k, vec, norm);
	int m = thread() / Cols, c = col + thread() % Cols;
	if (m >= M || from + m >= t || c >= n)
		return;
	float total = parts.sum(thread());
	if (Normed)
		total *= parts.norm(m, k, eps);
	y[(from + m) * ys + c] = add.to(total, from + m, c);
}

// Blocks are (rows / M, columns / cols in y and z), so that those with the same weights run side by
// side; of norm_gemv, x is normed first. The operand to add may lie where y does, which is not
// __restrict__ therefore.
#define GEMV(T, m, cols, threads) \
	KERNEL threads gemv_##T##_##m##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, \
			const T *__restrict__ w, i64 ws, int t, int n, int k, int vec, const float *add, i64 as) { \
		product<m, cols, false>(y, ys, x, xs, w, ws, t, n, k, vec, nullptr, 0, Sum{add, as}); \
	}                                                                                                                  \
	KERNEL threads norm_gemv_##T##_##m##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, \
			const T *__restrict__ w, i64 ws, int t, int n, int k, int vec, const float *add, i64 as, \
			const float *__restrict__ norm, float eps) { \
		product<m, cols, true>(y, ys, x, xs, w, ws, t, n, k, vec, norm, eps, Sum{add, as}); \
	}

// The rows of two weights, in turn.
template <class T> struct InTurn {
	const T *w, *v;
	i64 ws, vs;
	int from, n;

	__attribute__((device)) Row<T> row(int r) const {
		int at = min(from + r / 2, n - 1);
		return r % 2 ? row_of(v, at, vs) : row_of(w, at, ws);
	}
};

// silu(x wᵀ) · (x vᵀ), of which a block has two columns; of norm_gated_gemv, x is normed first.
template <int M, bool Normed, class T>
DEVICE void gated(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, const T *v, i64 vs, int t, int n, int k,
		int vec, const float *norm, float eps) {
	SHARED static Parts<M, 4> parts;
	int from = block_x() * M, col = block_in_yz() * 2;
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
	KERNEL threads name##_##T##_##m(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, \
			i64 ws, int t, int n, int k, int vec, const T *__restrict__ v, i64 vs, const float *__restrict__ norm, \
			float eps) { \
		gated<m, normed>(y, ys, x, xs, w, ws, v, vs, t, n, k, vec, norm, eps); \
	}

// What one row by weights in 16 bits is to have room for, as other products of one row do; blocks,
// whose elements have 1 byte here, take more registers.
constexpr int gated_blocks(int bytes) { return bytes == 2 ? 4 : bytes == 1 ? 2 : 1; }

#define ALL(T) \
	GEMV(T, 1, 1, THREADS_BLOCKS(256, 4)) \
	GEMV(T, 4, 4, THREADS_BLOCKS(256, 1)) \
	GATED(gated_gemv, false, T, 1, THREADS_BLOCKS(256, gated_blocks(sizeof(T)))) \
	GATED(norm_gated_gemv, true, T, 1, THREADS_BLOCKS(256, gated_blocks(sizeof(T)))) \
	GATED(norm_gated_gemv, true, T, 4, THREADS_BLOCKS(256, 1)) \
	GATED(norm_gated_gemv, true, T, 8, THREADS_BLOCKS(256, 1))

ALL(FORMAT)
// What takes other registers in blocks.
#ifdef IN_BLOCKS
#define OTHERS(T) \
	GEMV(T, 1, 4, THREADS_BLOCKS(256, 2)) \
	GEMV(T, 8, 2, THREADS_BLOCKS(256, 1))
#else
#define OTHERS(T) \
	GEMV(T, 1, 4, THREADS(256)) \
	GEMV(T, 2, 4, THREADS_BLOCKS(256, 2)) \
	GEMV(T, 8, 4, THREADS_BLOCKS(256, 1)) \
	GATED(norm_gated_gemv, true, T, 2, THREADS_BLOCKS(256, 2))
#endif

OTHERS(FORMAT)

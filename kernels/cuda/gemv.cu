// Matrix products y = x wᵀ of a few rows in f32: x[t, k] of activations, w[n, k] in any
// format. A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16 BLOCKS
#include "gemv.h"

// Of one row, whose steps are the launch's start and weights; others have no registers for it.
template <class T, int M> const bool early = M == 1 && sizeof(T) == 2;

// What a product of few rows is given: x wᵀ plus a sum, of x normed where there is the weight of a
// norm; with another weight silu(x wᵀ) · (x otherᵀ).
template <class T> struct Gemv {
	Matmul<T> of;
	const T *other; // with the strides of w
	const float *norm;
	float eps;
};

template <int M, int Cols, bool Normed, class T>
DEVICE void product(float *y, const float *__restrict__ x, const T *__restrict__ w, const float *__restrict__ norm,
		const Gemv<T> &arg) {
	SHARED static Parts<M, Cols> parts;
	const Matmul<T> &of = arg.of;
	int from = block_x() * M, first = block_in_yz() * Cols;
	Columns<T> columns{w, of.ws, first, of.n};
	gemv<T, M, Cols, Normed, early<T, M>>(parts, x, of.xs, All{of.t}, from, columns, of.k, of.vec, norm);
	int row = thread() / Cols, column = first + thread() % Cols;
	if (row >= M || from + row >= of.t || column >= of.n)
		return;
	float total = parts.sum(thread());
	if (Normed)
		total *= parts.norm(row, of.k, arg.eps);
	y[(from + row) * of.ys + column] = of.add.to(total, from + row, column);
}

// Blocks are (rows / M, columns / cols in y and z), so that those with the same weights run side by
// side; of norm_gemv, x is normed first. The operand to add may lie where y does, which is not
// __restrict__ therefore.
#define GEMV(T, m, cols, threads) \
	KERNEL threads gemv_##T##_##m##_##cols(Gemv<T> arg) { \
		product<m, cols, false>(arg.of.y, arg.of.x, arg.of.w, nullptr, arg); \
	} \
	KERNEL threads norm_gemv_##T##_##m##_##cols(Gemv<T> arg) { \
		product<m, cols, true>(arg.of.y, arg.of.x, arg.of.w, arg.norm, arg); \
	}

// The rows of two weights, in turn.
template <class T> struct InTurn {
	const T *w, *other;
	i64 stride;
	int from, n;

	__attribute__((device)) Row<T> row(int r) const {
		int at = min(from + r / 2, n - 1);
		return row_of(r % 2 ? other : w, at, stride);
	}
};

// silu(x wᵀ) · (x otherᵀ), of which a block has two columns; of norm_gated_gemv, x is normed first.
template <int M, bool Normed, class T>
DEVICE void gated(float *y, const float *__restrict__ x, const T *__restrict__ w, const T *__restrict__ other,
		const float *__restrict__ norm, const Gemv<T> &arg) {
	SHARED static Parts<M, 4> parts;
	const Matmul<T> &of = arg.of;
	int from = block_x() * M, first = block_in_yz() * 2;
	InTurn<T> rows{w, other, of.ws, first, of.n};
	gemv<T, M, 4, Normed, false, early<T, M>>(parts, x, of.xs, All{of.t}, from, rows, of.k, of.vec, norm);
	int row = thread() / 2, column = first + thread() % 2;
	if (row >= M || from + row >= of.t || column >= of.n)
		return;
	float gate = parts.sum(2 * thread()), up = parts.sum(2 * thread() + 1);
	if (Normed) {
		float factor = parts.norm(row, of.k, arg.eps);
		gate *= factor, up *= factor;
	}
	y[(from + row) * of.ys + column] = math::silu(gate) * up;
}

#define GATED(name, normed, T, m, threads) \
	KERNEL threads name##_##T##_##m(Gemv<T> arg) { \
		gated<m, normed>(arg.of.y, arg.of.x, arg.of.w, arg.other, arg.norm, arg); \
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

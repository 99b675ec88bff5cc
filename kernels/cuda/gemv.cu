// Matrix products y = x wᵀ of a few rows in f32: x[t, k] of activations, w[n, k] in any
// format. A row of y does not depend on which rows come with it. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "gemv.h"

// Blocks are (passes over the rows · columns / cols); of norm_gemv, x is normed first. What
// is added may lie where y does, which is not __restrict__ therefore.
#define GEMV(T, m, cols, threads) \
	KERNEL threads gemv_##T##_##m##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec, const float *add, i64 as) { \
		gemv<m, cols, false>(y, ys, x, xs, w, ws, All{t}, block_x() % passes * m, block_x() / passes * cols, n, k, vec, nullptr, 0, Sum{add, as}); \
	} \
	KERNEL threads norm_gemv_##T##_##m##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec, const float *add, i64 as, const float *__restrict__ norm, float eps) { \
		gemv<m, cols, true>(y, ys, x, xs, w, ws, All{t}, block_x() % passes * m, block_x() / passes * cols, n, k, vec, norm, eps, Sum{add, as}); \
	}

// silu(x wᵀ) · (x vᵀ), of which a block has two columns; of norm_gated_gemv, x is normed first.
#define GATED(name, normed, T, m, threads) \
	KERNEL threads name##_##T##_##m(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int passes, int vec, const T *__restrict__ v, i64 vs, const float *__restrict__ norm, float eps) { \
		few_rows<m, 4, normed, true>(y, ys, x, xs, w, ws, v, vs, All{t}, block_x() % passes * m, block_x() / passes * 2, n, k, vec, norm, eps, Sum{}); \
	}

// What one row by weights in 16 bits is to have room for, as other products of one row do.
constexpr int gated_blocks(int bytes) { return bytes == 2 ? 4 : 1; }

#define ALL(T) \
	GEMV(T, 1, 1, THREADS(256)) \
	GEMV(T, 1, 4, THREADS(256)) \
	GEMV(T, 2, 4, THREADS(256)) \
	GEMV(T, 4, 4, THREADS_BLOCKS(256, 1)) \
	GEMV(T, 8, 4, THREADS_BLOCKS(256, 1)) \
	GATED(gated_gemv, false, T, 1, THREADS_BLOCKS(256, gated_blocks(sizeof(T)))) \
	GATED(norm_gated_gemv, true, T, 1, THREADS_BLOCKS(256, gated_blocks(sizeof(T)))) \
	GATED(norm_gated_gemv, true, T, 2, THREADS(256)) \
	GATED(norm_gated_gemv, true, T, 4, THREADS_BLOCKS(256, 1)) \
	GATED(norm_gated_gemv, true, T, 8, THREADS_BLOCKS(256, 1))

ALL(FORMAT)

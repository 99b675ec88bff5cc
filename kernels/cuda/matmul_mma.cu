// Matrix products y = x wᵀ on tensor cores: both operands are rounded to bf16,
// sums are in f32. A row of y does not depend on which rows come with it. The
// operands' rows are aligned, and k is a multiple of 8. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "matmul.h"
#include "mma.h"

// Some rows: a block of 8 warps multiplies 64 rows of the weight with up to 32 of
// x. Warps take turns along k, 32 at a time, and load fragments straight from
// memory: as the order along k is free, a lane's 8 neighbours of a row serve as
// its pairs of two products. So weights come once, 4 KB in flight per warp.
const int few_cols = 64, few_rows = 32, few_depth = 32;

template <class T, class Rows> DEVICE void few(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, Rows rows, int from, int col, int n, int k, int, Sum add) {
	SHARED static float parts[4][few_cols * few_rows / 32][32];
	const int tall = few_cols / 16, wide = few_rows / 8;
	int g = lane() / 4, part = 8 * (lane() % 4);
	const float *in[wide];
	UNROLL for (int i = 0; i < wide; i++) in[i] = x + rows.in(min(from + 8 * i + g, rows.count - 1)) * xs;
	f32x4 sums[tall][wide] = {};
	for (int j = few_depth * warp() + part; j - part < k; j += 8 * few_depth) {
		Raw<T> a[tall][2];
		Raw<float> b[wide];
		UNROLL for (int i = 0; i < tall; i++)
			UNROLL for (int h = 0; h < 2; h++) load_raw(a[i][h], w + min(col + 16 * i + 8 * h + g, n - 1) * ws + j, k - j);
		UNROLL for (int i = 0; i < wide; i++) load_raw(b[i], in[i] + j, k - j);
		u32x4 q[wide];
		UNROLL for (int i = 0; i < wide; i++) q[i] = pairs(b[i]);
		UNROLL for (int i = 0; i < tall; i++) {
			u32x4 lo = pairs(a[i][0]), hi = pairs(a[i][1]);
			UNROLL for (int e = 0; e < wide; e++) {
				mma(sums[i][e], u32x4{lo[0], hi[0], lo[1], hi[1]}, u32x2{q[e][0], q[e][1]});
				mma(sums[i][e], u32x4{lo[2], hi[2], lo[3], hi[3]}, u32x2{q[e][2], q[e][3]});
			}
		}
	}
	// The warps' sums are added by halves.
	UNROLL for (int half = 4; half > 0; half /= 2) {
		UNROLL for (int i = 0; i < 4 * tall * wide; i++) {
			if (half <= warp() && warp() < 2 * half)
				parts[warp() - half][i][lane()] = sums[i / 4 / wide][i / 4 % wide][i % 4];
		}
		sync();
		UNROLL for (int i = 0; i < 4 * tall * wide; i++) {
			if (warp() < half)
				sums[i / 4 / wide][i / 4 % wide][i % 4] += parts[warp()][i][lane()];
		}
		sync();
	}
	UNROLL for (int i = 0; i < 4 * tall * wide; i++) {
		int c = col + i / 4 / wide * 16 + i % 4 / 2 * 8 + g;
		int row = from + i / 4 % wide * 8 + part / 4 + i % 2;
		if (warp() == 0 && row < rows.count && c < n)
			y[rows.out(row) * ys + c] = add.to(sums[i / 4 / wide][i / 4 % wide][i % 4], rows.out(row), c);
	}
}

// Many rows: a block of 8 warps makes a tile of 128 rows and 128 columns of y, 32
// deep at a time; each warp has 64 rows and 32 columns of it. While the block
// multiplies one step, the next comes to registers.
const int tile_rows = 128, tile_cols = 128, tile_depth = 32;

// Rows of shared memory are 80 bytes apart, so that 8 of them, 16 bytes of each, lie
// in all banks.
struct alignas(16) Step {
	u16 x[tile_rows][tile_depth + 8], w[tile_cols][tile_depth + 8];
};

template <class T, class Rows> DEVICE void tile(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, Rows rows, int from, int col, int n, int k, int, Sum add) {
	SHARED static Step steps[2];
	int row = thread() / 4, part = 8 * (thread() % 4); // and row + 64
	const float *in[2];
	UNROLL for (int i = 0; i < 2; i++) in[i] = x + rows.in(min(from + row + 64 * i, rows.count - 1)) * xs;
	Raw<float> a[2];
	Raw<T> b[2];
	auto load = [&](int j) {
		j += part;
		UNROLL for (int i = 0; i < 2; i++) {
			load_raw(a[i], in[i] + j, k - j);
			load_raw(b[i], w + min(col + row + 64 * i, n - 1) * ws + j, k - j);
		}
	};
	auto store = [&](Step &to) {
		UNROLL for (int i = 0; i < 2; i++) {
			put_pairs(&to.x[row + 64 * i][part], pairs(a[i]));
			put_pairs(&to.w[row + 64 * i][part], pairs(b[i]));
		}
	};
	int r = warp() / 4 * 64, c = warp() % 4 * 32;
	f32x4 sums[4][4] = {};
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Step &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		UNROLL for (int d = 0; d < tile_depth; d += 16) {
			u32x4 u[4], v[2];
			UNROLL for (int i = 0; i < 4; i++) u[i] = load_matrices(&now.x[r + 16 * i + lane() % 16][d + lane() / 16 * 8]);
			UNROLL for (int i = 0; i < 2; i++) v[i] = load_matrices(&now.w[c + 16 * i + lane() / 16 * 8 + lane() % 8][d + lane() / 8 % 2 * 8]);
			UNROLL for (int i = 0; i < 4; i++)
				UNROLL for (int e = 0; e < 4; e++) mma(sums[i][e], u[i], u32x2{v[e / 2][e % 2 * 2], v[e / 2][e % 2 * 2 + 1]});
		}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	UNROLL for (int i = 0; i < 4; i++)
		UNROLL for (int e = 0; e < 4; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int m = from + r + 16 * i + p / 2 * 8 + lane() / 4, at = col + c + 8 * e + lane() % 4 * 2 + p % 2;
				if (m < rows.count && at < n)
					y[rows.out(m) * ys + at] = add.to(sums[i][e][p], rows.out(m), at);
			}
}

// Blocks are (rows / 32, columns / 64) and (rows / 128, columns / 128), and for
// experts (.., .., experts · weights).
#define PRODUCT(name, T, product, rows, cols)                                                                              \
	KERNEL THREADS(256) name##_##T(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int, const float *add, i64 as) { \
		product(y, ys, x, xs, w, ws, All{t}, block_x() * rows, block_y() * cols, n, k, 0, Sum{add, as});                     \
	}                                                                                                                  \
	KERNEL THREADS(256) expert_##name##_##T(float *__restrict__ y, float *__restrict__ y1, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, const T *__restrict__ w1, i64 es, i64 ws, int n, int k, int second, int vec, Expert expert) { \
		EXPERT_PRODUCT(T, product, block_x() * rows, block_y() * cols)                                             \
	}

#define ALL(T)                                                                                                             \
	PRODUCT(mma_few, T, few, few_rows, few_cols)                                                                       \
	PRODUCT(mma_tile, T, tile, tile_rows, tile_cols)

ALL(FORMAT)

// Matrix products y = x wᵀ of many rows on tensor cores that are those of f32 arithmetic but for
// the last bits: an element of x is the sum of three bf16, one of w of one, in f16 of two, in f32 of
// three, and their products are summed in f32. A row of y
// does not depend on which rows come with it, nor on the width of tiles. The operands' rows are
// aligned, and k is a multiple of 8. Where a weight is infinite, or x by f16 or f32, a product may be NaN that
// would be infinite: a piece of the other may be 0.
// Formats: f16 bf16 f32
#include "matmul.h"
#include "mma.h"

// A block of 8 warps makes a tile of some rows and columns of y, 16 deep at a time;
// each warp has half the rows and a quarter of the columns of it: the more, the more products for
// each number that is taken apart. While the block multiplies one step, the next comes to registers.
const int tile_depth = 16, pieces = 3;

template <class T> const int weight_pieces = 2;
template <> const int weight_pieces<bf16> = 1;
template <> const int weight_pieces<float> = 3;

// Rows of shared memory are 48 bytes apart, so that 8 of them, 16 bytes of each, lie in
// all banks.
template <int rows, int cols, int weights> struct alignas(16) Step {
	u16 x[pieces][rows][tile_depth + 8], w[weights][cols][tile_depth + 8];
};

// The upper halves of two words: bf16 of the two numbers, cut off.
DEVICE u32 upper_halves(float lo, float hi) { return __nvvm_prmt(bits_of(lo), bits_of(hi), 0x7632); }

DEVICE float cut_off(float v) { return float_of(bits_of(v) & 0xffff0000); }

// Takes four numbers apart: piece 0 has their first 8 bits, and of what is left so on. Infinity is
// in piece 0 alone; what is left of NaN is NaN, wherever its bits are.
DEVICE float rest_of(float v) { return __builtin_fabsf(v) == __builtin_inff() ? 0 : v - cut_off(v); }

DEVICE void take_apart(f32x4 v, u32x2 (&p)[pieces]) {
	UNROLL for (int i = 0; i < pieces; i++) {
		p[i] = u32x2{upper_halves(v[0], v[1]), upper_halves(v[2], v[3])};
		UNROLL for (int e = 0; e < 4; e++) v[e] = i == 0 ? rest_of(v[e]) : v[e] - cut_off(v[e]);
	}
}

// bf16 is one piece; the 11 bits of f16 are 8 and 3, the 24 of f32 three times 8.
template <class T> DEVICE void take_apart(Raw<T> r, u32x4 (&p)[weight_pieces<T>]) {
	if constexpr (weight_pieces<T> == 1) {
		p[0] = r.v;
	} else {
		Eight v = widen(r);
		UNROLL for (int i = 0; i < weight_pieces<T>; i++) {
			UNROLL for (int e = 0; e < 4; e++) p[i][e] = upper_halves(v.v[2 * e], v.v[2 * e + 1]);
			UNROLL for (int e = 0; e < 8; e++) v.v[e] = i == 0 ? rest_of(v.v[e]) : v.v[e] - cut_off(v.v[e]);
		}
	}
}

extern SHARED u32x4 shared_memory[];

// The two steps in shared memory: what a block has of its own is enough but for three pieces of w.
template <class S> DEVICE S *two_steps() {
	if constexpr (2 * sizeof(S) <= 48 << 10) {
		SHARED static S steps[2];
		return steps;
	} else {
		return (S *)shared_memory;
	}
}

// Piece p of x meets piece q of w where p + q is less than pieces, the smallest first; what is left
// out is 2^-24 of a product. x, y and w are those of the launch.
template <class T, int rows, int cols> DEVICE void split_tile(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws, int t, int n, int k, Sum sum) {
	const int weights = weight_pieces<T>, x_loads = rows / 64, w_loads = cols / 128, high = rows / 32, wide = cols / 32;
	using Both = Step<rows, cols, weights>;
	Both *steps = two_steps<Both>();
	int from = block_x() * rows, col = block_y() * cols;
	// Of x a thread has 4 neighbours of each 64th row, of w 8 of each 128th.
	int row = thread() / 4, part = 4 * (thread() % 4), w_row = thread() / 2, w_part = 8 * (thread() % 2);
	const float *in_x[x_loads];
	UNROLL for (int i = 0; i < x_loads; i++) in_x[i] = x + min(from + row + 64 * i, t - 1) * xs + part;
	const T *in[w_loads];
	UNROLL for (int i = 0; i < w_loads; i++) in[i] = w + min(col + w_row + 128 * i, n - 1) * ws + w_part;
	f32x4 a[x_loads];
	Raw<T> b[w_loads];
	auto load = [&](int j) {
		UNROLL for (int i = 0; i < x_loads; i++) a[i] = k - j > part ? whole4(in_x[i] + j) : 0;
		UNROLL for (int i = 0; i < w_loads; i++) load_raw(b[i], in[i] + j, k - j - w_part);
	};
	auto store = [&](Both &to) {
		UNROLL for (int i = 0; i < x_loads; i++) {
			u32x2 p[pieces];
			take_apart(a[i], p);
			UNROLL for (int e = 0; e < pieces; e++) *(u32x2 *)&to.x[e][row + 64 * i][part] = p[e];
		}
		UNROLL for (int i = 0; i < w_loads; i++) {
			u32x4 q[weights];
			take_apart(b[i], q);
			UNROLL for (int e = 0; e < weights; e++) put_pairs(&to.w[e][w_row + 128 * i][w_part], q[e]);
		}
	};
	int r = warp() / 4 * (rows / 2), c = warp() % 4 * (cols / 4);
	f32x4 sums[high][wide] = {};
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Both &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		NO_UNROLL for (int q = weights - 1; q >= 0; q--) { // the smallest first; unrolled it takes more registers than leave room for two blocks
			u32x4 v[wide / 2];
			UNROLL for (int i = 0; i < wide / 2; i++) v[i] = load_matrices(&now.w[q][c + 16 * i + lane() / 16 * 8 + lane() % 8][lane() / 8 % 2 * 8]);
			UNROLL for (int p = pieces - 1 - q; p >= 0; p--)
				UNROLL for (int i = 0; i < high; i++) {
					u32x4 u = load_matrices(&now.x[p][r + 16 * i + lane() % 16][lane() / 16 * 8]);
					UNROLL for (int e = 0; e < wide; e++) mma(sums[i][e], u, u32x2{v[e / 2][e % 2 * 2], v[e / 2][e % 2 * 2 + 1]});
				}
		}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	UNROLL for (int i = 0; i < high; i++)
		UNROLL for (int e = 0; e < wide; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int m = from + r + 16 * i + p / 2 * 8 + lane() / 4, at = col + c + 8 * e + lane() % 4 * 2 + p % 2;
				if (m < t && at < n)
					y[m * ys + at] = sum.to(sums[i][e][p], m, at);
			}
}

#define SPLIT(T, rows, cols)                                                                                                   \
	KERNEL THREADS(256) mma_split_##T##_##cols(float *y, i64 ys, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int t, int n, int k, int, const float *add, i64 as) { \
		split_tile<T, rows, cols>(y, ys, x, xs, w, ws, t, n, k, Sum{add, as});                                             \
	}

// Wide tiles of bf16 where there are blocks enough. The most of three pieces are w's: more rows share them.
#define TILES_bf16 SPLIT(bf16, 64, 128) SPLIT(bf16, 64, 256)
#define TILES_f16 SPLIT(f16, 64, 128)
#define TILES_f32 SPLIT(f32, 128, 128)
#define TILES(T) TILES_##T
#define ALL(T) TILES(T)
ALL(FORMAT)

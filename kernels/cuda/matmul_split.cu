// Matrix products y = x wᵀ of many rows on tensor cores, by weights in bf16, that are
// those of f32 arithmetic but for the last bits: an element of x is the sum of three
// bf16, whose products are summed in f32. A row of y does not depend on which rows come
// with it. The operands' rows are aligned, and k is a multiple of 8.
#include "matmul.h"
#include "mma.h"

// A block of 8 warps makes a tile of 64 rows and 128 columns of y, 16 deep at a time;
// each warp has 32 rows and 32 columns of it. While the block multiplies one step, the
// next comes to registers.
const int tile_rows = 64, tile_cols = 128, tile_depth = 16, pieces = 3;

// Rows of shared memory are 48 bytes apart, so that 8 of them, 16 bytes of each, lie in
// all banks.
struct alignas(16) Step {
	u16 x[pieces][tile_rows][tile_depth + 8], w[tile_cols][tile_depth + 8];
};

// The upper halves of two words: bf16 of the two numbers, cut off.
DEVICE u32 upper_halves(float lo, float hi) { return __builtin_bit_cast(u32, lo) >> 16 | (bits_of(hi) & 0xffff0000); }

// Takes four numbers apart: piece 0 has their first 8 bits, and of what is left so on.
// What is not finite is in piece 0 alone.
DEVICE void take_apart(f32x4 v, u32x2 (&p)[pieces]) {
	UNROLL for (int i = 0; i < pieces; i++) {
		p[i] = u32x2{upper_halves(v[0], v[1]), upper_halves(v[2], v[3])};
		UNROLL for (int e = 0; e < 4; e++) {
			float rest = v[e] - float_of(bits_of(v[e]) & 0xffff0000);
			v[e] = __builtin_fabsf(v[e]) <= math::largest ? rest : 0;
		}
	}
}

KERNEL THREADS(256) mma_split(float *y, i64 ys, const float *__restrict__ x, i64 xs, const bf16 *__restrict__ w, i64 ws, int t, int n, int k, int, const float *add, i64 as) {
	SHARED static Step steps[2];
	int from = block_x() * tile_rows, col = block_y() * tile_cols;
	// Of x a thread has 4 neighbours of a row, of w 8.
	int row = thread() / 4, part = 4 * (thread() % 4), w_row = thread() / 2, w_part = 8 * (thread() % 2);
	x += min(from + row, t - 1) * xs + part;
	w += min(col + w_row, n - 1) * ws + w_part;
	f32x4 a;
	Raw<bf16> b;
	auto load = [&](int j) {
		a = k - j > part ? whole4(x + j) : 0;
		load_raw(b, w + j, k - j - w_part);
	};
	auto store = [&](Step &to) {
		u32x2 p[pieces];
		take_apart(a, p);
		UNROLL for (int i = 0; i < pieces; i++) *(u32x2 *)&to.x[i][row][part] = p[i];
		put_pairs(&to.w[w_row][w_part], b.v);
	};
	int r = warp() / 4 * 32, c = warp() % 4 * 32;
	f32x4 sums[2][4] = {};
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Step &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		u32x4 v[2];
		UNROLL for (int i = 0; i < 2; i++) v[i] = load_matrices(&now.w[c + 16 * i + lane() / 16 * 8 + lane() % 8][lane() / 8 % 2 * 8]);
		UNROLL for (int p = pieces - 1; p >= 0; p--) // the smallest first
			UNROLL for (int i = 0; i < 2; i++) {
				u32x4 u = load_matrices(&now.x[p][r + 16 * i + lane() % 16][lane() / 16 * 8]);
				UNROLL for (int e = 0; e < 4; e++) mma(sums[i][e], u, u32x2{v[e / 2][e % 2 * 2], v[e / 2][e % 2 * 2 + 1]});
			}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	Sum sum = {add, as};
	UNROLL for (int i = 0; i < 2; i++)
		UNROLL for (int e = 0; e < 4; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int m = from + r + 16 * i + p / 2 * 8 + lane() / 4, at = col + c + 8 * e + lane() % 4 * 2 + p % 2;
				if (m < t && at < n)
					y[m * ys + at] = sum.to(sums[i][e][p], m, at);
			}
}

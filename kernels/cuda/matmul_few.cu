// Matrix products y = x wᵀ of up to 8 rows on tensor cores, with f32's result but for the last
// bits: x and w are taken apart as in split.h. Weights stream from memory to registers, as in
// gemv.h: columns of y are the rows of mma, so that a lane has neighbours of w along k as they lie
// in memory, and needs no other's. A row of y does not depend on which rows come with it. The
// operands' rows are aligned, and k is a multiple of 8. FORMAT is the weights'. Where a weight is
// infinite, or x by f16 or f32, the result may be NaN that would be infinite.
// Formats: f16 bf16 f32
#include "product.h"

const int rows = 8, depth = 32, downs = 4; // along k of a step, and warps that take steps in turn

// A warp has all rows and columns of the tile. Of w, lane 4 g + c has rows g and g + 8 of every
// 16, and of every 32 along k the eight at 8 c. Which of them are which of mma's 16 does not matter
// while x has them in the same places: the first mma takes the first four of each lane, the second
// the others.
template <class T, int tall> struct Tile {
	static const int weights = weight_pieces<T>, cols = 16 * tall, pairs = cols / 2;
	static const int size = rows * cols + rows; // of what a slice leaves

	const Product<T> &p;
	int col, end;
	const T *first[2]; // rows of w that the tile begins with, and 8 further, or of both weights
	u32 in_w[tall][2];
	float square;
	f32x4 sums[tall];

	// Finds what the lane loads. Of two weights, the tile's rows are of each in turn, by eights.
	__attribute__((device, always_inline)) void find() {
		int begin = p.other ? col / 2 : col;
		first[0] = p.w + begin * p.ws, first[1] = (p.other ? p.other : p.w) + begin * p.ws;
		UNROLL for (int i = 0; i < tall; i++)
			UNROLL for (int h = 0; h < 2; h++)
				in_w[i][h] = min((p.other ? 8 * i : 16 * i + 8 * h) + lane() / 4, p.n - 1 - begin) * (u32)p.ws;
		square = 0;
		UNROLL for (int i = 0; i < tall; i++) sums[i] = 0;
	}

	// Loads what the warp multiplies in a step. Behind the end that is something before it, which 0
	// of x is multiplied by.
	template <bool early> __attribute__((device, always_inline)) void load(Raw<T> (&w)[tall][2], int j) const {
		int at = min(j + lane() % 4 * 8, end - 8);
		UNROLL for (int i = 0; i < tall; i++)
			UNROLL for (int h = 0; h < 2; h++) {
				const T *from = first[h] + in_w[i][h] + at;
				if constexpr (early)
					load_early(w[i][h], from);
				else
					load_raw(w[i][h], from, 8);
			}
	}

	// Eight of a row of x in pieces: of the first mma, and of the second.
	__attribute__((device, always_inline)) void take_x(u32x2 (&apart)[2][pieces], int j) {
		int at = j + lane() % 4 * 8, there = min(at, end - 8);
		f32x4 norm[2] = {1, 1};
		if (p.norm)
			UNROLL for (int s = 0; s < 2; s++) norm[s] = whole4(p.norm + there + 4 * s);
		u32 row = min(lane() / 4, p.t - 1) * (u32)p.xs;
		UNROLL for (int s = 0; s < 2; s++) {
			f32x4 v = whole4(p.x + row + there + 4 * s);
			if (at >= end)
				v = 0;
			UNROLL for (int e = 0; e < 4; e++) square = fma(v[e], v[e], square);
			take_apart(v * norm[s], apart[s]);
		}
	}

	// Tensor cores truncate their accumulator. Products of each 16 along k therefore are summed
	// from zero there, the smallest first, and added to the sums outside. What is left out is
	// 2^-24 of a product.
	__attribute__((device, always_inline)) void multiply(const u32x4 (&w)[tall][2][weights],
			const u32x2 (&x_apart)[2][pieces]) {
		UNROLL for (int s = 0; s < 2; s++)
			UNROLL for (int i = 0; i < tall; i++) {
				auto piece = [&](int of_x) {
					const u32x4 &low = w[i][0][of_x], &high = w[i][1][of_x];
					return u32x4{low[2 * s], high[2 * s], low[2 * s + 1], high[2 * s + 1]};
				};
				f32x4 step;
				mma_from_zero(step, piece(weights - 1), x_apart[s][pieces - weights]);
				UNROLL for (int of_w = weights - 1; of_w >= 0; of_w--)
					UNROLL for (int of_x = pieces - 1 - of_w; of_x >= 0; of_x--)
						if (of_w < weights - 1 || of_x < pieces - weights)
							mma(step, piece(of_w), x_apart[s][of_x]);
				sums[i] += step;
			}
	}

	__attribute__((device, always_inline)) void sum_up(int begin) {
		Raw<T> next[tall][2];
		if (p.fixed)
			load<true>(next, begin);
		await();
		if (!p.fixed)
			load<false>(next, begin);
		for (int j = begin; j < end; j += downs * depth) {
			u32x4 w[tall][2][weights];
			UNROLL for (int i = 0; i < tall; i++)
				UNROLL for (int h = 0; h < 2; h++) take_apart(next[i][h], w[i][h]);
			if (j + downs * depth < end)
				load<false>(next, j + downs * depth);
			u32x2 x_apart[2][pieces];
			take_x(x_apart, j);
			multiply(w, x_apart);
		}
	}

	// Stores what a pair of the tile's rows of w gives: two of y, or what two weights' make.
	__attribute__((device, always_inline)) void put(int m, int pair, f32x2 v, float square) const {
		float factor = p.norm ? inverse_rms(square, p.k, p.eps) : 1, *y = p.y + m * p.ys;
		Sum add{p.add, p.as};
		v *= factor;
		int at = col + pair / 8 * 16 + pair % 8;
		if (p.other) {
			at = col / 2 + pair;
			v[0] = math::silu(v[0]) * v[1];
		}
		if (at < p.n)
			y[at] = add.to(v[0], m, at);
		if (!p.other && at + 8 < p.n)
			y[at + 8] = add.to(v[1], m, at + 8);
	}

	// Adds up what all slices have left, if this block is the last to arrive.
	__attribute__((device, always_inline)) void gather(const float *all) {
		SHARED static u32 before;
		const int last = blocks_z() - 1;
		fence();
		sync();
		if (thread() == 0)
			before = atomic_inc(p.arrived + block_y(), last);
		sync();
		if (before != last)
			return;
		fence();
		for (int at = thread(); at < p.t * pairs; at += 128) {
			int m = at / pairs;
			f32x2 v = 0;
			float square = 0;
			UNROLL_4 for (int z = 0; z <= last; z++) {
				v += *(const f32x2 *)(all + (i64)z * size + 2 * at);
				square += all[(i64)z * size + rows * cols + m];
			}
			put(m, at % pairs, v, square);
		}
	}

	__attribute__((device, always_inline)) void run() {
		SHARED static float part[downs][cols][rows + 1], squares[downs][rows];
		float *all = p.partial + (i64)block_y() * blocks_z() * size, *own = all + (i64)block_z() * size;
		end = min(p.k, (block_z() + 1) * p.slice);
		find();
		sum_up(block_z() * p.slice + warp() * depth);
		UNROLL for (int o = 1; o < 4; o *= 2) square += from_lane_xor(square, o);
		if (lane() % 4 == 0)
			squares[warp()][lane() / 4] = square;
		UNROLL for (int i = 0; i < tall; i++)
			UNROLL for (int e = 0; e < 4; e++)
				part[warp()][16 * i + e / 2 * 8 + lane() / 4][lane() % 4 * 2 + e % 2] = sums[i][e];
		sync();
		for (int at = thread(); at < p.t * pairs; at += 128) {
			int pair = at % pairs, m = at / pairs, column = pair / 8 * 16 + pair % 8;
			f32x2 v = 0;
			float square = 0;
			UNROLL for (int d = 0; d < downs; d++) {
				v += f32x2{part[d][column][m], part[d][column + 8][m]};
				square += squares[d][m];
			}
			if (blocks_z() == 1) {
				put(m, pair, v, square);
			} else {
				*(f32x2 *)(own + 2 * at) = v;
				if (pair == 0)
					own[rows * cols + m] = square;
			}
		}
		if (blocks_z() > 1)
			gather(all);
	}
};

template <class T, int tall> DEVICE void product(const Product<T> &p) {
	Tile<T, tall> tile{p, block_y() * 16 * tall};
	tile.run();
}

// A warp has room for more columns of bf16 than of others.
#define PRODUCT(T, name, blocks, tall) \
	KERNEL THREADS_BLOCKS(128, blocks) few_##T##name(Product<T> p) { product<T, tall>(p); }

#define ALL(T) PRODUCT(T, , sizeof(T) == 4 ? 3 : 4, weight_pieces<T> == 1 ? 4 : 2) PRODUCT(T, _narrow, 4, 1)
ALL(FORMAT)

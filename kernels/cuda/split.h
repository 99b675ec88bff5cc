// Tiles of matrix products on tensor cores that give f32's result but for the last bits: see
// matmul_split.cu.
#pragma once
#include "apart.h"
#include "matmul.h"
#include "mma.h"

// A block of 8 warps makes a tile of some rows and columns of y, 16 deep at a time;
// each warp has half the rows and a quarter of the columns of it: the more, the more products for
// each number that is taken apart. While the block multiplies one step, the next comes to
// registers.
const int tile_depth = 16;

template <class T> const int weight_pieces = 2;
template <> const int weight_pieces<bf16> = 1;
template <> const int weight_pieces<float> = 3;

// Rows of shared memory are 48 bytes apart, so that 8 of them, 16 bytes of each, lie in
// all banks.
template <int rows, int cols, int weights> struct alignas(16) Step {
	u16 x[pieces][rows][tile_depth + 8], w[weights][cols][tile_depth + 8];
};

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
// out is 2^-24 of a product. Tensor cores truncate their accumulator, so each step's products are
// summed from zero there and added to the sums outside. Weight has the rows of the weight that the
// tile's columns are of. The end gets the sums of each warp, whose first row and column of the tile
// are top and left.
template <class T, int tall, int cols, class Rows, class Weight, class End>
DEVICE void split_tile(const float *x, i64 xs, Rows rows, int from, Weight weight, int k, End end) {
	const int weights = weight_pieces<T>, x_loads = tall / 64, w_loads = cols / 128, high = tall / 32, wide = cols / 32;
	using Both = Step<tall, cols, weights>;
	Both *steps = two_steps<Both>();
	// Of x a thread has 4 neighbours of each 64th row, of w 8 of each 128th.
	int row = thread() / 4, part = 4 * (thread() % 4), w_row = thread() / 2, w_part = 8 * (thread() % 2);
	const float *in_x[x_loads];
	UNROLL for (int i = 0; i < x_loads; i++)
		in_x[i] = x + rows.in(min(from + row + 64 * i, rows.count - 1)) * xs + part;
	Row<T> in[w_loads];
	UNROLL for (int i = 0; i < w_loads; i++) in[i] = weight.row(w_row + 128 * i);
	f32x4 of_x[x_loads];
	Raw<T> of_w[w_loads];
	auto load = [&](int j) {
		UNROLL for (int i = 0; i < x_loads; i++) of_x[i] = k - j > part ? whole4(in_x[i] + j) : 0;
		UNROLL for (int i = 0; i < w_loads; i++) load_raw(of_w[i], in[i], j + w_part, k - j - w_part);
	};
	auto store = [&](Both &to) {
		UNROLL for (int i = 0; i < x_loads; i++) {
			u32x2 apart[pieces];
			take_apart(of_x[i], apart);
			UNROLL for (int e = 0; e < pieces; e++) put_pairs(&to.x[e][row + 64 * i][part], apart[e]);
		}
		UNROLL for (int i = 0; i < w_loads; i++) {
			u32x4 apart[weights];
			take_apart(of_w[i], apart);
			UNROLL for (int e = 0; e < weights; e++) put_pairs(&to.w[e][w_row + 128 * i][w_part], apart[e]);
		}
	};
	int top = warp() / 4 * (tall / 2), left = warp() % 4 * (cols / 4);
	f32x4 sums[high][wide] = {};
	bool live = !Rows::ragged || from + top < rows.count; // the warp has rows
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Both &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		// The smallest first; unrolled it takes more registers than leave room for two
		// blocks.
		NO_UNROLL for (int q = weights - 1; q >= 0; q--) if (live)
			UNROLL for (int g = 0; g < wide; g += 4) {
				u32x4 w_parts[2];
				UNROLL for (int i = 0; i < 2; i++) {
					int row = left + 8 * g + 16 * i + lane() / 16 * 8 + lane() % 8;
					w_parts[i] = load_matrices(&now.w[q][row][lane() / 8 % 2 * 8]);
				}
				UNROLL for (int i = 0; i < high; i++) {
					f32x4 step[4] = {};
					UNROLL for (int p = pieces - 1 - q; p >= 0; p--) {
						u32x4 x_parts = load_matrices(&now.x[p][top + 16 * i + lane() % 16][lane() / 16 * 8]);
						UNROLL for (int e = 0; e < 4; e++) {
							mma(step[e], x_parts, u32x2{w_parts[e / 2][e % 2 * 2], w_parts[e / 2][e % 2 * 2 + 1]});
							if (p == 0 || weights == 3) { // of w in three pieces no registers are left for all of step
								sums[i][g + e] = computed(sums[i][g + e] + step[e]);
								step[e] = 0;
							}
						}
					}
				}
			}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	end(sums, top, left, (float *)steps);
}

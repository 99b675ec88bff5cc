// Tiles of matrix products on tensor cores, of operands that are rounded to bf16: see
// matmul_mma.cu.
#pragma once
#include "matmul.h"
#include "mma.h"

// Some rows: a block of 8 warps multiplies 64 rows of the weight with up to 32 of
// x. Warps take turns along k, 32 at a time, and load fragments straight from
// memory: as the order along k is free, a lane's 8 neighbours of a row serve as
// its pairs of two products. So weights come once, 4 KB in flight per warp.
const int few_cols = 64, few_rows = 32, few_depth = 32;

template <class T, class X, class Rows, class Weight, class End>
DEVICE void few(const X *x, i64 xs, Rows rows, int from, Weight weight, int k, End end) {
	SHARED static float parts[4][few_cols * few_rows / 32][32];
	const int tall = few_cols / 16, wide = few_rows / 8;
	int eighth = lane() / 4, part = 8 * (lane() % 4);
	const X *in[wide];
	UNROLL for (int i = 0; i < wide; i++) in[i] = x + rows.in(min(from + 8 * i + eighth, rows.count - 1)) * xs;
	f32x4 sums[tall][wide] = {};
	for (int j = few_depth * warp() + part; j - part < k; j += 8 * few_depth) {
		Raw<T> of_w[tall][2];
		Raw<X> of_x[wide];
		UNROLL for (int i = 0; i < tall; i++)
			UNROLL for (int h = 0; h < 2; h++) load_raw(of_w[i][h], weight.row(16 * i + 8 * h + eighth), j, k - j);
		UNROLL for (int i = 0; i < wide; i++) load_raw(of_x[i], in[i] + j, k - j);
		u32x4 x_pairs[wide];
		UNROLL for (int i = 0; i < wide; i++) x_pairs[i] = pairs(of_x[i]);
		UNROLL for (int i = 0; i < tall; i++) {
			u32x4 lo = pairs(of_w[i][0]), hi = pairs(of_w[i][1]);
			UNROLL for (int e = 0; e < wide; e++) {
				mma(sums[i][e], u32x4{lo[0], hi[0], lo[1], hi[1]}, u32x2{x_pairs[e][0], x_pairs[e][1]});
				mma(sums[i][e], u32x4{lo[2], hi[2], lo[3], hi[3]}, u32x2{x_pairs[e][2], x_pairs[e][3]});
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
	if (warp() == 0)
		each_sum(sums, [=](int column, int row, float v) ALWAYS_INLINE { end.put(row, column, v, (float *)parts); });
	end.done((float *)parts);
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

// Weight has the rows of the weight that the tile's columns are of, of elements T. The end gets the
// sums of each warp, whose first row and column of the tile are top and left.
template <class T, class X, class Rows, class Weight, class End>
DEVICE void tile(const X *x, i64 xs, Rows rows, int from, Weight weight, int k, End end) {
	SHARED static Step steps[2];
	int row = thread() / 4, part = 8 * (thread() % 4); // and row + 64
	const X *in[2];
	Row<T> w[2];
	UNROLL for (int i = 0; i < 2; i++) w[i] = weight.row(row + 64 * i);
	UNROLL for (int i = 0; i < 2; i++) in[i] = x + rows.in(min(from + row + 64 * i, rows.count - 1)) * xs;
	Raw<X> of_x[2];
	Raw<T> of_w[2];
	auto load = [&](int j) {
		j += part;
		UNROLL for (int i = 0; i < 2; i++) {
			load_raw(of_x[i], in[i] + j, k - j);
			load_raw(of_w[i], w[i], j, k - j);
		}
	};
	auto store = [&](Step &to) {
		UNROLL for (int i = 0; i < 2; i++) {
			put_pairs(&to.x[row + 64 * i][part], pairs(of_x[i]));
			put_pairs(&to.w[row + 64 * i][part], pairs(of_w[i]));
		}
	};
	int top = warp() / 4 * 64, left = warp() % 4 * 32;
	f32x4 sums[4][4] = {};
	bool live = !Rows::ragged || from + top < rows.count; // the warp has rows
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Step &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		UNROLL for (int d = 0; d < tile_depth; d += 16) if (live) {
			u32x4 x_parts[4], w_parts[2];
			UNROLL for (int i = 0; i < 4; i++)
				x_parts[i] = load_matrices(&now.x[top + 16 * i + lane() % 16][d + lane() / 16 * 8]);
			UNROLL for (int i = 0; i < 2; i++)
				w_parts[i] = load_matrices(
					&now.w[left + 16 * i + lane() / 16 * 8 + lane() % 8][d + lane() / 8 % 2 * 8]);
			UNROLL for (int i = 0; i < 4; i++)
				UNROLL for (int e = 0; e < 4; e++)
					mma(sums[i][e], x_parts[i], u32x2{w_parts[e / 2][e % 2 * 2], w_parts[e / 2][e % 2 * 2 + 1]});
		}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	end(sums, top, left, (float *)steps);
}

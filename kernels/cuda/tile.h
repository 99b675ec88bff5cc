// Tiles of matrix products in f32.
#pragma once
#include "matmul.h"

// Many rows: a block of 128 threads makes a tile of 128 rows and 64 columns of y,
// 8 times 8 per thread, 16 deep at a time. While it multiplies one step, the next
// comes to registers. Each element is summed along k in order.
const int tile_rows = 128, tile_cols = 64, tile_depth = 16;

struct alignas(16) Step {
	float x[tile_depth][tile_rows + 4], w[tile_depth][tile_cols + 4];
};

// Weights has the rows of the weight that the tile's columns are of, of elements T. The end gets
// the sums: of thread, rows top to top + 3 and those half a tile below, at columns left to left + 3
// and half a tile on.
template <class T, class Rows, class Weights, class End>
DEVICE void tile(const float *x, i64 xs, Rows rows, int from, Weights weights, int k, int vec, End end) {
	SHARED static Step steps[2];
	// Four threads load 16 neighbours of a row.
	int row = thread() / 4, part = 4 * (thread() % 4);
	const float *in[4];
	Row<T> weight[2];
	UNROLL for (int i = 0; i < 4; i++) in[i] = x + rows.in(min(from + row + 32 * i, rows.count - 1)) * xs;
	UNROLL for (int i = 0; i < 2; i++) weight[i] = weights.row(row + 32 * i);
	f32x4 of_x[4], of_w[2];
	auto load = [&](int j) {
		j += part;
		UNROLL for (int i = 0; i < 4; i++) of_x[i] = load4(in[i] + j, k - j, vec & loads);
		UNROLL for (int i = 0; i < 2; i++) of_w[i] = weight[i].four(j, k - j, vec & loads);
	};
	auto store = [&](Step &to) {
		UNROLL for (int e = 0; e < 4; e++) {
			UNROLL for (int i = 0; i < 4; i++) to.x[part + e][row + 32 * i] = of_x[i][e];
			UNROLL for (int i = 0; i < 2; i++) to.w[part + e][row + 32 * i] = of_w[i][e];
		}
	};
	// A thread's rows and columns are two fours, half a tile apart.
	int top = 4 * (thread() / 8), left = 4 * (thread() % 8);
	f32x4 sums[8][2] = {};
	load(0);
	store(steps[0]);
	sync();
	for (int j = 0; j < k; j += tile_depth) {
		Step &now = steps[j / tile_depth % 2];
		bool more = j + tile_depth < k;
		if (more)
			load(j + tile_depth);
		_Pragma("unroll 4") for (int d = 0; d < tile_depth; d++) {
			f32x4 w_left = whole4(&now.w[d][left]), w_right = whole4(&now.w[d][left + tile_cols / 2]);
			UNROLL for (int half = 0; half < 2; half++) {
				f32x4 v = whole4(&now.x[d][top + half * (tile_rows / 2)]);
				UNROLL for (int i = 0; i < 4; i++)
					UNROLL for (int e = 0; e < 4; e++) {
						sums[4 * half + i][0][e] = fma(v[i], w_left[e], sums[4 * half + i][0][e]);
						sums[4 * half + i][1][e] = fma(v[i], w_right[e], sums[4 * half + i][1][e]);
					}
			}
		}
		if (more)
			store(steps[(j / tile_depth + 1) % 2]);
		sync();
	}
	end(sums, top, left, (float *)steps);
}

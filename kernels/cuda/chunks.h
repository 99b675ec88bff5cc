// The parts of scans in chunks of tokens, by blocks of 256 threads, of 32 channels each. A thread
// has token thread() / 16 of a chunk and every 16th from there on, channel thread() % 16 and the
// 16th from there; a row in shared memory begins 4 banks after the one before it.
#pragma once
#include "krait.h"

const int tile_channels = 32;

extern SHARED f32x4 shared_memory[];

// The sum of a lane's numbers and those of the lanes below it.
template <int lanes> DEVICE double sum_through(double v) {
	UNROLL for (int o = 1; o < lanes; o *= 2) {
		u64 below = from_lane_below(__builtin_bit_cast(u64, v), o);
		if (lane() >= o)
			v += __builtin_bit_cast(double, below);
	}
	return v;
}

// Fills rows of shared memory, of stride floats each, with the first rows of cols columns and
// zeros. If rows are aligned, they are copied while threads go on.
DEVICE void fetch(float *to, int all, int stride, const float *from, i64 apart, int rows, int cols, int vec) {
	NO_UNROLL for (int r = warp(); r < all; r += 8)
		NO_UNROLL for (int k = 4 * lane(); k < stride - 4; k += 128) {
			if (vec)
				copy_async_16(shared_address(to + r * stride + k), from + r * apart + k, r < rows && k < cols ? 16 : 0);
			else
				put4(to + r * stride + k, load4(from + r * apart + k, r < rows ? cols - k : 0, false));
		}
}

// Adds to a thread's results what tokens up to its own give: y_i += Σ_{j≤i} weights_ij x_j.
template <int parts, int chunk>
DEVICE void add_tokens(float (&y)[parts][2], const float (&weights)[chunk][tile_channels + 4],
                       const float (&x)[chunk][tile_channels + 4]) {
	int i = thread() / 16, j = thread() % 16;
	UNROLL for (int part = 0; part < parts; part++)
		NO_UNROLL for (int from = 16 * part; from < 16 * part + 16; from += 4) {
			float v[4][2];
			UNROLL for (int e = 0; e < 4; e++)
				UNROLL for (int q = 0; q < 2; q++) v[e][q] = x[from + e][j + 16 * q];
			UNROLL for (int p = part; p < parts; p++) {
				f32x4 w = whole4(&weights[i + 16 * p][from]);
				UNROLL for (int e = 0; e < 4; e++)
					UNROLL for (int q = 0; q < 2; q++) y[p][q] = fma(w[e], v[e][q], y[p][q]);
			}
		}
}

// Carries a state, of a row per channel, past count tokens: state = decay · state + Σ tail_i x_i
// rows_i. decay(k) is that of four neighbours of a row, or of all.
template <int chunk, class Decay>
DEVICE void carry(float *state, int stride, Decay decay, const float (&x)[chunk][tile_channels + 4],
                  const float (&tail)[chunk], const float *rows, int count) {
	for (int k = 4 * lane(); k < stride - 4; k += 128) {
		f32x4 v[4];
		UNROLL for (int r = 0; r < 4; r++) v[r] = whole4(state + (4 * warp() + r) * stride + k) * decay(k);
		UNROLL_4 for (int from = 0; from < count; from++) {
			f32x4 by = whole4(&x[from][4 * warp()]) * tail[from], w = whole4(rows + from * stride + k);
			UNROLL for (int r = 0; r < 4; r++)
				UNROLL for (int e = 0; e < 4; e++) v[r][e] = fma(by[r], w[e], v[r][e]);
		}
		UNROLL for (int r = 0; r < 4; r++) put4(state + (4 * warp() + r) * stride + k, v[r]);
	}
}

// Products with a few rows, of which every weight is read once.
#pragma once
#include "matmul.h"

// What the warps have summed up: of each row those of its columns.
template <int M, int Cols> struct Parts {
	float sums[8][M * Cols], squares[8][M];

	__attribute__((device)) float sum(int at) const {
		float total = 0;
		for (int i = 0; i < threads() / 32; i++) total += sums[i][at];
		return total;
	}
	__attribute__((device)) float norm(int m, int k, float eps) const {
		float all = 0;
		for (int i = 0; i < threads() / 32; i++) all += squares[i][m];
		return inverse_rms(all, k, eps);
	}
};

// A block multiplies up to M rows with Cols rows of the weight, in pieces of 8 neighbours per
// thread (16 bytes of a short format). With one row, a thread has the weights of two steps along
// k in flight, 2 Cols loads. The host gives as many threads as divide k, if any do, and fewer
// columns to a block for narrow weights. All threads may read the parts afterwards; before they
// are written again, these have to wait for each other. Weights has the rows of the weight, of
// elements T.
//
// With Early, the first weights come to the cache of all before the launch before has ended
// (await). With Ordered, the next step has a place of its own, and is loaded behind this one:
// otherwise two weights by one row take more registers than four blocks leave. With Normed, rows
// of x are normed on the way: what is summed is w · norm · x, and x² beside it; the norm's
// factor comes at the end.
template <class T, int M, int Cols, bool Normed, bool Early = false, bool Ordered = false, class Rows, class Weights>
DEVICE void gemv(Parts<M, Cols> &parts, const float *x, i64 xs, Rows rows, int from, Weights weights, int k, int vec,
                 const float *norm) {
	const float *in[M];
	Row<T> weight[Cols];
	// What lies beyond the last row is the last row again, and not stored.
	UNROLL for (int m = 0; m < M; m++) in[m] = x + rows.in(min(from + m, rows.count - 1)) * xs;
	UNROLL for (int r = 0; r < Cols; r++) weight[r] = weights.row(r);
	float sums[M * Cols] = {}, square[M] = {};
	auto load = [&](Raw<T> (&raw)[Cols], int j) {
		UNROLL for (int r = 0; r < Cols; r++) load_raw(raw[r], weight[r], j, 8);
	};
	auto multiply = [&](const Raw<T> (&raw)[Cols], int j) {
		Eight gain;
		if (Normed)
			gain = whole8(norm + j);
		UNROLL for (int m = 0; m < M; m++) {
			Eight own = whole8(in[m] + j);
			UNROLL for (int i = 0; i < 8; i++) if (Normed) {
				square[m] = fma(own.v[i], own.v[i], square[m]);
				own.v[i] *= gain.v[i];
			}
			UNROLL for (int r = 0; r < Cols; r++) {
				Eight by = widen(raw[r]);
				UNROLL for (int i = 0; i < 8; i++) sums[m * Cols + r] = fma(own.v[i], by.v[i], sums[m * Cols + r]);
			}
		}
	};
	const int ahead = !Blocks<T> && (M == 1 || (M == 2 && sizeof(T) == 2)) ? 2 : 1; // steps whose loads are in flight
	int j = 8 * thread(), step = 8 * threads();
	if constexpr (Early) {
		if (j + 8 <= k)
			UNROLL for (int r = 0; r < Cols; r++) prefetch(weight[r].p + j);
		await();
	}
	if (vec & loads)
		for (; j + 8 <= k; j += ahead * step) {
			Raw<T> raw[ahead][Cols];
			if constexpr (Ordered) {
				int next = j + step;
				asm("" : "+r"(next));
				load(raw[0], j);
				asm volatile("" ::: "memory");
				if (next + 8 <= k)
					load(raw[1], next);
			} else {
				UNROLL for (int i = 0; i < ahead; i++) if (i == 0 || j + i * step + 8 <= k) load(raw[i], j + i * step);
			}
			UNROLL for (int i = 0; i < ahead; i++) if (i == 0 || j + i * step + 8 <= k) multiply(raw[i], j + i * step);
		}
	if (vec & loads)
		j = k % 8 && thread() == k / 8 % threads() ? k / 8 * 8 : k;
	if constexpr (!Blocks<T>) // whose rows of x are aligned and whole eights
		for (; j < k; j += step)
			NO_UNROLL for (int i = j; i < min(j + 8, k); i++) {
				UNROLL for (int m = 0; m < M; m++) {
					float own = in[m][i];
					if (Normed) {
						square[m] = fma(own, own, square[m]);
						own *= norm[i];
					}
					UNROLL for (int r = 0; r < Cols; r++)
						sums[m * Cols + r] = fma(own, weight[r].one(i), sums[m * Cols + r]);
				}
			}
	const int each = 32 / (M * Cols), each_row = 32 / M; // lanes that get the same sum
	float sum = warp_sums(sums);
	if (lane() % each == 0)
		parts.sums[warp()][lane() / each] = sum;
	if (Normed) {
		sum = warp_sums(square);
		if (lane() % each_row == 0)
			parts.squares[warp()][lane() / each_row] = sum;
	}
	sync();
}

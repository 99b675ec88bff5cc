// C Bᵀ of the tokens of a chunk with each other, once for all heads of a group, from
// which the scan with one rate per head goes on.
#include "scores.h"

const int deep = 64; // states at a time

// The rows of shared memory and what is not there, as the kernels of the scan take them.
DEVICE void fetch(float (*to)[deep + 4], int all, const float *from, i64 apart, int rows, int cols, int vec) {
	NO_UNROLL for (int i = thread(); i < all * deep / 4; i += 256) {
		int r = i / (deep / 4), k = i % (deep / 4) * 4;
		put4(&to[r][k], load4(from + r * apart + k, r < rows ? cols - k : 0, vec));
	}
}

// Blocks of 256 threads are (chunks, groups).
template <int chunk> DEVICE void dots(const Scores<float> &arg) {
	SHARED static struct alignas(16) {
		float b[chunk][deep + 4], c[chunk][deep + 4];
	} m;
	const int parts = chunk / 16;
	Piece piece;
	if (!find_piece(arg.seg, arg.seqs, chunk, block_x(), piece))
		return;
	int i = thread() / 16, j = thread() % 16, group = block_y(), n = arg.n;
	const float *b = arg.b + (i64)piece.first * arg.bs + (i64)group * n;
	const float *c = arg.c + (i64)piece.first * arg.cs + (i64)group * n;
	float sum[parts][parts] = {};
	NO_UNROLL for (int from = 0; from < n; from += deep) {
		fetch(m.b, chunk, b + from, arg.bs, piece.tokens, n - from, arg.vec);
		fetch(m.c, chunk, c + from, arg.cs, piece.tokens, n - from, arg.vec);
		sync();
		NO_UNROLL for (int k = 0; k < min(deep, n - from); k += 4)
			UNROLL for (int p = 0; p < parts; p++) {
				f32x4 u = whole4(&m.c[i + 16 * p][k]);
				UNROLL for (int q = 0; q <= p; q++) {
					f32x4 v = whole4(&m.b[j + 16 * q][k]);
					UNROLL for (int e = 0; e < 4; e++) sum[p][q] = fma(u[e], v[e], sum[p][q]);
				}
			}
		sync(); // what the next states overwrite is read no more
	}
	UNROLL for (int p = 0; p < parts; p++)
		UNROLL for (int q = 0; q <= p; q++)
			if (i + 16 * p < piece.tokens)
				arg.y[(i64)(piece.first + i + 16 * p) * arg.ys + group * chunk + j + 16 * q] = sum[p][q];
}

KERNEL THREADS(256) ssd_scores_32(Scores<float> arg) { dots<32>(arg); }
KERNEL THREADS(256) ssd_scores_16(Scores<float> arg) { dots<16>(arg); }

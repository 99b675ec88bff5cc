// C Bᵀ of the tokens of a chunk with each other, once for all heads of a group, and B and C taken
// apart, from which the scan in f32 on tensor cores goes on.
#include "ssd_split.h"
#include "scores.h"

// Blocks of 128 threads are (chunks, groups); a warp has 16 tokens with 16 others. States go by 128
// at a time.
KERNEL THREADS(128) ssd_split_scores(Scores<float> arg) {
	SHARED static struct alignas(16) {
		u16 b[2][chunk][128 + 8], c[2][chunk][128 + 8];
	} m;
	Piece p;
	if (!find_piece(arg.seg, arg.seqs, chunk, block_x(), p))
		return;
	int row = thread() / 4, part = thread() % 4 * 8, n = arg.n, deep = in_sixteens(n);
	int there = row < p.tokens ? n : 0, at = block_y() * row_of(n);
	const float *b = arg.b + (i64)(p.first + row) * arg.bs + (i64)block_y() * n;
	const float *c = arg.c + (i64)(p.first + row) * arg.cs + (i64)block_y() * n;
	float *y = arg.y + (i64)p.first * arg.ys + at;
	float most_b = 0, most_c = 0;
	NO_UNROLL for (int k = part; k < deep; k += 32)
		UNROLL for (int i = 0; i < 8; i += 4) {
			most_b = size_of(most_b, load4(b + k + i, there - k - i, true));
			most_c = size_of(most_c, load4(c + k + i, there - k - i, true));
		}
	Scale scale_b = scale_of(block_max(most_b)), scale_c = scale_of(block_max(most_c));
	// Takes eight states of a token apart, for the products and for the scan.
	auto take = [&](u16(&to)[2][chunk][128 + 8], const float *from, int k, float up, int place) {
		f32x4 first = load4(from + k, there - k, true), second = load4(from + k + 4, there - k - 4, true);
		put_halves(to, row, k % 128, first * up, second * up);
		if (row < p.tokens)
			UNROLL for (int i = 0; i < 2; i++)
				*(u32x4 *)(halves_of(y + row * arg.ys) + (place + i) * deep + k) = *(u32x4 *)&to[i][row][k % 128];
	};
	int t = warp() / 2 * 16, j = warp() % 2 * 16; // the warp's tokens, and those before them
	f32x4 sums[2] = {};
	NO_UNROLL for (int from = 0; from < deep; from += 128) {
		int to = min(deep, from + 128);
		NO_UNROLL for (int k = from + part; k < to; k += 32) {
			take(m.b, b, k, scale_b.up, 0);
			take(m.c, c, k, scale_c.up, 2);
		}
		sync();
		NO_UNROLL for (int k = 0; k < to - from; k += 16) {
			u32x4 a[2][1];
			UNROLL for (int i = 0; i < 2; i++) a[i][0] = load_matrices(of_a(m.c[i] + t, k));
			f32x4 step[2];
			products(step, a, [&](int half, int) { return load_matrices(of_b(m.b[half] + j, k)); });
			UNROLL for (int q = 0; q < 2; q++) sums[q] += step[q];
		}
		sync(); // what the next states overwrite is read no more
	}
	t += lane() / 4, j += lane() % 4 * 2;
	float most = 0;
	UNROLL for (int q = 0; q < 2; q++)
		UNROLL for (int i = 0; i < 4; i++) {
			if (j + 8 * q + i % 2 > t + i / 2 * 8)
				sums[q][i] = 0; // of a later token
			most = max(most, __builtin_fabsf(sums[q][i]));
		}
	Scale scale = scale_of(block_max(most));
	UNROLL for (int i = 0; i < 2; i++) if (t + 8 * i < p.tokens)
		UNROLL for (int q = 0; q < 2; q++)
			store_pair(y + (t + 8 * i) * arg.ys + j + 8 * q, sums[q][2 * i] * scale.up, sums[q][2 * i + 1] * scale.up);
	if (thread() < p.tokens)
		put4(y + thread() * arg.ys + scales,
				f32x4{scale.down * scale_b.down * scale_c.down, scale_b.down, scale_c.down, 0});
}

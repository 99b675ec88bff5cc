// C Bᵀ of the tokens of a chunk with each other, once for all heads of a group, from
// which the scan on tensor cores goes on; x and y are rounded to bf16, sums are in f32.
#include "ssd_mma.h"

// Blocks of 128 threads are (chunks, groups); a warp has 16 of the 64 tokens. States go
// by 128 at a time. Of a token no sums with those of the next 16 and later are put out.
template <class V> DEVICE void dots(float *y, i64 ys, const V *b, i64 bs, const V *c, i64 cs, const int *seg, int seqs,
		int n) {
	SHARED static struct alignas(16) {
		u16 b[chunk][128 + 8], c[chunk][128 + 8];
	} m;
	Piece p;
	if (!find_piece(seg, seqs, chunk, block_x(), p))
		return;
	int mine = 16 * warp(), group = block_y();
	f32x4 sums[8] = {};
	b += (i64)p.first * bs + (i64)group * n;
	c += (i64)p.first * cs + (i64)group * n;
	NO_UNROLL for (int from = 0; from < n; from += 128) {
		fetch<128>(m.b, b + from, bs, p.tokens, n - from);
		fetch<128>(m.c, c + from, cs, p.tokens, n - from);
		end_group();
		wait_groups<0>();
		sync();
		int deep = min(128, (n - from + 15) / 16 * 16);
		NO_UNROLL for (int k = 0; k < deep; k += 16) {
			u32x4 a = load_matrices(&m.c[mine + lane() % 16][k + lane() / 16 * 8]);
			add_dots(sums, a, m.b, k);
		}
		sync(); // what the next states overwrite is read no more
	}
	y += (i64)(p.first + mine + lane() / 4) * ys + group * chunk + lane() % 4 * 2;
	UNROLL for (int e = 0; e < 8; e++) if (e / 2 <= warp()) {
		UNROLL for (int i = 0; i < 2; i++) if (mine + lane() / 4 + 8 * i < p.tokens)
			*(f32x2 *)(y + 8 * i * ys + 8 * e) = f32x2{sums[e][2 * i], sums[e][2 * i + 1]};
	}
}

#define SCORES(name, V) \
	KERNEL THREADS(128) name(float *y, i64 ys, const V *__restrict__ b, i64 bs, const V *__restrict__ c, i64 cs, \
			const int *__restrict__ seg, int seqs, int n) { \
		dots(y, ys, b, bs, c, cs, seg, seqs, n); \
	}

SCORES(ssd_mma_scores, float)
SCORES(ssd_mma_scores_bf16, bf16)

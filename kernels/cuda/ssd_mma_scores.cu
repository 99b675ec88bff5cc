// C Bᵀ of the tokens of a chunk with each other, once for all heads of a group, from
// which the scan on tensor cores goes on; x and y are rounded to bf16, sums are in f32.
#include "scores.h"
#include "ssd_mma.h"

// Blocks of 128 threads are (chunks, groups); a warp has 16 of the 64 tokens. States go
// by 128 at a time. Of a token no sums with those of the next 16 and later are put out.
template <class V> DEVICE void dots(const Scores<V> &arg) {
	SHARED static struct alignas(16) {
		u16 b[chunk][128 + 8], c[chunk][128 + 8];
	} m;
	Piece p;
	if (!find_piece(arg.seg, arg.seqs, chunk, block_x(), p))
		return;
	int mine = 16 * warp(), group = block_y(), n = arg.n;
	f32x4 sums[8] = {};
	const V *b = arg.b + (i64)p.first * arg.bs + (i64)group * n, *c = arg.c + (i64)p.first * arg.cs + (i64)group * n;
	NO_UNROLL for (int from = 0; from < n; from += 128) {
		fetch<128>(m.b, b + from, arg.bs, p.tokens, n - from);
		fetch<128>(m.c, c + from, arg.cs, p.tokens, n - from);
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
	float *y = arg.y + (i64)(p.first + mine + lane() / 4) * arg.ys + group * chunk + lane() % 4 * 2;
	UNROLL for (int e = 0; e < 8; e++) if (e / 2 <= warp()) {
		UNROLL for (int i = 0; i < 2; i++) if (mine + lane() / 4 + 8 * i < p.tokens)
			*(f32x2 *)(y + 8 * i * arg.ys + 8 * e) = f32x2{sums[e][2 * i], sums[e][2 * i + 1]};
	}
}

KERNEL THREADS(128) ssd_mma_scores(Scores<float> arg) { dots(arg); }
KERNEL THREADS(128) ssd_mma_scores_bf16(Scores<bf16> arg) { dots(arg); }

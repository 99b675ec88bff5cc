// Attention of many tokens on tensor cores (Dao et al. 2022). Queries, keys, values and weights are
// sums of two bf16 each, as softmax would make of the rounding of scores an error that grows with
// them. Scores and sums are in f32. Caches are as in attention.cu.
// Formats: f32 f16 bf16 e4m3
#include "attention.h"
#include "mma.h"

// A block of 4 warps has a head of a piece of 64 tokens, a warp 16 of them, and goes over the keys
// in tiles of Keys, with the sums scaled to the largest score so far. Heads have up to Size
// channels. Blocks are (pieces, heads).
const int tile_queries = 64;

extern SHARED u32x4 shared_memory[];

// How many bf16 a number of the caches is.
template <class T> const int pieces_of = 2;
template <> const int pieces_of<bf16> = 1;
template <> const int pieces_of<e4m3> = 1;
const int pieces = pieces_of<kept>;

// Rows are padded so that 8 of them, 16 bytes of each, lie in all banks.
template <int Size, int Keys> struct Tiles {
	u16 q[2][tile_queries][Size + 8], k[pieces][Keys][Size + 8], v[pieces][Keys][Size + 8];
};

// Rounds neighbours to bf16, and leaves in v what that took from them.
DEVICE u32x4 take_bf16(f32x4 (&v)[2]) {
	u32x4 p = {bf16x2(v[0][0], v[0][1]), bf16x2(v[0][2], v[0][3]), bf16x2(v[1][0], v[1][1]), bf16x2(v[1][2], v[1][3])};
	UNROLL for (int i = 0; i < 8; i++) v[i / 4][i % 4] -= float_of(i % 2 ? p[i / 2] & 0xffff0000 : p[i / 2] << 16);
	return p;
}

// Where a lane's row of four matrices of 8 by 8 begins, which are those of 16 rows and 16 columns:
// the second is below the first, or beside it.
template <int Stride> DEVICE const u16 *below(const u16 (*rows)[Stride], int column) {
	return &rows[lane() & 15][column + lane() / 16 * 8];
}
template <int Stride> DEVICE const u16 *beside(const u16 (*rows)[Stride], int column) {
	return &rows[(lane() & 7) + lane() / 16 * 8][column + (lane() & 8)];
}

template <int Size, int Keys> DEVICE void attend(const Attention &arg) {
	Tiles<Size, Keys> &m = *(Tiles<Size, Keys> *)shared_memory;
	SHARED static u64 rows[2][Keys]; // of keys, of a tile and the next
	Piece p;
	bool found = find_piece(arg.seg, arg.seqs, tile_queries, block_x(), p);
	if (!found || p.first >= arg.to || p.first + p.tokens <= arg.from)
		return;
	int head = block_y(), past = arg.past[p.seq] + p.at, all = past + p.tokens;
	int row = 16 * warp() + lane() / 4, pair = lane() % 4 * 2; // and row + 8
	// row gives where row r begins; it is asked for those below n, from one on.
	auto fetch = [&]<int parts, int count>(u16(&to)[parts][count][Size + 8], auto row, int from, int n) ALWAYS_INLINE {
		NO_UNROLL for (int i = thread(); i < count * (Size / 8); i += 128) {
			int r = i / (Size / 8), j = i % (Size / 8) * 8;
			f32x4 v[2] = {};
			if (from <= r && r < n)
				UNROLL for (int e = 0; e < 2; e++) v[e] = load4(row(r) + j + 4 * e, arg.size - j - 4 * e, arg.vec);
			UNROLL for (int e = 0; e < parts; e++) put_pairs(&to[e][r][j], take_bf16(v));
		}
	};
	auto find = [&](int at) ALWAYS_INLINE {
		if (thread() < min(Keys, all - at))
			rows[at / Keys % 2][thread()] = row_at(arg.pages, arg.pages.keys, p.seq, at + thread())
					+ group_channel(arg, head) * sizeof(kept);
	};
	auto query = [&](int r) { return arg.q + (p.first + r) * arg.qs + (i64)head * arg.size; };
	fetch(m.q, query, arg.from - p.first, min(p.tokens, arg.to - p.first));
	find(0);
	f32x4 sum[Size / 8] = {};
	float most[2] = {-__builtin_inff(), -__builtin_inff()}, total[2] = {}, scale = arg.scale * math::log2e;
	for (int at = 0; at < all; at += Keys) {
		int n = min(Keys, all - at);
		sync(); // rows of the tile are found; keys and values are read no more
		auto key = [&](int r) { return rows[at / Keys % 2][r]; };
		fetch(m.k, [&](int r) { return at_address<const kept>(key(r)); }, 0, n);
		fetch(m.v, [&](int r) { return at_address<const kept>(key(r) + arg.pages.values - arg.pages.keys); }, 0, n);
		find(at + Keys);
		sync();
		f32x4 scores[Keys / 8] = {};
		UNROLL_4 for (int j = 0; j < Size; j += 16) {
			u32x4 q[2];
			UNROLL for (int i = 0; i < 2; i++) q[i] = load_matrices(below(m.q[i] + 16 * warp(), j));
			UNROLL for (int e = 0; e < Keys / 16; e++)
				UNROLL for (int i = pieces - 1; i >= 0; i--) { // the least first
					u32x4 k = load_matrices(beside(m.k[i] + 16 * e, j));
					UNROLL for (int o = 1 - i; o >= 0; o--) {
						mma(scores[2 * e], q[o], u32x2{k[0], k[1]});
						mma(scores[2 * e + 1], q[o], u32x2{k[2], k[3]});
					}
				}
		}
		UNROLL for (int r = 0; r < 2; r++) {
			int seen = past + row + 8 * r + 1 - at; // keys of the tile that the token sees
			float top = most[r], weight = 0;
			UNROLL for (int e = 0; e < Keys / 8; e++)
				UNROLL for (int c = 0; c < 2; c++) {
					int i = 2 * r + c;
					scores[e][i] = pick(8 * e + pair + c < seen, scores[e][i] * scale, -__builtin_inff());
					top = max(top, scores[e][i]);
				}
			UNROLL for (int o = 2; o > 0; o /= 2) top = max(top, from_lane_xor(top, o));
			UNROLL for (int e = 0; e < Keys / 8; e++)
				UNROLL for (int c = 0; c < 2; c++) {
					int i = 2 * r + c;
					scores[e][i] = math::exp2(scores[e][i] - top);
					weight += scores[e][i];
				}
			UNROLL for (int o = 2; o > 0; o /= 2) weight += from_lane_xor(weight, o);
			float fade = math::exp2(most[r] - top);
			most[r] = top;
			total[r] = fma(total[r], fade, weight);
			UNROLL for (int f = 0; f < Size / 8; f++)
				UNROLL for (int c = 0; c < 2; c++) sum[f][2 * r + c] *= fade;
		}
		UNROLL for (int e = 0; e < Keys / 16; e++) {
			f32x4 left[2] = {scores[2 * e], scores[2 * e + 1]};
			u32x4 w[2];
			UNROLL for (int i = 0; i < 2; i++) w[i] = take_bf16(left);
			UNROLL for (int f = 0; f < Size / 16; f++)
				UNROLL for (int i = pieces - 1; i >= 0; i--) {
					u32x4 v = load_transposed(below(m.v[i] + 16 * e, 16 * f));
					UNROLL for (int o = 1 - i; o >= 0; o--) {
						mma(sum[2 * f], w[o], u32x2{v[0], v[1]});
						mma(sum[2 * f + 1], w[o], u32x2{v[2], v[3]});
					}
				}
		}
	}
	UNROLL for (int r = 0; r < 2; r++) {
		int token = row + 8 * r;
		if (token >= p.tokens || !asked(arg, p.first + token))
			continue;
		float *out = arg.y + (p.first + token) * arg.ys + (i64)head * arg.size, by = 1 / total[r];
		UNROLL for (int f = 0; f < Size / 8; f++) {
			int j = 8 * f + pair;
			if (arg.vec && j < arg.size)
				store_pair(out + j, sum[f][2 * r] * by, sum[f][2 * r + 1] * by);
			else
				UNROLL for (int c = 0; c < 2; c++) if (j + c < arg.size) out[j + c] = sum[f][2 * r + c] * by;
		}
	}
}

KERNEL THREADS_BLOCKS(128, 3) attention_mma_64(Attention arg) { attend<64, 64>(arg); }
KERNEL THREADS_BLOCKS(128, 2) attention_mma_128(Attention arg) { attend<128, 64>(arg); }
KERNEL THREADS_BLOCKS(128, 2) attention_mma_256(Attention arg) { attend<256, 16>(arg); }

// Causal attention, softmax(scale · q kᵀ) v, over the tokens so far (Vaswani et
// al. 2017), where heads of a group share keys and values (Ainslie et al. 2023).
// Caches have a row per token, in FORMAT, in pages of page tokens: a table has the
// addresses of width of them for each sequence of the batch.
// Formats: f32 f16 bf16 e4m3
#include "attention.h"

// Puts the batch's keys and values into the caches; k and v begin with the
// channel with which a cache's rows do. Blocks are (tokens, channels / 1024).
struct Append {
	const float *k;
	i64 ks;
	const float *v;
	i64 vs;
	const int *seg, *past;
	int seqs, cols, vec;
	Pages pages;
};

KERNEL THREADS(256) attention_append(Append arg) {
	Piece p;
	if (!find_piece(arg.seg, arg.seqs, 1, block_x(), p))
		return;
	int j = 4 * (block_y() * 256 + thread()), n = arg.cols - j;
	if (n <= 0)
		return;
	u64 to = row_at(arg.pages, arg.pages.keys, p.seq, arg.past[p.seq] + p.at);
	f32x4 key = load4(arg.k + p.first * arg.ks + j, n, arg.vec);
	f32x4 value = load4(arg.v + p.first * arg.vs + j, n, arg.vec);
	store4(at_address<kept>(to) + j, key, n, arg.vec);
	store4(at_address<kept>(to + arg.pages.values - arg.pages.keys) + j, value, n, arg.vec);
}

// A few tokens, as in decoding: the keys of a token are split in stretches of
// split_keys, from fixed places on, which many blocks look at (after
// Flash-Decoding, Dao et al. 2023). A block serves up to Heads heads of a group,
// of up to 128 · Wide channels. First each warp takes the scores of 4 keys at a
// time, then all channels of values are summed. Where there is one split for all
// that a sequence may have, the result is there; otherwise partial gets, per
// token, head and split, size sums, the largest score and the sum of weights.
// Blocks of 128 threads are (tokens, splits, head blocks).
const int split_keys = 128;

template <int Heads, int Wide> DEVICE void split(const Attention &arg) {
	SHARED static float scores[Heads][split_keys];
	alignas(16) SHARED static float sums[4][Heads][128 * Wide];
	SHARED static u64 rows[split_keys]; // of keys
	Piece p;
	if (!find_piece(arg.seg, arg.seqs, 1, block_x(), p) || !asked(arg, p.first))
		return;
	int per_group = ceil_div(arg.each, Heads); // blocks of heads of a whole group
	int group = arg.first_head / arg.each + block_z() / per_group;
	int head = group * arg.each + block_z() % per_group * Heads - arg.first_head;
	int end = min(min(head + Heads, (group + 1) * arg.each - arg.first_head), arg.held);
	int from = block_y() * split_keys, count = min(split_keys, arg.past[p.seq] + p.at + 1 - from);
	if (end <= 0 || head >= arg.held || count <= 0)
		return;
	int skip = max(0, -head); // heads of the group that the rank before has
	if (thread() < count)
		rows[thread()] = row_at(arg.pages, arg.pages.keys, p.seq, from + thread())
				+ (group - arg.first_group) * arg.size * sizeof(kept);
	u64 values = arg.pages.values - arg.pages.keys; // beyond keys
	f32x4 q[Heads][Wide];
	UNROLL for (int h = 0; h < Heads; h++)
		UNROLL for (int w = 0; w < Wide; w++) {
			int j = 4 * lane() + 128 * w;
			bool held = h >= skip && head + h < end;
			q[h][w] = load4(arg.q + p.first * arg.qs + (i64)(head + h) * arg.size + j, held ? arg.size - j : 0, arg.vec)
					* arg.scale;
		}
	sync();
	for (int i = 4 * warp(); i < count; i += 16) {
		float dots[4 * Heads] = {};
		UNROLL for (int e = 0; e < 4; e++)
			UNROLL for (int w = 0; w < Wide; w++) {
				int j = 4 * lane() + 128 * w;
				f32x4 k = load4(at_address<const kept>(rows[min(i + e, count - 1)]) + j, arg.size - j, arg.vec);
				UNROLL for (int h = 0; h < Heads; h++)
					UNROLL for (int c = 0; c < 4; c++) dots[4 * h + e] = fma(q[h][w][c], k[c], dots[4 * h + e]);
			}
		float dot = warp_sums(dots);
		const int lanes = 8 / Heads; // that have the same dot
		int key = i + lane() / lanes % 4;
		if (lane() % lanes == 0 && key < count)
			scores[lane() / lanes / 4][key] = dot;
	}
	sync();
	// A warp after the other takes a head: weights are relative to the largest score.
	float most[Heads / 4 + 1], total[Heads / 4 + 1];
	UNROLL for (int h = 0; h < (Heads + 3) / 4; h++) {
		int of = 4 * h + warp();
		if (of < Heads) {
			float top = -__builtin_inff(), sum = 0;
			for (int i = lane(); i < count; i += 32)
				top = max(top, scores[of][i]);
			top = warp_max(top);
			for (int i = lane(); i < count; i += 32) {
				float weight = math::exp(scores[of][i] - top);
				scores[of][i] = weight;
				sum += weight;
			}
			most[h] = top;
			total[h] = warp_sum(sum);
		}
	}
	sync();
	f32x4 sum[Heads][Wide] = {};
	for (int i = warp(); i < count; i += 4)
		UNROLL for (int w = 0; w < Wide; w++) {
			int j = 4 * lane() + 128 * w;
			f32x4 v = load4(at_address<const kept>(rows[i] + values) + j, arg.size - j, arg.vec);
			UNROLL for (int h = 0; h < Heads; h++)
				UNROLL for (int c = 0; c < 4; c++) sum[h][w][c] = fma(scores[h][i], v[c], sum[h][w][c]);
		}
	UNROLL for (int h = 0; h < Heads; h++)
		UNROLL for (int w = 0; w < Wide; w++) put4(&sums[warp()][h][4 * lane() + 128 * w], sum[h][w]);
	sync();
	UNROLL for (int h = 0; h < (Heads + 3) / 4; h++) {
		int of = 4 * h + warp();
		if (of < Heads && of >= skip && head + of < end) {
			i64 split = ((i64)block_x() * arg.held + head + of) * arg.splits + block_y();
			float *out = arg.partial + split * (arg.size + 2);
			float by = 1;
			if (arg.splits == 1) {
				out = arg.y + p.first * arg.ys + (i64)(head + of) * arg.size;
				by = total[h];
			} else if (lane() == 0) {
				out[arg.size] = most[h];
				out[arg.size + 1] = total[h];
			}
			for (int j = lane(); j < arg.size; j += 32)
				out[j] = (sums[0][of][j] + sums[1][of][j] + sums[2][of][j] + sums[3][of][j]) / by;
		}
	}
}

// How many blocks there is to be room for is said for caches of 16 bits only: f32 spills
// nothing without.
#define SPLIT(heads, wide, blocks) \
	KERNEL THREADS_BLOCKS(128, sizeof(kept) < 4 ? blocks : 0) attention_split_##heads##_##wide(Attention arg) { \
		split<heads, wide>(arg); \
	}

SPLIT(1, 1, 8)
SPLIT(1, 2, 7)
SPLIT(1, 4, 5)
SPLIT(4, 1, 7)
SPLIT(4, 2, 5)
SPLIT(8, 1, 4)

// Adds what the splits have, in order, each scaled to the largest score of all
// (Milakov and Gimelshein 2018). Blocks of 128 threads are (tokens, heads).
KERNEL THREADS(128) attention_join(Attention arg) {
	Piece p;
	if (!find_piece(arg.seg, arg.seqs, 1, block_x(), p) || !asked(arg, p.first))
		return;
	int head = block_y(), splits = ceil_div(arg.past[p.seq] + p.at + 1, split_keys);
	const float *part = arg.partial + ((i64)block_x() * arg.held + head) * arg.splits * (arg.size + 2);
	float most = -__builtin_inff(), total = 0;
	for (int i = 0; i < splits; i++)
		most = max(most, part[i * (arg.size + 2) + arg.size]);
	for (int i = 0; i < splits; i++)
		total = fma(part[i * (arg.size + 2) + arg.size + 1], math::exp(part[i * (arg.size + 2) + arg.size] - most),
				total);
	for (int j = thread(); j < arg.size; j += 128) {
		float sum = 0;
		for (int i = 0; i < splits; i++)
			sum = fma(part[i * (arg.size + 2) + j], math::exp(part[i * (arg.size + 2) + arg.size] - most), sum);
		arg.y[p.first * arg.ys + (i64)head * arg.size + j] = sum / total;
	}
}

// Many tokens: a block has a head of a piece of tile_queries tokens, and goes
// over the keys in tiles of tile_keys, with the sums scaled to the largest score
// so far (Dao et al. 2022). Eight threads share two queries: each has the scores
// of every eighth key, and every eighth four of channels. Blocks of 128 threads
// are (pieces, heads).
const int tile_queries = 32, tile_keys = 32;

extern SHARED f32x4 shared_memory[];

// Fours is the number of fours of channels of a thread: heads of up to 32 · Fours.
template <int Fours> DEVICE void flash(const Attention &arg) {
	const int stride = 32 * Fours + 4; // rows next to each other begin 4 banks apart
	float(*q)[stride] = (float(*)[stride])shared_memory;
	float(*kv)[stride] = q + tile_queries;
	float(*weights)[tile_keys + 1] = (float(*)[tile_keys + 1])(kv + tile_keys);
	SHARED static u64 rows[2][tile_keys]; // of keys, of a tile and the next
	Piece p;
	bool found = find_piece(arg.seg, arg.seqs, tile_queries, block_x(), p);
	if (!found || p.first >= arg.to || p.first + p.tokens <= arg.from)
		return;
	int head = block_y(), row = thread() / 8, part = thread() % 8; // and row + 16
	int past = arg.past[p.seq] + p.at, all = past + p.tokens;
	// row gives where row r begins; it is asked for n of them, from one on.
	auto fetch = [&](float(*to)[stride], auto row, int from, int n) {
		NO_UNROLL for (int i = thread(); i < 32 * 8 * Fours; i += 128) {
			int r = i / (8 * Fours), j = i % (8 * Fours) * 4;
			put4(&to[r][j], from <= r && r < n ? load4(row(r) + j, arg.size - j, arg.vec) : f32x4(0));
		}
	};
	auto find = [&](int at) {
		if (thread() < min(tile_keys, all - at))
			rows[at / tile_keys % 2][thread()] = row_at(arg.pages, arg.pages.keys, p.seq, at + thread())
					+ group_channel(arg, head) * sizeof(kept);
	};
	auto query = [&](int r) { return arg.q + (p.first + r) * arg.qs + (i64)head * arg.size; };
	fetch(q, query, arg.from - p.first, min(p.tokens, arg.to - p.first));
	find(0);
	sync();
	f32x4 sum[2][Fours] = {};
	float most[2] = {-__builtin_inff(), -__builtin_inff()}, total[2] = {};
	for (int at = 0; at < all; at += tile_keys) {
		int n = min(tile_keys, all - at);
		auto key = [&](int r) { return rows[at / tile_keys % 2][r]; };
		fetch(kv, [&](int r) { return at_address<const kept>(key(r)); }, 0, n);
		find(at + tile_keys);
		sync();
		float scores[2][4] = {};
		for (int j = 0; j < arg.size; j += 4)
			UNROLL for (int e = 0; e < 4; e++) {
				f32x4 k = whole4(&kv[part + 8 * e][j]);
				UNROLL for (int r = 0; r < 2; r++) {
					f32x4 asks = whole4(&q[row + 16 * r][j]);
					UNROLL for (int c = 0; c < 4; c++) scores[r][e] = fma(asks[c], k[c], scores[r][e]);
				}
			}
		UNROLL for (int r = 0; r < 2; r++) {
			int seen = past + row + 16 * r + 1 - at; // keys of the tile that the token sees
			float top = most[r], weight = 0;
			UNROLL for (int e = 0; e < 4; e++) {
				scores[r][e] = part + 8 * e < seen ? scores[r][e] * arg.scale : -__builtin_inff();
				top = max(top, scores[r][e]);
			}
			UNROLL for (int o = 4; o > 0; o /= 2) top = max(top, from_lane_xor(top, o));
			UNROLL for (int e = 0; e < 4; e++) {
				float w = math::exp(scores[r][e] - top);
				weights[row + 16 * r][part + 8 * e] = w;
				weight += w;
			}
			UNROLL for (int o = 4; o > 0; o /= 2) weight += from_lane_xor(weight, o);
			float fade = math::exp(most[r] - top);
			most[r] = top;
			total[r] = fma(total[r], fade, weight);
			UNROLL for (int f = 0; f < Fours; f++) sum[r][f] *= fade;
		}
		sync(); // keys are read no more
		fetch(kv, [&](int r) { return at_address<const kept>(key(r) + arg.pages.values - arg.pages.keys); }, 0, n);
		sync();
		for (int i = 0; i < n; i++) {
			float w0 = weights[row][i], w1 = weights[row + 16][i];
			UNROLL for (int f = 0; f < Fours; f++) {
				f32x4 v = whole4(&kv[i][4 * part + 32 * f]);
				UNROLL for (int c = 0; c < 4; c++) {
					sum[0][f][c] = fma(w0, v[c], sum[0][f][c]);
					sum[1][f][c] = fma(w1, v[c], sum[1][f][c]);
				}
			}
		}
		sync(); // nor values
	}
	UNROLL for (int r = 0; r < 2; r++) {
		if (row + 16 * r >= p.tokens || !asked(arg, p.first + row + 16 * r))
			continue;
		float *out = arg.y + (p.first + row + 16 * r) * arg.ys + (i64)head * arg.size;
		UNROLL for (int f = 0; f < Fours; f++) {
			int j = 4 * part + 32 * f;
			store4(out + j, sum[r][f] * (1 / total[r]), arg.size - j, arg.vec);
		}
	}
}

KERNEL THREADS(128) attention_flash_2(Attention arg) { flash<2>(arg); }
// e4m3 spills if more are to fit.
KERNEL THREADS_BLOCKS(128, sizeof(kept) == 1 ? 4 : 0) attention_flash_4(Attention arg) { flash<4>(arg); }
KERNEL THREADS_BLOCKS(128, 2) attention_flash_8(Attention arg) { flash<8>(arg); } // with 70 KB of shared memory each

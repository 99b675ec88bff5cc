// The scan with one rate per head, in the matrix form of ssd.cu, on tensor cores:
// x, B, C, the scores and the state as C reads it are rounded to bf16; sums,
// decays and the state that is carried are in f32. FORMAT is that in which it is kept.
// Formats: f32 bf16
#include "mma.h"
#include "ssd.h"

// A block of 4 warps has 32 channels of a head, and goes over 64 tokens at a time.
// A warp has 16 of the tokens, and a quarter of the states in registers.
const int chunk = 64, tile_channels = 32;

extern SHARED u32x4 shared_memory[];

// What a block has in shared memory. Rows are so long that 8 of them, 16 bytes of
// each, lie in all banks.
template <int Wide> struct Shared {
	static const int states = 128 * Wide;
	u16 b[chunk][states + 8], c[chunk][states + 8], h[tile_channels][states + 8];
	u16 x[chunk][tile_channels + 8], tail_x[chunk][tile_channels + 8]; // tail_x: x · tail
	double log[chunk];             // log2 of the decay from the chunk's beginning through each token
	float dt[chunk], tail[chunk]; // tail: dt · the decay from a token to the chunk's end
};

// The decays of a chunk: a lane of one warp has two tokens.
template <int Wide, class V> DEVICE void decays(Shared<Wide> &m, const ScanOf<V> &s, i64 token, int count, int head) {
	if (warp() > 0)
		return;
	float d[2];
	double log[2], rate = s.a[head] * 1.4426950408889634;
	UNROLL for (int i = 0; i < 2; i++) {
		int t = 2 * lane() + i;
		d[i] = t < count ? s.step(token + t, head) : 0;
		log[i] = bounded(d[i] * rate);
	}
	double upto = log[0] + log[1];
	UNROLL for (int o = 1; o < 32; o *= 2) {
		u64 below = from_lane_below(__builtin_bit_cast(u64, upto), o);
		if (lane() >= o)
			upto += __builtin_bit_cast(double, below);
	}
	log[0] = upto - log[1];
	log[1] = upto;
	UNROLL for (int i = 0; i < 2; i++) {
		m.log[2 * lane() + i] = log[i];
		m.dt[2 * lane() + i] = d[i];
	}
	__nvvm_bar_warp_sync(all_lanes);
	UNROLL for (int i = 0; i < 2; i++) m.tail[2 * lane() + i] = d[i] * math::decay((float)(m.log[chunk - 1] - log[i]));
}

// Fills chunk rows of Cols columns in bf16; what is not there is 0.
template <int Cols, class V> DEVICE void fetch(u16 (*to)[Cols + 8], const V *from, i64 apart, int rows, int cols) {
	NO_UNROLL for (int i = thread(); i < chunk * Cols / 8; i += 128) {
		int r = i / (Cols / 8), k = i % (Cols / 8) * 8;
		Raw<V> v;
		load_raw(v, from + r * apart + k, r < rows ? cols - k : 0);
		put_pairs(&to[r][k], pairs(v));
	}
}

DEVICE u32x4 scaled_pairs(Raw<float> r, float by) { return pairs(Raw<float>{r.a * by, r.b * by}); }

DEVICE u32x4 scaled_pairs(Raw<bf16> r, float by) {
	Eight v = widen(r);
	u32x4 p;
	UNROLL for (int i = 0; i < 4; i++) p[i] = bf16x2(v.v[2 * i] * by, v.v[2 * i + 1] * by);
	return p;
}

template <int Wide, class V> DEVICE void chunks(const ScanOf<V> &s) {
	Shared<Wide> &m = *(Shared<Wide> *)shared_memory;
	const int tiles = 4 * Wide; // of 8 states of a warp
	int head = block_y(), channel = block_z() * tile_channels, wide = min(tile_channels, s.size - channel);
	const int *seg = s.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	if (tokens < 1)
		return;
	i64 group = (i64)group_of(s.groups, head) * s.n, column = (i64)head * s.size + channel;
	kept *state = s.state + slot * s.hs + column * s.n;
	int g = lane() / 4, pair = lane() % 4 * 2;
	int deep = (s.n + 15) / 16 * 16, base = warp() * 8 * tiles; // the warp's first state
	// h[i][e]: rows 16 i + g and + 8, states base + 8 e + pair and + 1.
	f32x4 h[2][tiles];
	UNROLL for (int i = 0; i < 2; i++)
		UNROLL for (int e = 0; e < tiles; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int row = 16 * i + p / 2 * 8 + g, k = base + 8 * e + pair + p % 2;
				h[i][e][p] = row < wide && k < s.n ? widen(state[(i64)row * s.n + k]) : 0;
			}
	for (int at = 0; at < tokens; at += chunk) {
		int count = min(chunk, tokens - at);
		i64 token = first + at;
		fetch<128 * Wide>(m.b, s.b + token * s.bs + group, s.bs, count, s.n);
		fetch<128 * Wide>(m.c, s.c + token * s.cs + group, s.cs, count, s.n);
		Raw<V> x[2];
		int row = thread() / 4, part = thread() % 4 * 8; // and row + 32
		UNROLL for (int i = 0; i < 2; i++)
			load_raw(x[i], s.x + (token + row + 32 * i) * s.xs + column + part, row + 32 * i < count ? wide - part : 0);
		UNROLL for (int i = 0; i < 2; i++)
			UNROLL for (int e = 0; e < tiles; e++)
				UNROLL for (int p = 0; p < 2; p++)
					put_pair(&m.h[16 * i + 8 * p + g][base + 8 * e + pair], bf16x2(h[i][e][2 * p], h[i][e][2 * p + 1]));
		decays(m, s, token, count, head);
		sync();
		UNROLL for (int i = 0; i < 2; i++) {
			float tail = m.tail[row + 32 * i];
			put_pairs(&m.x[row + 32 * i][part], pairs(x[i]));
			put_pairs(&m.tail_x[row + 32 * i][part], scaled_pairs(x[i], tail));
		}
		sync();
		// Scores of the warp's tokens with all up to them, and what they read of the state.
		f32x4 scores[8] = {}, y[4] = {};
		int mine = 16 * warp();
		for (int k = 0; k < deep; k += 16) {
			u32x4 c = load_matrices(&m.c[mine + lane() % 16][k + lane() / 16 * 8]);
			int r = lane() / 16 * 8 + lane() % 8, col = k + lane() / 8 % 2 * 8;
			UNROLL for (int e = 0; e < 4; e++) if (e <= warp()) {
				u32x4 b = load_matrices(&m.b[16 * e + r][col]);
				mma(scores[2 * e], c, u32x2{b[0], b[1]});
				mma(scores[2 * e + 1], c, u32x2{b[2], b[3]});
			}
			UNROLL for (int e = 0; e < 2; e++) {
				u32x4 b = load_matrices(&m.h[16 * e + r][col]);
				mma(y[2 * e], c, u32x2{b[0], b[1]});
				mma(y[2 * e + 1], c, u32x2{b[2], b[3]});
			}
		}
		double log[2] = {m.log[mine + g], m.log[mine + g + 8]};
		float begin[2] = {math::decay((float)log[0]), math::decay((float)log[1])};
		UNROLL for (int e = 0; e < 4; e++)
			UNROLL for (int p = 0; p < 4; p++) y[e][p] *= begin[p / 2];
		UNROLL for (int e = 0; e < 8; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int from = 8 * e + pair + p % 2;
				float weight = from > mine + g + p / 2 * 8 ? 0 : math::decay((float)(log[p / 2] - m.log[from])) * m.dt[from];
				scores[e][p] *= weight;
			}
		int j = lane() % 8, upper = lane() / 8 % 2 * 8, last = lane() / 16 * 8;
		UNROLL for (int e = 0; e < 4; e++) if (e <= warp()) {
			u32x4 a = {bf16x2(scores[2 * e][0], scores[2 * e][1]), bf16x2(scores[2 * e][2], scores[2 * e][3]),
				bf16x2(scores[2 * e + 1][0], scores[2 * e + 1][1]), bf16x2(scores[2 * e + 1][2], scores[2 * e + 1][3])};
			UNROLL for (int q = 0; q < 2; q++) {
				u32x4 b = load_transposed(&m.x[16 * e + j + upper][16 * q + last]);
				mma(y[2 * q], a, u32x2{b[0], b[1]});
				mma(y[2 * q + 1], a, u32x2{b[2], b[3]});
			}
		}
		UNROLL for (int e = 0; e < 4; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int t = mine + g + p / 2 * 8, col = 8 * e + pair + p % 2;
				if (t < count && col < wide)
					s.put(token + t, head, column + col, y[e][p], s.bias ? widen(s.x[(token + t) * s.xs + column + col]) : 0);
			}
		// The state at the chunk's end.
		float whole = math::decay((float)m.log[chunk - 1]);
		UNROLL for (int i = 0; i < 2; i++)
			UNROLL for (int e = 0; e < tiles; e++) h[i][e] *= whole;
		NO_UNROLL for (int k = 0; k < chunk; k += 16) {
			u32x4 a[2];
			UNROLL for (int i = 0; i < 2; i++) a[i] = load_transposed(&m.tail_x[k + j + last][16 * i + upper]);
			UNROLL for (int e = 0; e < tiles; e += 2) {
				u32x4 b = load_transposed(&m.b[k + j + upper][base + 8 * e + last]);
				UNROLL for (int i = 0; i < 2; i++) {
					mma(h[i][e], a[i], u32x2{b[0], b[1]});
					mma(h[i][e + 1], a[i], u32x2{b[2], b[3]});
				}
			}
		}
		sync(); // what the next chunk overwrites is read no more
	}
	UNROLL for (int i = 0; i < 2; i++)
		UNROLL for (int e = 0; e < tiles; e++)
			UNROLL for (int p = 0; p < 4; p++) {
				int row = 16 * i + p / 2 * 8 + g, k = base + 8 * e + pair + p % 2;
				if (row < wide && k < s.n)
					narrow(state[(i64)row * s.n + k], h[i][e][p]);
			}
}

static_assert(sizeof(Shared<1>) == 54784 && sizeof(Shared<2>) == 95744, "the host knows these sizes");

// Blocks of 128 threads are (sequences, heads, size / 32); up to 128 and 256 states.
KERNEL THREADS(128) ssd_mma_128(Scan s) { chunks<1>(s); }
KERNEL THREADS(128) ssd_mma_256(Scan s) { chunks<2>(s); }

// The same of activations in bf16, of which sizes and states are multiples of 8.
KERNEL THREADS(128) ssd_mma_128_bf16(ScanOf<bf16> s) { chunks<1>(s); }
KERNEL THREADS(128) ssd_mma_256_bf16(ScanOf<bf16> s) { chunks<2>(s); }

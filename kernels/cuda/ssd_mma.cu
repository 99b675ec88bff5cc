// The scan with one rate per head, in the matrix form of ssd.cu, on tensor cores:
// x, B, C, the scores and the state as C reads it are rounded to bf16; sums,
// decays and the state that is carried are in f32. FORMAT is that in which it is kept.
// Formats: f32 bf16
#include "ssd_mma.h"
#include "ssd.h"

// A block of 4 warps has 32 channels of a head, and goes over 64 tokens at a time.
// A warp has 16 of the tokens, and a quarter of the states in registers.
const int tile_channels = 32;

extern SHARED u32x4 shared_memory[];

struct Decays {
	double log[chunk]; // log2 of the decay from the chunk's beginning through each token
	float dt[chunk];
};

// The shared memory of a block. Rows are padded so that 8 of them, 16 bytes of
// each, lie in all banks. The next chunk's operands come as soon as this one has read
// for the last time what they replace.
template <int Wide> struct Shared {
	static const int states = 128 * Wide;
	u16 b[chunk][states + 8], c[chunk][states + 8];
	union {
		u16 h[tile_channels][states + 8]; // the state as C reads it, and then
		float y[chunk][tile_channels + 2]; // what is put out
	};
	// tail_x: dt x · the decay from a token to the chunk's end.
	u16 x[2][chunk][tile_channels + 8], tail_x[chunk][tile_channels + 8];
	Decays decays[2];
};

// The decays of a chunk, by one warp: a lane has two tokens, of which dt came.
template <class V> DEVICE void decays(Decays &m, const ScanOf<V> &s, const float (&dt)[2], int count, float rate,
		float bias) {
	float d[2];
	double log[2];
	UNROLL for (int i = 0; i < 2; i++) {
		d[i] = 2 * lane() + i < count ? s.step_of(dt[i], bias) : 0;
		log[i] = bounded(d[i] * (rate * 1.4426950408889634));
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
}

// The inputs of eight neighbours: from shared memory, where they have not been rounded.
DEVICE Eight inputs(const float *p, const u16 *, int n) {
	Raw<float> r;
	load_raw(r, p, n);
	return widen(r);
}

DEVICE Eight inputs(const bf16 *, const u16 *shared, int) { return widen(Raw<bf16>{*(const u32x4 *)shared}); }

// Calls f for the pairs of states that a thread has: h[i][e] has those of rows 16 i + g and
// + 8, states base + 8 e + pair and + 1.
template <int Tiles, class F> DEVICE void each_pair(int base, F f) {
	UNROLL for (int i = 0; i < 2; i++)
		UNROLL for (int e = 0; e < Tiles; e++)
			UNROLL for (int p = 0; p < 2; p++)
				f(i, e, 2 * p, 16 * i + 8 * p + lane() / 4, base + 8 * e + lane() % 4 * 2);
}

DEVICE void store_eight(float *p, Eight v, int n) {
	put4(p, f32x4{v.v[0], v.v[1], v.v[2], v.v[3]});
	if (n > 4)
		put4(p + 4, f32x4{v.v[4], v.v[5], v.v[6], v.v[7]});
}

DEVICE void store_eight(bf16 *p, Eight v, int) {
	*(u32x4 *)p = u32x4{bf16x2(v.v[0], v.v[1]), bf16x2(v.v[2], v.v[3]), bf16x2(v.v[4], v.v[5]), bf16x2(v.v[6], v.v[7])};
}

// Puts out the warp's tokens, of which y has the sums, and x the inputs where these are in bf16.
template <int Wide, class V> DEVICE void put_out(Shared<Wide> &m, const ScanOf<V> &s, u16 (*x)[tile_channels + 8],
		i64 token, int count, int head, i64 column, int wide) {
	if (!(s.vec & 2)) { // rows of y or z are not aligned
		NO_UNROLL for (int i = lane(); i < 16 * tile_channels; i += 32) {
			int t = 16 * warp() + i / tile_channels, col = i % tile_channels;
			if (t < count && col < wide)
				s.put(token + t, head, column + col, m.y[t][col], s.bias ? widen(s.x[(token + t) * s.xs + column + col])
						: 0, math::rough_silu);
		}
		return;
	}
	float d = s.bias ? s.d[head] : 0;
	NO_UNROLL for (int i = 0; i < 2; i++) {
		int t = 16 * warp() + 8 * i + lane() / 4, col = lane() % 4 * 8;
		if (t >= count || col >= wide)
			continue;
		Eight v;
		UNROLL for (int k = 0; k < 8; k++) v.v[k] = m.y[t][col + k];
		if (s.bias) {
			Raw<V> z;
			load_raw(z, s.z + (token + t) * s.zs + column + col, wide - col);
			Eight gate = widen(z), in = inputs(s.x + (token + t) * s.xs + column + col, &x[t][col], wide - col);
			UNROLL for (int k = 0; k < 8; k++) v.v[k] = math::rough_silu(gate.v[k]) * (v.v[k] + in.v[k] * d);
		}
		store_eight(s.y + (token + t) * s.ys + column + col, v, wide - col);
	}
}

template <int Wide, class V, bool Ends = false> DEVICE void chunks(const ScanOf<V> &s) {
	Shared<Wide> &m = *(Shared<Wide> *)shared_memory;
	const int tiles = 4 * Wide, states = 128 * Wide; // tiles of 8 states of a warp
	int head = block_y(), channel = block_z() * tile_channels, wide = min(tile_channels, s.size - channel);
	Span span = s.template span<Ends>();
	int first = span.first, tokens = span.tokens;
	if (tokens < 1 || (Ends && span.last))
		return;
	int group = group_of(s.groups, head);
	i64 column = (i64)head * s.size + channel;
	kept *state = s.state + span.slot * s.hs + column * s.n;
	float *begin = span.state + column * s.n;
	const V *b = s.b + (i64)first * s.bs + (i64)group * s.n, *c = s.c + (i64)first * s.cs + (i64)group * s.n,
			*x = s.x + (i64)first * s.xs + column;
	const V *dt = s.dt + (i64)first * s.ds + head;
	float rate = s.a[head], bias = s.bias ? s.bias[head] : 0;
	int g = lane() / 4, pair = lane() % 4 * 2;
	int deep = (s.n + 15) / 16 * 16, base = warp() * 8 * tiles; // the warp's first state
	int mine = 16 * warp();                                      // and its first token
	int j = lane() % 8, upper = lane() / 8 % 2 * 8, last = lane() / 16 * 8; // of matrices that are exchanged
	auto fetch_c = [&](int at) {
		if (at < tokens) {
			if constexpr (!Ends)
				fetch<128 * Wide>(m.c, c + at * s.cs, s.cs, tokens - at, s.n);
			fetch<tile_channels>(m.x[at / chunk % 2], x + at * s.xs, s.xs, tokens - at, wide);
		}
		end_group();
	};
	auto fetch_b = [&](int at) {
		if (at < tokens)
			fetch<128 * Wide>(m.b, b + at * s.bs, s.bs, tokens - at, s.n);
		end_group();
	};
	float steps[2] = {}; // of the next chunk, of warp 0
	auto fetch_steps = [&](int at) {
		if (warp() == 0)
			UNROLL for (int i = 0; i < 2; i++) steps[i] = widen(dt[min(at + 2 * lane() + i, tokens - 1) * s.ds]);
	};
	// The state comes and goes through the memory of B.
	float (*whole_h)[states + 4] = (float (*)[states + 4]) & m.b;
	static_assert(sizeof(float[tile_channels][states + 4]) <= sizeof(m.b));
	NO_UNROLL for (int j = thread(); j < tile_channels * (states / 4); j += 128) {
		int row = j / (states / 4), k = j % (states / 4) * 4;
		int left = Ends || row >= wide ? 0 : s.n - k;
		i64 i = (i64)row * s.n + k;
		put4(&whole_h[row][k], span.state ? load4(begin + i, left, true) : load4(state + i, left, true));
	}
	sync();
	f32x4 h[2][tiles];
	each_pair<tiles>(base, [&](int i, int e, int p, int row, int k) {
		f32x2 v = load_pair(&whole_h[row][k]);
		h[i][e][p] = v[0], h[i][e][p + 1] = v[1];
	});
	double log_all = 0; // of all decays
	// Before the first chunk a turn only fetches it.
	for (int at = -chunk; at < tokens; at += chunk) {
		bool has = at >= 0;
		int count = min(chunk, tokens - at), turn = at / chunk & 1;
		const Decays &now = m.decays[turn];
		fetch_steps(at + chunk);
		f32x4 scores[8] = {}, y[4] = {};
		if (has) {
			if constexpr (!Ends) {
				// C Bᵀ of the warp's tokens with all up to them.
				const float *dots[2];
				UNROLL for (int p = 0; p < 2; p++) dots[p] = s.scores + (first + at + min(mine + g + 8 * p, count - 1))
						* s.ss + group * chunk + pair;
				// Rows that are not there are those of the last: what they give is not put out.
				if (s.scores && mine < count)
					UNROLL for (int e = 0; e < 4; e++) if (e <= warp()) {
						UNROLL for (int q = 0; q < 2; q++)
							UNROLL for (int p = 0; p < 2; p++) {
								f32x2 v = load_pair(dots[p] + 16 * e + 8 * q);
								scores[2 * e + q][2 * p] = v[0], scores[2 * e + q][2 * p + 1] = v[1];
							}
					}
				UNROLL for (int i = 0; i < 2; i++)
					UNROLL for (int e = 0; e < tiles; e++)
						UNROLL for (int p = 0; p < 2; p++)
							put_pair(&m.h[16 * i + 8 * p + g][base + 8 * e + pair],
									bf16x2(h[i][e][2 * p], h[i][e][2 * p + 1]));
			}
			if (Ends || s.scores)
				wait_groups<1>();
			else
				wait_groups<0>();
			sync(); // C, x, decays and the state are there, and B, where C Bᵀ is not
			UNROLL for (int i = 0; i < 2; i++) {
				int row = thread() / 4 + 32 * i, part = thread() % 4 * 8;
				float tail = now.dt[row] * math::decay((float)(now.log[chunk - 1] - now.log[row]));
				Eight in = inputs(x + (at + row) * s.xs + part, &m.x[turn][row][part], row < count ? wide - part : 0);
				u32x4 pairs;
				UNROLL for (int k = 0; k < 4; k++) pairs[k] = bf16x2(in.v[2 * k] * tail, in.v[2 * k + 1] * tail);
				put_pairs(&m.tail_x[row][part], pairs);
			}
			// What the warp's tokens read of the state, and C Bᵀ.
			for (int k = 0; !Ends && k < deep; k += 16) {
				u32x4 a = load_matrices(&m.c[mine + lane() % 16][k + lane() / 16 * 8]);
				UNROLL for (int e = 0; e < 2; e++) {
					u32x4 v = load_matrices(&m.h[16 * e + lane() / 16 * 8 + lane() % 8][k + lane() / 8 % 2 * 8]);
					mma(y[2 * e], a, u32x2{v[0], v[1]});
					mma(y[2 * e + 1], a, u32x2{v[2], v[3]});
				}
				if (!s.scores)
					add_dots(scores, a, m.b, k);
			}
		}
		sync(); // C and the state are read no more
		fetch_c(at + chunk);
		if (!Ends && has) {
			double log[2] = {now.log[mine + g], now.log[mine + g + 8]};
			float begin[2] = {math::decay((float)log[0]), math::decay((float)log[1])};
			UNROLL for (int e = 0; e < 4; e++)
				UNROLL for (int p = 0; p < 4; p++) y[e][p] *= begin[p / 2];
			UNROLL for (int e = 0; e < 4; e++) if (e <= warp()) {
				UNROLL for (int q = 0; q < 2; q++)
					UNROLL for (int p = 0; p < 4; p++) {
						int from = 16 * e + 8 * q + pair + p % 2;
						float weight = math::decay((float)(log[p / 2] - now.log[from])) * now.dt[from];
						scores[2 * e + q][p] *= float_of(bits_of(weight) & (from > mine + g + p / 2 * 8 ? 0 : ~0u));
					}
				u32x4 a = {bf16x2(scores[2 * e][0], scores[2 * e][1]), bf16x2(scores[2 * e][2], scores[2 * e][3]),
					bf16x2(scores[2 * e + 1][0], scores[2 * e + 1][1]), bf16x2(scores[2 * e + 1][2],
							scores[2 * e + 1][3])};
				UNROLL for (int q = 0; q < 2; q++) {
					u32x4 v = load_transposed(&m.x[turn][16 * e + j + upper][16 * q + last]);
					mma(y[2 * q], a, u32x2{v[0], v[1]});
					mma(y[2 * q + 1], a, u32x2{v[2], v[3]});
				}
			}
			UNROLL for (int e = 0; e < 4; e++)
				UNROLL for (int p = 0; p < 2; p++)
					store_pair(&m.y[mine + g + 8 * p][8 * e + pair], y[e][2 * p], y[e][2 * p + 1]);
			__nvvm_bar_warp_sync(all_lanes);
			put_out(m, s, m.x[turn], first + at, count, head, column, wide);
		}
		if (warp() == 0) // which had the fewest scores
			decays(m.decays[1 - turn], s, steps, tokens - at - chunk, rate, bias);
		wait_groups<1>();
		sync(); // B and tail_x are there
		if (has) {
			// The state at the chunk's end.
			float whole = math::decay((float)now.log[chunk - 1]);
			log_all += now.log[chunk - 1];
			UNROLL for (int i = 0; i < 2; i++)
				UNROLL for (int e = 0; e < tiles; e++) h[i][e] *= whole;
			NO_UNROLL for (int k = 0; k < chunk; k += 16) {
				u32x4 a[2];
				UNROLL for (int i = 0; i < 2; i++) a[i] = load_transposed(&m.tail_x[k + j + last][16 * i + upper]);
				UNROLL for (int e = 0; e < tiles; e += 2) {
					u32x4 v = load_transposed(&m.b[k + j + upper][base + 8 * e + last]);
					UNROLL for (int i = 0; i < 2; i++) {
						mma(h[i][e], a[i], u32x2{v[0], v[1]});
						mma(h[i][e + 1], a[i], u32x2{v[2], v[3]});
					}
				}
			}
		}
		sync(); // B and tail_x are read no more
		fetch_b(at + chunk);
	}
	auto put_h = [&](int i, int e, int p, int row, int k) { store_pair(&whole_h[row][k], h[i][e][p], h[i][e][p + 1]); };
	each_pair<tiles>(base, put_h);
	sync();
	NO_UNROLL for (int j = thread(); j < wide * (states / 4); j += 128)
		if (int row = j / (states / 4), k = j % (states / 4) * 4; k < s.n) {
			i64 i = (i64)row * s.n + k;
			if (Ends)
				store4(begin + i, whole4(&whole_h[row][k]), s.n - k, true);
			else if (span.last)
				store4(state + i, whole4(&whole_h[row][k]), s.n - k, true);
		}
	if (Ends && channel == 0 && thread() == 0)
		s.decays[block_x() * s.heads + head] = math::decay((float)log_all);
}

static_assert(sizeof(Shared<1>) == 60416 && sizeof(Shared<2>) == 99 << 10, "the host knows these sizes");

// Blocks of 128 threads are (sequences or pieces, heads, size / 32); up to 128 and 256 states.
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_128(Scan s) { chunks<1>(s); }
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_256(Scan s) { chunks<2>(s); }

// The same of activations in bf16, of which sizes and states are multiples of 8.
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_128_bf16(ScanOf<bf16> s) { chunks<1>(s); }
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_256_bf16(ScanOf<bf16> s) { chunks<2>(s); }

// What pieces but the last of a segment add to its state.
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_ends_128(Scan s) { chunks<1, float, true>(s); }
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_ends_256(Scan s) { chunks<2, float, true>(s); }
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_ends_128_bf16(ScanOf<bf16> s) { chunks<1, bf16, true>(s); }
KERNEL THREADS_BLOCKS(128, 2) ssd_mma_ends_256_bf16(ScanOf<bf16> s) { chunks<2, bf16, true>(s); }

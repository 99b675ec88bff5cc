// The scan with one rate per head, in the matrix form of ssd.cu, on tensor cores and with the
// accuracy of f32: x, B, C, the scores and the state as C reads it are sums of two f16 (halves.h),
// scaled by what is largest in the chunk. C Bᵀ, B and C come from ssd_split_scores.cu. Sums, decays
// and the state that is carried are in f32. FORMAT is that in which it is kept.
// Formats: f32 bf16
#include "chunks.h"
#include "ssd_split.h"
#include "ssd.h"

// A block of 4 warps has 32 channels of a head, and goes over 32 tokens at a time. A warp has 16 of
// the channels, and half of their states in registers.
const int states = 128, tiles = states / 16; // tiles of 8 states of a warp

struct Decays {
	double log[chunk];                          // log2 of the decay from the chunk's beginning through each token
	float dt[chunk], begin[chunk], tail[chunk]; // that decay; dt · the decay from a token to the chunk's end
};

// The shared memory of a block. Rows are padded so that 8 of them, 16 bytes of each, lie in all
// banks. What the next chunk replaces is fetched as soon as this one has read it for the last time.
struct alignas(16) Shared {
	u16 b[2][chunk][states + 8], c[2][chunk][states + 8];
	u16 in[2][chunk][tile_channels + 8], tail[2][chunk][tile_channels + 8], weights[2][chunk][chunk + 8];
	float scores[chunk][score_columns], x[chunk][tile_channels + 4];
	float y[2][chunk][tile_channels + 4]; // what each half of the states gives
	Decays decays[2];
	float most_in[4], most_h[4]; // of each warp
};

// The decays of a chunk, by one warp: a lane has a token's step.
DEVICE void decays(Decays &m, float step, float rate) {
	double log = sum_through<chunk>(bounded(step * rate * 1.4426950408889634));
	m.log[lane()] = log;
	m.dt[lane()] = step;
	m.begin[lane()] = math::decay((float)log);
	__nvvm_bar_warp_sync(all_lanes);
	m.tail[lane()] = step * math::decay((float)(m.log[chunk - 1] - log));
}

DEVICE float most_of(const float (&v)[4]) {
	f32x4 w = whole4(v);
	return max(max(w[0], w[1]), max(w[2], w[3]));
}

template <bool Ends> DEVICE void chunks(const Scan &s) {
	Shared &m = *(Shared *)shared_memory;
	int head = block_y(), channel = block_z() * tile_channels, wide = min(tile_channels, s.size - channel);
	Span span = s.span<Ends>();
	int first = span.first, tokens = span.tokens;
	if (tokens < 1 || (Ends && span.last))
		return;
	int deep = in_sixteens(s.n), group = group_of(s.groups, head), row = thread() / 4, part = thread() % 4 * 8;
	i64 column = (i64)head * s.size + channel;
	kept *state = s.state + span.slot * s.hs + column * s.n;
	float *begin = span.state + column * s.n;
	const float *rows = s.scores + (i64)(first + row) * s.ss + (i64)group * row_of(s.n);
	const float *x = s.x + (i64)(first + row) * s.xs + column;
	int own = warp() / 2 * 16, base = warp() % 2 * (states / 2); // the warp's first channel and state
	int g = lane() / 4, pair = lane() % 4 * 2;
	auto there = [&](int at, int bytes) { return at + row < tokens ? bytes : 0; };
	auto fetch_x = [&](int at) {
		if (at < tokens) {
			UNROLL for (int i = part / 2; i < tile_channels; i += 16)
				copy_async_16(shared_address(&m.x[row][i]), x + at * s.xs + i, i < wide ? there(at, 16) : 0);
			NO_UNROLL for (int i = part / 2; i < score_columns; i += 16)
				copy_async_16(shared_address(&m.scores[row][i]), rows + at * s.ss + i, there(at, 16));
		}
		end_group();
	};
	auto fetch_halves = [&](u16(&to)[2][chunk][states + 8], int at, int place) {
		if (at < tokens)
			UNROLL for (int k = part; k < states; k += 32)
				UNROLL for (int i = 0; i < 2; i++)
					copy_async_16(shared_address(&to[i][row][k]), halves_of(rows + at * s.ss) + (place + i) * deep + k,
							k < deep ? there(at, 16) : 0);
		end_group();
	};
	auto step = [&](int at) { return at + lane() < tokens ? s.step(first + at + lane(), head) : 0; };
	// Calls f for the pairs of states that a thread has: h[e][p] and the next, of a row and from k on.
	f32x4 h[tiles] = {};
	auto each_pair = [&](auto f) ALWAYS_INLINE {
		UNROLL for (int e = 0; e < tiles; e++)
			UNROLL for (int p = 0; p < 4; p += 2)
				if (int r = own + 4 * p + g, k = base + 8 * e + pair; k < s.n && r < wide)
					f(h[e], p, (i64)r * s.n + k);
	};
	fetch_x(0);
	fetch_halves(m.c, Ends ? tokens : 0, 2);
	fetch_halves(m.b, 0, 0);
	if (!Ends)
		each_pair([&](f32x4 &h, int p, i64 i) {
			f32x2 v = span.state ? load_pair(begin + i) : load_pair(state + i);
			h[p] = v[0], h[p + 1] = v[1];
		});
	auto put_most = [&](float (&to)[4], float v) {
		v = warp_max(v);
		if (lane() == 0)
			to[warp()] = v;
	};
	float most = 0;
	UNROLL for (int e = 0; e < tiles; e++) most = size_of(most, h[e]);
	put_most(m.most_h, most);
	if (warp() == 1) // which has the fewest products
		decays(m.decays[0], step(0), s.a[head]);
	double log = 0; // of all decays
	wait_groups<2>();
	sync();
	for (int at = 0; at < tokens; at += chunk) {
		int turn = at / chunk & 1;
		const Decays &now = m.decays[turn];
		f32x4 in[2] = {whole4(&m.x[row][part]), whole4(&m.x[row][part + 4])};
		f32x4 scale = whole4(&m.scores[0][scales]); // of the scores, B and C
		float dt = now.dt[row], next = warp() == 1 ? step(at + chunk) : 0;
		put_most(m.most_in, size_of(size_of(0, in[0] * dt), in[1] * dt));
		if (!Ends && part / 16 <= row / 16) {
			f32x4 w[2] = {whole4(&m.scores[row][part]), whole4(&m.scores[row][part + 4])};
			UNROLL for (int i = 0; i < 8; i++) {
				float v = w[i / 4][i % 4] * math::decay((float)(now.log[row] - now.log[part + i]));
				w[i / 4][i % 4] = part + i > row ? 0 : v;
			}
			put_halves(m.weights, row, part, w[0], w[1]);
		}
		wait_groups<1>();
		sync(); // C is there, and what is largest; x and the scores are read no more
		fetch_x(at + chunk);
		Scale scale_in = scale_of(most_of(m.most_in));
		if (!Ends)
			put_halves(m.in, row, part, in[0] * (dt * scale_in.up), in[1] * (dt * scale_in.up));
		float tail = now.tail[row] * scale_in.up;
		put_halves(m.tail, row, part, in[0] * tail, in[1] * tail);
		// What the tokens read of the state: rows are channels, columns tokens.
		f32x4 y[2][2];
		if (!Ends) {
			Scale scale_h = scale_of(most_of(m.most_h));
			u32x4 a[2][tiles / 2];
			UNROLL for (int e = 0; e < tiles; e++)
				UNROLL for (int p = 0; p < 2; p++) {
					u32 high, low;
					f32x4 v = h[e] * scale_h.up;
					take_halves(v[2 * p], v[2 * p + 1], high, low);
					a[0][e / 2][e % 2 * 2 + p] = high, a[1][e / 2][e % 2 * 2 + p] = low;
				}
			float back = scale_h.down * scale[2];
			UNROLL for (int t = 0; t < 2; t++) {
				products(y[t], a, [&](int half, int k) {
					return load_matrices(of_b(m.c[half] + 16 * t, base + 16 * k));
				});
				UNROLL for (int q = 0; q < 2; q++) {
					f32x2 decay = load_pair(&now.begin[16 * t + 8 * q + pair]) * back;
					UNROLL for (int i = 0; i < 4; i++) y[t][q][i] *= decay[i % 2];
				}
			}
		}
		wait_groups<1>();
		sync(); // B and what was taken apart are there; C is read no more
		fetch_halves(m.c, Ends ? tokens : at + chunk, 2);
		f32x4 gate[2] = {};
		if (!Ends && s.bias && at + row < tokens)
			UNROLL for (int i = 0; i < 2; i++) gate[i] = load4(s.z + (first + at + row) * s.zs + column + part + 4 * i,
					wide - part - 4 * i, s.vec & 2);
		if (!Ends) {
			// What the warp's half of the tokens gives to them and to those after them.
			int from = warp() % 2;
			float back = scale_in.down * scale[0];
			u32x4 a[2][1];
			UNROLL for (int i = 0; i < 2; i++) a[i][0] = load_transposed(of_b(m.in[i] + 16 * from, own));
			UNROLL for (int t = 0; t < 2; t++) {
				if (t >= from) {
					f32x4 sums[2];
					products(sums, a, [&](int half, int) {
						return load_matrices(of_b(m.weights[half] + 16 * t, 16 * from));
					});
					UNROLL for (int q = 0; q < 2; q++)
						UNROLL for (int i = 0; i < 4; i++) y[t][q][i] = fma(sums[q][i], back, y[t][q][i]);
				}
				UNROLL for (int q = 0; q < 2; q++)
					UNROLL for (int i = 0; i < 4; i++)
						m.y[from][16 * t + 8 * q + pair + i % 2][own + i / 2 * 8 + g] = y[t][q][i];
			}
		}
		// The state at the chunk's end.
		float whole = math::decay((float)now.log[chunk - 1]), back = scale_in.down * scale[1], most = 0;
		log += now.log[chunk - 1];
		u32x4 a[2][2];
		UNROLL for (int i = 0; i < 4; i++) a[i / 2][i % 2] = load_transposed(of_b(m.tail[i / 2] + i % 2 * 16, own));
		UNROLL for (int e = 0; e < tiles; e += 2) {
			f32x4 sums[2];
			products(sums, a, [&](int half, int k) {
				return load_transposed(of_a(m.b[half] + 16 * k, base + 8 * e));
			});
			UNROLL for (int q = 0; q < 2; q++) {
				UNROLL for (int i = 0; i < 4; i++) h[e + q][i] = fma(sums[q][i], back, h[e + q][i] * whole);
				most = size_of(most, h[e + q]);
			}
		}
		put_most(m.most_h, most);
		if (warp() == 1)
			decays(m.decays[1 - turn], next, s.a[head]);
		wait_groups<1>();
		sync(); // x, the scores, the next decays and what is put out are there; B is read no more
		fetch_halves(m.b, at + chunk, 0);
		if (!Ends && at + row < tokens)
			UNROLL for (int i = 0; i < 2; i++) {
				int k = part + 4 * i;
				f32x4 v = whole4(&m.y[0][row][k]) + whole4(&m.y[1][row][k]);
				if (s.bias)
					UNROLL for (int e = 0; e < 4; e++) v[e] = math::silu(gate[i][e]) * (v[e] + in[i][e] * s.d[head]);
				store4(s.y + (first + at + row) * s.ys + column + k, v, wide - k, s.vec & 2);
			}
	}
	each_pair([&](f32x4 &h, int p, i64 i) {
		if (Ends)
			store_pair(begin + i, h[p], h[p + 1]);
		else if (span.last)
			store_pair(state + i, h[p], h[p + 1]);
	});
	if (Ends && channel == 0 && thread() == 0)
		s.decays[block_x() * s.heads + head] = math::decay((float)log);
}

static_assert(sizeof(Shared) == 69920, "the host knows this size");

// Blocks of 128 threads are (sequences or pieces, heads, size / 32); up to 128 states.
KERNEL THREADS_BLOCKS(128, 2) ssd_split(Scan s) { chunks<false>(s); }

// What pieces but the last of a segment add to its state.
KERNEL THREADS_BLOCKS(128, 2) ssd_split_ends(Scan s) { chunks<true>(s); }

// The scan with one rate per head (Dao and Gu 2024): h = exp(dt A) h + dt x Bᵀ,
// y = h C, for heads of size channels with n states each. FORMAT is the state's.
// Formats: f32 bf16
#include "chunks.h"
#include "ssd.h"

// Rows of a state that a warp has at a time.
const int warp_rows = 4;

// The sequence's tokens one by one, with the state in memory: for one token, or
// states too large for shared memory, which the host gives in f32. A warp updates 4 rows of a state
// at a time, a lane 4 of every 128 states of each, so that 2 KB of state are in flight per warp.
// Blocks of 128 threads are (sequences, heads, size / 16).
KERNEL THREADS_BLOCKS(128, 4) ssd_scan_steps(Scan s) {
	int head = block_y(), row = (block_z() * 4 + warp()) * warp_rows;
	const int *seg = s.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	float rate = math::rate(s.a[head]);
	i64 group = (i64)group_of(s.groups, head) * s.n;
	kept *state = s.state + slot * s.hs + (i64)head * s.size * s.n;
	if (row >= s.size)
		return;
	for (i64 t = first; t < first + tokens; t++) {
		float d = s.step(t, head), decay = math::decay(d * rate);
		float sums[warp_rows] = {}, in[warp_rows];
		UNROLL for (int r = 0; r < warp_rows; r++) in[r] = d * s.x[t * s.xs + head * s.size + min(row + r, s.size - 1)];
		for (int k = 4 * lane(); k < s.n; k += 128) {
			f32x4 b = load4(s.b + t * s.bs + group + k, s.n - k, s.vec);
			f32x4 c = load4(s.c + t * s.cs + group + k, s.n - k, s.vec);
			f32x4 h[warp_rows];
			UNROLL for (int r = 0; r < warp_rows; r++)
				h[r] = load4(state + (i64)(row + r) * s.n + k, row + r < s.size ? s.n - k : 0, s.vec);
			UNROLL for (int r = 0; r < warp_rows; r++) {
				UNROLL for (int i = 0; i < 4; i++) {
					h[r][i] = fma(decay, h[r][i], in[r] * b[i]);
					sums[r] = fma(h[r][i], c[i], sums[r]);
				}
				store4(state + (i64)(row + r) * s.n + k, h[r], row + r < s.size ? s.n - k : 0, s.vec);
			}
		}
		float sum = warp_sums(sums);
		int r = row + lane() / (32 / warp_rows);
		if (lane() % (32 / warp_rows) == 0 && r < s.size)
			s.put(t, head, (i64)head * s.size + r, sum, s.x[t * s.xs + head * s.size + r]);
	}
}

// Whole segments in chunks, in the matrix form of section 6 of the paper: within
// a chunk y = (C Bᵀ ∘ L) dt x, L being the decays from one token to a later one, and
// C Bᵀ that of ssd_scores.cu where it is there; what was before comes through the state at the
// chunk's beginning; and the state is carried from chunk to chunk by the block. Blocks of 256
// threads are (sequences or pieces, heads, size / 32).
//
// A chunk has 32 tokens, or 16 where shared memory is short.
template <int chunk> struct Decays {
	double log[chunk];            // log2 of the decay from the chunk's beginning through each token
	float dt[chunk], tail[chunk]; // tail: dt · the decay from a token to the chunk's end
};

// What a block has in shared memory, before b, c and h: rows of stride floats
// each, so that rows next to each other begin 4 banks apart.
template <int chunk> struct alignas(16) Shared {
	Decays<chunk> decays[2]; // of this chunk and the next
	float x[chunk][tile_channels + 4];
	float scores[chunk][tile_channels + 4]; // and then what is put out
};

// The decays of a chunk, by one warp, summed in double: differences of large sums must stay
// exact.
template <int chunk> DEVICE void decays(Decays<chunk> &m, const Scan &s, i64 token, int count, int head) {
	float d = lane() < count ? s.step(token + lane(), head) : 0;
	double log = sum_through<chunk>(bounded(d * s.a[head] * 1.4426950408889634));
	if (lane() < chunk) {
		m.log[lane()] = log;
		m.dt[lane()] = d;
	}
	__nvvm_bar_warp_sync(all_lanes);
	if (lane() < chunk)
		m.tail[lane()] = d * math::decay((float)(m.log[chunk - 1] - log));
}

static_assert(sizeof(Shared<32>) == 10240 && sizeof(Shared<16>) == 5120, "the host knows these sizes");

template <int chunk, bool Ends> DEVICE void chunks(const Scan &s) {
	const int parts = chunk / 16;
	Shared<chunk> &m = *(Shared<chunk> *)shared_memory;
	int head = block_y(), channel = block_z() * tile_channels, wide = min(tile_channels, s.size - channel);
	Span span = s.span<Ends>();
	int first = span.first, tokens = span.tokens;
	if (tokens < 1 || (Ends && span.last))
		return;
	int stride = (s.n + 3) / 4 * 4 + 4, group = group_of(s.groups, head);
	float *b = (float *)(&m + 1), *c = b + chunk * stride, *h = c + chunk * stride;
	i64 column = (i64)head * s.size + channel;
	kept *state = s.state + span.slot * s.hs + column * s.n;
	float *begin = span.state + column * s.n;
	auto fetch_c = [&](int at) {
		if (!Ends && at < tokens)
			fetch(c, chunk, stride, s.c + (first + at) * s.cs + (i64)group * s.n, s.cs, tokens - at, s.n, s.vec);
		end_group();
	};
	auto fetch_b = [&](int at) {
		if (at < tokens) {
			fetch(b, chunk, stride, s.b + (first + at) * s.bs + (i64)group * s.n, s.bs, tokens - at, s.n, s.vec);
			fetch(&m.x[0][0], chunk, tile_channels + 4, s.x + (first + at) * s.xs + column, s.xs, tokens - at, wide,
					s.vec);
		}
		end_group();
	};
	auto state_at = [&](int r, int k) {
		int left = Ends || r >= wide ? 0 : s.n - k;
		i64 i = (i64)r * s.n + k;
		return span.state ? load4(begin + i, left, s.vec) : load4(state + i, left, s.vec);
	};
	NO_UNROLL for (int r = warp(); r < tile_channels; r += 8)
		NO_UNROLL for (int k = 4 * lane(); k < stride - 4; k += 128)
			put4(h + r * stride + k, state_at(r, k));
	int i = thread() / 16, j = thread() % 16; // and i + 16, … , j + 16, …
	double log = 0; // of all decays
	// Before the first chunk a turn only fetches it.
	for (int at = -chunk; at < tokens; at += chunk) {
		bool has = at >= 0;
		int count = min(chunk, tokens - at), turn = at / chunk & 1;
		i64 token = first + at;
		const Decays<chunk> &now = m.decays[turn];
		float y[parts][2] = {};
		if (!Ends && has) {
			float scores[parts][parts] = {};
			if (s.scores) {
				UNROLL for (int p = 0; p < parts; p++)
					UNROLL for (int q = 0; q <= p; q++) {
						int t = i + 16 * p, from = j + 16 * q;
						scores[p][q] = from <= t && t < count ? s.scores[(token + t) * s.ss + group * chunk + from] : 0;
					}
				wait_groups<1>();
			} else
				wait_groups<0>();
			sync(); // C is there, and B, where C Bᵀ is not
			if (!s.scores)
				NO_UNROLL for (int k = 0; k < stride - 4; k += 4)
					UNROLL for (int p = 0; p < parts; p++) {
						f32x4 u = whole4(c + (i + 16 * p) * stride + k);
						UNROLL for (int q = 0; q <= p; q++) {
							f32x4 v = whole4(b + (j + 16 * q) * stride + k);
							UNROLL for (int e = 0; e < 4; e++) scores[p][q] = fma(u[e], v[e], scores[p][q]);
						}
					}
			UNROLL for (int p = 0; p < parts; p++)
				UNROLL for (int q = 0; q <= p; q++) {
					int t = i + 16 * p, from = j + 16 * q;
					m.scores[t][from] = from > t ? 0 : scores[p][q] * math::decay((float)(now.log[t] - now.log[from]))
							* now.dt[from];
				}
			// What tokens i, i + 16 read of the state.
			UNROLL_4 for (int k = 0; k < stride - 4; k += 4)
				UNROLL for (int p = 0; p < parts; p++) {
					f32x4 u = whole4(c + (i + 16 * p) * stride + k);
					UNROLL for (int q = 0; q < 2; q++) {
						f32x4 v = whole4(h + (j + 16 * q) * stride + k);
						UNROLL for (int e = 0; e < 4; e++) y[p][q] = fma(u[e], v[e], y[p][q]);
					}
				}
		}
		wait_groups<0>();
		sync(); // B, x and the scores are there; C and the state are read no more
		fetch_c(at + chunk);
		if (!Ends && has) {
			UNROLL for (int p = 0; p < parts; p++) {
				float begin = math::decay((float)now.log[i + 16 * p]);
				UNROLL for (int q = 0; q < 2; q++) y[p][q] *= begin;
			}
			add_tokens(y, m.scores, m.x);
			__nvvm_bar_warp_sync(all_lanes); // the warp's scores are read no more
			UNROLL for (int p = 0; p < parts; p++)
				UNROLL for (int q = 0; q < 2; q++) m.scores[i + 16 * p][j + 16 * q] = y[p][q];
			__nvvm_bar_warp_sync(all_lanes);
			NO_UNROLL for (int r = 0; r < 2 * parts; r++) {
				int t = 2 * warp() + r % 2 + r / 2 * 16;
				if (t < count && lane() < wide)
					s.put(token + t, head, column + lane(), m.scores[t][lane()], m.x[t][lane()]);
			}
		}
		if (has) {
			log += now.log[chunk - 1];
			float last = math::decay((float)now.log[chunk - 1]);
			carry(h, stride, [&](int) ALWAYS_INLINE { return last; }, m.x, now.tail, b, count);
		}
		if (warp() == 0 && at + chunk < tokens)
			decays(m.decays[1 - turn], s, token + chunk, tokens - at - chunk, head);
		sync(); // B, x and the scores are read no more; the state and the next decays are there
		fetch_b(at + chunk);
	}
	NO_UNROLL for (int r = warp(); r < wide; r += 8)
		NO_UNROLL for (int k = 4 * lane(); k < stride - 4; k += 128) {
			f32x4 v = whole4(h + r * stride + k);
			i64 i = (i64)r * s.n + k;
			if (Ends)
				store4(begin + i, v, s.n - k, s.vec);
			else if (span.last)
				store4(state + i, v, s.n - k, s.vec);
		}
	if (Ends && channel == 0 && thread() == 0)
		s.decays[block_x() * s.heads + head] = math::decay((float)log);
}

KERNEL THREADS_BLOCKS(256, 2) ssd_scan_chunks(Scan s) { chunks<32, false>(s); }
KERNEL THREADS_BLOCKS(256, 2) ssd_scan_chunks_16(Scan s) { chunks<16, false>(s); }

// What pieces but the last of a segment add to its state.
KERNEL THREADS_BLOCKS(256, 2) ssd_scan_ends(Scan s) { chunks<32, true>(s); }
KERNEL THREADS_BLOCKS(256, 2) ssd_scan_ends_16(Scan s) { chunks<16, true>(s); }

// From that, the states with which they begin. One thread per element of a state, in blocks of
// 128: (sequences, heads, size · n / 128).
KERNEL THREADS(128) ssd_scan_starts(Scan s) {
	int i = block_z() * 128 + thread(), seq = block_x(), head = block_y(), each = s.size * s.n,
			count = ceil_div(s.seg[3 * seq + 1], s.piece);
	if (i >= each || count < 1)
		return;
	i64 piece = pieces_before(s.seg, seq, s.piece), element = (i64)head * each + i, all = (i64)s.heads * each;
	const float *decays = s.decays + piece * s.heads + head;
	begin_pieces(s.starts + piece * all + element, all, count, widen(s.state[s.seg[3 * seq + 2] * s.hs + element]),
			[&](int at) { return decays[(i64)at * s.heads]; });
}

// The scan with one rate per head (Dao and Gu 2024): h = exp(dt A) h + dt x Bᵀ,
// y = h C, for heads of size channels with n states each. FORMAT is the state's.
// Formats: f32 bf16
#include "ssd.h"

// Rows of a state that a warp has at a time.
const int warp_rows = 4;

// The sequence's tokens one by one, with the state in memory: for one token, or
// states too large for shared memory, which the host gives in f32. A warp updates 4 rows of a state at a time,
// a lane 4 of every 128 states of each, so that 2 KB of state are in flight per
// warp. Blocks of 128 threads are (sequences, heads, size / 16).
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
			UNROLL for (int r = 0; r < warp_rows; r++) h[r] = load4(state + (i64)(row + r) * s.n + k, row + r < s.size ? s.n - k : 0, s.vec);
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
// a chunk y = (C Bᵀ ∘ L) dt x, L being the decays from one token to a later one;
// what was before comes through the state at the chunk's beginning; and the state
// is carried from chunk to chunk by the block. Blocks of 256 threads are (sequences,
// heads, size / 32).
//
// A chunk has 32 tokens, or 16 where shared memory is short.
const int tile_channels = 32;

extern SHARED f32x4 shared_memory[];

// What a block has in shared memory, before b, c and h: rows of stride floats
// each, so that rows next to each other begin 4 banks apart.
template <int chunk> struct alignas(16) Shared {
	double log[chunk];            // log2 of the decay from the chunk's beginning through each token
	float dt[chunk], tail[chunk]; // tail: dt · the decay from a token to the chunk's end
	float x[chunk][tile_channels + 4];
	float scores[chunk][chunk + 1];
};

// Fills rows of shared memory, all of them, with the first rows of cols columns;
// what is not there is 0.
template <class T> DEVICE void fetch(float *to, int all, int stride, const T *from, i64 rows_apart, int rows, int cols, int vec) {
	int fours = stride / 4;
	NO_UNROLL for (int i = thread(); i < all * fours; i += 256) {
		int r = i / fours, k = 4 * (i % fours);
		put4(to + r * stride + k, load4(from + r * rows_apart + k, r < rows ? cols - k : 0, vec));
	}
}

// The decays of a chunk, summed in double: differences of large sums must stay
// exact.
template <int chunk> DEVICE void decays(Shared<chunk> &m, const Scan &s, i64 token, int count, int head) {
	if (warp() > 0)
		return;
	float d = lane() < count ? s.step(token + lane(), head) : 0;
	double log = bounded(d * s.a[head] * 1.4426950408889634);
	UNROLL for (int o = 1; o < chunk; o *= 2) {
		u64 below = from_lane_below(__builtin_bit_cast(u64, log), o);
		if (lane() >= o)
			log += __builtin_bit_cast(double, below);
	}
	if (lane() < chunk) {
		m.log[lane()] = log;
		m.dt[lane()] = d;
	}
	__nvvm_bar_warp_sync(all_lanes);
	if (lane() < chunk)
		m.tail[lane()] = d * math::decay((float)(m.log[chunk - 1] - log));
}

// The dots of rows i, i + 16, … of a with rows j, j + 16, … of b.
template <int P, int Q> DEVICE void dots(float (&sum)[P][Q], const float *a, const float *b, int i, int j, int stride) {
	for (int k = 0; k < stride - 4; k += 4)
		UNROLL for (int p = 0; p < P; p++) {
			f32x4 u = whole4(a + (i + 16 * p) * stride + k);
			UNROLL for (int q = 0; q < Q; q++) {
				f32x4 v = whole4(b + (j + 16 * q) * stride + k);
				UNROLL for (int e = 0; e < 4; e++) sum[p][q] = fma(u[e], v[e], sum[p][q]);
			}
		}
}

static_assert(sizeof(Shared<32>) == 9344 && sizeof(Shared<16>) == 3648, "the host knows these sizes");

template <int chunk> DEVICE void chunks(const Scan &s) {
	const int parts = chunk / 16;
	Shared<chunk> &m = *(Shared<chunk> *)shared_memory;
	int head = block_y(), channel = block_z() * tile_channels, wide = min(tile_channels, s.size - channel);
	const int *seg = s.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	if (tokens < 1)
		return;
	int stride = (s.n + 3) / 4 * 4 + 4;
	float *b = (float *)(&m + 1), *c = b + chunk * stride, *h = c + chunk * stride;
	i64 group = (i64)group_of(s.groups, head) * s.n, column = (i64)head * s.size + channel;
	kept *state = s.state + slot * s.hs + column * s.n;
	fetch(h, tile_channels, stride, state, s.n, wide, s.n, s.vec);
	int i = thread() / 16, j = thread() % 16; // and i + 16, … , j + 16, …
	for (int at = 0; at < tokens; at += chunk) {
		int count = min(chunk, tokens - at);
		i64 token = first + at;
		fetch(b, chunk, stride, s.b + token * s.bs + group, s.bs, count, s.n, s.vec);
		fetch(c, chunk, stride, s.c + token * s.cs + group, s.cs, count, s.n, s.vec);
		fetch(&m.x[0][0], chunk, tile_channels + 4, s.x + token * s.xs + column, s.xs, count, wide, s.vec);
		decays(m, s, token, count, head);
		sync();
		float sums[parts][parts] = {};
		dots(sums, c, b, i, j, stride);
		UNROLL for (int p = 0; p < parts; p++)
			UNROLL for (int q = 0; q < parts; q++) {
				int t = i + 16 * p, from = j + 16 * q;
				m.scores[t][from] = from > t ? 0 : sums[p][q] * math::decay((float)(m.log[t] - m.log[from])) * m.dt[from];
			}
		sync();
		float y[parts][2] = {};
		dots(y, c, h, i, j, stride);
		UNROLL for (int p = 0; p < parts; p++) {
			float begin = math::decay((float)m.log[i + 16 * p]);
			UNROLL for (int q = 0; q < 2; q++) y[p][q] *= begin;
		}
		for (int from = 0; from < count; from++)
			UNROLL for (int p = 0; p < parts; p++)
				UNROLL for (int q = 0; q < 2; q++) y[p][q] = fma(m.scores[i + 16 * p][from], m.x[from][j + 16 * q], y[p][q]);
		UNROLL for (int p = 0; p < parts; p++)
			UNROLL for (int q = 0; q < 2; q++)
				if (i + 16 * p < count && j + 16 * q < wide)
					s.y[(token + i + 16 * p) * s.ys + column + j + 16 * q] = y[p][q];
		sync(); // the state is read no more
		if (s.bias) // one by one, for which there are registers
			NO_UNROLL for (int k = thread(); k < count * tile_channels; k += 256) {
				int t = k / tile_channels, c = k % tile_channels;
				if (c < wide)
					s.put(token + t, head, column + c, s.y[(token + t) * s.ys + column + c], m.x[t][c]);
			}
		float whole = math::decay((float)m.log[chunk - 1]);
		for (int k = 4 * lane(); k < stride - 4; k += 128) {
			f32x4 v[4];
			UNROLL for (int r = 0; r < 4; r++) v[r] = whole4(h + (4 * warp() + r) * stride + k) * whole;
			for (int from = 0; from < count; from++) {
				f32x4 x = whole4(&m.x[from][4 * warp()]) * m.tail[from], w = whole4(b + from * stride + k);
				UNROLL for (int r = 0; r < 4; r++)
					UNROLL for (int e = 0; e < 4; e++) v[r][e] = fma(x[r], w[e], v[r][e]);
			}
			UNROLL for (int r = 0; r < 4; r++) put4(h + (4 * warp() + r) * stride + k, v[r]);
		}
		sync(); // what the next chunk overwrites is read no more
	}
	NO_UNROLL for (int k = thread(); k < wide * (stride / 4); k += 256) {
		int r = k / (stride / 4), e = 4 * (k % (stride / 4));
		store4(state + (i64)r * s.n + e, whole4(h + r * stride + e), s.n - e, s.vec);
	}
}

KERNEL THREADS(256) ssd_scan_chunks(Scan s) { chunks<32>(s); }
KERNEL THREADS(256) ssd_scan_chunks_16(Scan s) { chunks<16>(s); }

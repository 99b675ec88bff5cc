// The gated delta rule (Yang et al. 2024): S = exp(g) S, S = S + k · beta (v - Sᵀk),
// y = scale · Sᵀq, for heads with a state of n rows of size columns. FORMAT is the state's.
// Formats: f32 bf16
#include "chunks.h"
#include "parts.h"

// Rows of operands: y and v [t, head · size], q and k [t, group · n], g [t, head · per], beta
// [t, head], state [slot, head, n, size], in the format in which it is kept: it is rounded when
// it is stored, at the end of a segment.
typedef FORMAT kept;

struct Delta {
	float *y;
	const float *q, *k, *v, *g, *beta;
	kept *state;
	const int *seg;
	i64 ys, qs, ks, vs, gs, bs, hs;
	int n, size, per;
	Groups groups;
	float scale;
	int vec; // q, k and decays of rows are aligned
};

const int warp_rows = 32;

// What a warp has of a token: keys, queries and decays of its rows, and its part of Sᵀk and Sᵀq
// of 32 columns, and of k·q.
struct Part {
	float k[warp_rows], q[warp_rows], decay[warp_rows];
	float known[32], out[32], fresh;
};

static_assert(sizeof(Part) == 644, "the host knows this size");

// The sequence's tokens one by one, with the state in registers: a warp has 32 rows of it, a lane
// a column, so that the state is read and written once. Blocks are (sequences, heads, size / 32),
// of a warp for each 32 rows. Parts of two tokens are there: a warp may be one ahead.
KERNEL THREADS(256) delta_scan_steps(Delta d) {
	int head = block_y(), column = block_z() * 32 + lane(), row = warp() * warp_rows, warps = threads() / 32;
	const int *seg = d.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	i64 group = (i64)group_of(d.groups, head) * d.n;
	kept *state = d.state + slot * d.hs + ((i64)head * d.n + row) * d.size + column;
	bool here = column < d.size;
	Part *parts = (Part *)shared_memory;
	float s[warp_rows];
	UNROLL for (int i = 0; i < warp_rows; i++) s[i] = here && row + i < d.n ? widen(state[(i64)i * d.size]) : 0;
	for (int i = 0; i < tokens; i++) {
		i64 t = first + i;
		Part *all = parts + i % 2 * warps, &own = all[warp()];
		int at = row + lane();
		float k = at < d.n ? d.k[t * d.ks + group + at] : 0, q = at < d.n ? d.q[t * d.qs + group + at] : 0;
		own.k[lane()] = k, own.q[lane()] = q;
		own.decay[lane()] = at < d.n ? math::exp(d.g[t * d.gs + head * d.per + (d.per > 1 ? at : 0)]) : 0;
		float fresh = warp_sum(k * q);
		__nvvm_bar_warp_sync(all_lanes);
		float known = 0, out = 0;
		UNROLL for (int r = 0; r < warp_rows; r++) {
			s[r] *= own.decay[r];
			known = fma(s[r], own.k[r], known);
			out = fma(s[r], own.q[r], out);
		}
		own.known[lane()] = known, own.out[lane()] = out;
		if (lane() == 0)
			own.fresh = fresh;
		sync();
		known = 0, out = 0, fresh = 0;
		for (int w = 0; w < warps; w++)
			known += all[w].known[lane()], out += all[w].out[lane()], fresh += all[w].fresh;
		float value = here ? d.beta[t * d.bs + head] * (d.v[t * d.vs + (i64)head * d.size + column] - known) : 0;
		UNROLL for (int r = 0; r < warp_rows; r++) s[r] = fma(own.k[r], value, s[r]);
		if (here && warp() == 0)
			d.y[t * d.ys + (i64)head * d.size + column] = d.scale * fma(fresh, value, out);
	}
	UNROLL for (int i = 0; i < warp_rows; i++)
		if (here && row + i < d.n)
			narrow(state[(i64)i * d.size], s[i]);
}

const int chunk = 32; // tokens

// The tokens of a chunk where each row of a state has its decay, and how many rows there may be.
const int rows_chunk = 16, most_rows = 128;

// The decays of a chunk, those of all rows of a state, and its betas.
struct Gates {
	double log[chunk]; // log2 of the decay from the chunk's beginning through each token
	float beta[chunk], tail[chunk]; // tail: the decay from a token to the chunk's end
};

// Shared memory of a block, before keys, queries and the state.
struct alignas(16) Shared {
	Gates gates[2]; // of this chunk and the next
	float solve[chunk][chunk + 4]; // what a token adds to the x of later ones, a row per token
	float weights[chunk][chunk + 4];
	float x[chunk][tile_channels + 4];
	float last[most_rows]; // the decays of rows over the chunk
};

static_assert(sizeof(Shared) == 15360, "the host knows this size");

// Where each row has its decay, all rows have 1.
template <bool Rows> DEVICE void gates(Gates &m, const Delta &d, i64 token, int count, int head) {
	bool here = lane() < count;
	double log = 0;
	if constexpr (!Rows)
		log = sum_through<chunk>(here ? bounded(d.g[(token + lane()) * d.gs + head] * 1.4426950408889634) : 0);
	m.log[lane()] = log;
	m.beta[lane()] = here ? d.beta[(token + lane()) * d.bs + head] : 0;
	__nvvm_bar_warp_sync(all_lanes);
	m.tail[lane()] = math::decay((float)(m.log[chunk - 1] - log));
}

// Keys, queries and decays of the rows of a chunk in shared memory, and what pairs makes of them.
struct Decayed {
	float *keys, *queries, *decays, *tails; // tails: keys, times the decays to the chunk's end
	int stride;
};

// The tokens of a warp, of which those that few come after are with those that many do.
template <class F> DEVICE void own_tokens(F f) {
	NO_UNROLL for (int turn = 0; turn < 2; turn++) f(turn == 0 ? warp() : rows_chunk - 1 - warp());
}

// What tokens of a chunk read of each other where each row of a state has its decay: k_i·k_j and
// q_i·k_j with the decays after j up to i in each product. These are products of single decays, of
// which none is above 1: logs that are subtracted would lose digits. A warp has two tokens j, a
// lane four rows.
DEVICE void pairs(Shared &m, const float *beta, const Decayed &d, float scale) {
	int each = rows_chunk * d.stride, at = min(4 * lane(), d.stride - 8); // lanes without rows have keys of 0
	bool here = at == 4 * lane();
	own_tokens([&](int j) ALWAYS_INLINE {
		const float *key = d.keys + j * d.stride + at; // queries and decays come behind all keys
		f32x4 tail = here ? whole4(key) : 0;
		float sums[2 * rows_chunk] = {}; // of tokens j and after it
		UNROLL for (int after = 0; after < rows_chunk; after++) {
			if (j + after >= rows_chunk)
				continue;
			if (after > 0)
				tail *= whole4(key + 2 * each);
			f32x4 own = whole4(key), asks = whole4(key + each);
			key += d.stride;
			UNROLL for (int e = 0; e < 4; e++) {
				sums[after] = fma(own[e], tail[e], sums[after]);
				sums[rows_chunk + after] = fma(asks[e], tail[e], sums[rows_chunk + after]);
			}
		}
		if (here)
			put4(d.tails + j * d.stride + at, tail);
		float sum = warp_sums(sums);
		int i = (j + lane()) % rows_chunk; // those before j have sums of 0
		if (lane() < rows_chunk)
			m.solve[j][i] = i == j ? 0 : -beta[i] * sum;
		else
			m.weights[i][j] = scale * sum;
	});
}

// Multiplies keys and queries by the decays from the chunk's beginning.
DEVICE void decay_rows(Shared &m, const Decayed &d) {
	int at = 4 * lane();
	if (at >= d.stride - 4)
		return;
	own_tokens([&](int j) ALWAYS_INLINE {
		f32x4 decay = 1;
		NO_UNROLL for (int i = 0; i <= j; i++) decay *= whole4(d.decays + i * d.stride + at);
		float *key = d.keys + j * d.stride + at, *query = d.queries + j * d.stride + at;
		put4(key, whole4(key) * decay);
		put4(query, whole4(query) * decay);
		if (j == rows_chunk - 1)
			put4(m.last + at, decay);
	});
}

// Whole segments in chunks, by the WY form (section 3.3 of the paper). With a_i the sum of a
// chunk's log decays up to token i,
//
//	x_i = beta_i (v_i - exp(a_i) Sᵀk_i - Σ_{j<i} exp(a_i - a_j) (k_i·k_j) x_j)
//	y_i = scale (exp(a_i) Sᵀq_i + Σ_{j≤i} exp(a_i - a_j) (q_i·k_j) x_j)
//	S   = exp(a_last) S + Σ_j exp(a_last - a_j) k_j x_jᵀ
//
// With a decay for each row (Rows), the exponentials of a row stand before its term in each
// product: keys and queries have them, and a is 0.
//
// A warp solves for x, a column in each lane. The block carries the state from chunk to chunk, in
// shared memory with a row per column. Blocks of 256 threads are (sequences, heads, size / 32).
template <bool Rows> DEVICE void scan_chunks(const Delta &d) {
	const int step = Rows ? rows_chunk : chunk, parts = step / 16;
	Shared &m = *(Shared *)shared_memory;
	int head = block_y(), column = block_z() * tile_channels, wide = min(tile_channels, d.size - column);
	const int *seg = d.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	if (tokens < 1)
		return;
	int stride = (d.n + 3) / 4 * 4 + 4, each = step * stride;
	float *keys = (float *)(&m + 1), *queries = keys + each, *s = keys + 2 * chunk * stride;
	Decayed rows{keys, queries, queries + each, Rows ? queries + 2 * each : keys, stride};
	i64 group = (i64)group_of(d.groups, head) * d.n, channel = (i64)head * d.size + column;
	kept *state = d.state + slot * d.hs + (i64)head * d.n * d.size + column;
	auto fetch_rows = [&](float *to, const float *from, i64 apart, int at) {
		if (at < tokens)
			fetch(to, step, stride, from + (first + at) * apart, apart, tokens - at, d.n, d.vec);
		end_group();
	};
	auto fetch_queries = [&](int at) {
		fetch_rows(queries, d.q + group, d.qs, at);
		if constexpr (Rows)
			fetch_rows(rows.decays, d.g + (i64)head * d.n, d.gs, at);
	};
	fetch_queries(0);
	fetch_rows(keys, d.k + group, d.ks, 0);
	UNROLL_4 for (int i = warp(); i < stride - 4; i += 8)
		s[lane() * stride + i] = lane() < wide && i < d.n ? widen(state[(i64)i * d.size + lane()]) : 0;
	if (warp() == 0)
		gates<Rows>(m.gates[0], d, first, tokens, head);
	int i = thread() / 16, j = thread() % 16; // and i + 16, j + 16
	for (int at = 0; at < tokens; at += step) {
		int count = min(step, tokens - at), turn = at / step & 1;
		i64 token = first + at;
		const Gates &now = m.gates[turn];
		float v[parts][2], y[parts][2] = {}, known[parts][2] = {}, solve[parts][2] = {}, weights[parts][2] = {};
		UNROLL for (int p = 0; p < parts; p++)
			UNROLL for (int q = 0; q < 2; q++) {
				int t = i + 16 * p, column = j + 16 * q;
				v[p][q] = t < count && column < wide ? d.v[(token + t) * d.vs + channel + column] : 0;
			}
		wait_groups<0>();
		if constexpr (Rows)
			for (int r = warp(); r < step; r += 8) // as they were fetched
				for (int k = 4 * lane(); k < stride - 4; k += 128) {
					f32x4 gate = whole4(rows.decays + r * stride + k);
					UNROLL for (int e = 0; e < 4; e++) gate[e] = math::exp(gate[e]);
					put4(rows.decays + r * stride + k, gate);
				}
		sync(); // keys, queries, decays, the state and the gates are there
		if constexpr (Rows) {
			pairs(m, now.beta, rows, d.scale);
			sync(); // keys and queries are read no more
			decay_rows(m, rows);
			sync(); // they have their decays
		}
		_Pragma("unroll Rows ? 2 : 1") for (int k = 0; k < stride - 4; k += 4) {
			f32x4 own[parts], asks[parts];
			UNROLL for (int p = 0; p < parts; p++) {
				own[p] = whole4(keys + (i + 16 * p) * stride + k);
				asks[p] = whole4(queries + (i + 16 * p) * stride + k);
			}
			UNROLL for (int q = 0; q < 2; q++) {
				f32x4 from = Rows ? 0 : whole4(keys + (j + 16 * q) * stride + k);
				f32x4 row = whole4(s + (j + 16 * q) * stride + k);
				UNROLL for (int p = 0; p < parts; p++)
					UNROLL for (int e = 0; e < 4; e++) {
						known[p][q] = fma(own[p][e], row[e], known[p][q]);
						y[p][q] = fma(asks[p][e], row[e], y[p][q]);
						if (!Rows && q <= p) {
							solve[p][q] = fma(own[p][e], from[e], solve[p][q]);
							weights[p][q] = fma(asks[p][e], from[e], weights[p][q]);
						}
					}
			}
		}
		UNROLL for (int p = 0; p < parts; p++) {
			int t = i + 16 * p;
			float begin = math::decay((float)now.log[t]), beta = now.beta[t];
			UNROLL for (int q = 0; q < 2; q++) {
				int from = j + 16 * q;
				if constexpr (!Rows) {
					float by = math::decay((float)(now.log[t] - now.log[from]));
					m.solve[from][t] = from < t ? -beta * by * solve[p][q] : 0;
					m.weights[t][from] = from <= t ? d.scale * by * weights[p][q] : 0;
				}
				m.x[t][from] = beta * fma(-begin, known[p][q], v[p][q]);
				y[p][q] *= d.scale * begin;
			}
		}
		sync(); // the gates and x are there; the queries are read no more
		fetch_queries(at + step);
		if (warp() == 0) {
			NO_UNROLL for (int half = 0; half < step; half += 16) {
				float x[16];
				UNROLL for (int t = 0; t < 16; t++) x[t] = m.x[half + t][lane()];
				NO_UNROLL for (int from = 0; from < half; from++)
					UNROLL for (int t = 0; t < 16; t += 4) {
						f32x4 by = whole4(&m.solve[from][half + t]);
						UNROLL for (int e = 0; e < 4; e++) x[t + e] = fma(by[e], m.x[from][lane()], x[t + e]);
					}
				UNROLL for (int from = 0; from < 15; from++)
					UNROLL for (int t = from / 4 * 4; t < 16; t += 4) {
						f32x4 by = whole4(&m.solve[half + from][half + t]);
						UNROLL for (int e = 0; e < 4; e++)
							if (t + e > from)
								x[t + e] = fma(by[e], x[from], x[t + e]);
					}
				UNROLL for (int t = 0; t < 16; t++) m.x[half + t][lane()] = x[t];
			}
		} else if (warp() == 1 && at + step < tokens)
			gates<Rows>(m.gates[1 - turn], d, token + step, tokens - at - step, head);
		sync(); // x is solved
		add_tokens(y, m.weights, m.x);
		UNROLL for (int p = 0; p < parts; p++)
			UNROLL for (int q = 0; q < 2; q++) {
				int t = i + 16 * p, column = j + 16 * q;
				if (t < count && column < wide)
					d.y[(token + t) * d.ys + channel + column] = y[p][q];
			}
		float last = math::decay((float)now.log[chunk - 1]);
		auto decay = [&](int k) ALWAYS_INLINE { return Rows ? whole4(m.last + k) : f32x4(last); };
		carry(s, stride, decay, m.x, now.tail, rows.tails, count);
		sync(); // the keys are read no more; the state is there
		fetch_rows(keys, d.k + group, d.ks, at + step);
	}
	for (int i = warp(); i < d.n; i += 8)
		if (lane() < wide)
			narrow(state[(i64)i * d.size + lane()], s[lane() * stride + i]);
}

// For heads with one decay, and for those with one for each row, of up to most_rows.
KERNEL THREADS_BLOCKS(256, 2) delta_scan_chunks(Delta d) { scan_chunks<false>(d); }
KERNEL THREADS_BLOCKS(256, 2) delta_scan_chunks_rows(Delta d) { scan_chunks<true>(d); }

// What delta_states takes: states before parts [part, head, n, size], what parts leave of a state
// [part, head, n, n], and what they add.
struct DeltaStates {
	float *before;
	const float *left, *u;
	kept *state;
	const int *seg;
	i64 bs, ls, us, hs;
	int seqs, parts, n, size;
	int vec; // rows of what is left are aligned
};

// Rows of a state that a warp of delta_states has at a time.
const int passed_rows = 8;

// Adds rows of a matrix times a state in shared memory to a lane's column; each is how many numbers
// of a row a load has.
template <int each>
DEVICE void add_product(float (&sum)[passed_rows], const float *left, int n, int row, const float *state) {
	for (int k = 0; k < n; k += each) {
		float old[each];
		UNROLL for (int e = 0; e < each; e++) old[e] = state[(k + e) * 32 + lane()];
		UNROLL for (int i = 0; i < passed_rows; i++) {
			f32x4 m = load4(left + (i64)min(row + i, n - 1) * n + k, each, each == 4);
			UNROLL for (int e = 0; e < each; e++) sum[i] = fma(m[e], old[e], sum[i]);
		}
	}
}

// Passes states from part to part, S = M S + u. Shared memory has 32 columns of the state before a
// part and of that after it. Blocks are (sequences, heads, size / 32), of up to 8 warps.
KERNEL THREADS(256) delta_states(DeltaStates d) {
	Passing p = passing(d.seg, d.seqs, d.parts);
	int column = block_z() * 32 + lane();
	i64 at = (i64)block_y() * d.n * d.size + column;
	float *now = (float *)shared_memory, *next = now + d.n * 32;
	kept *state = d.state + p.slot * d.hs + at;
	auto each_row = [&](auto f) ALWAYS_INLINE { // of the warp's; it puts and takes its own
		for (int row = passed_rows * warp(); row < d.n; row += passed_rows * (threads() / 32))
			for (int i = row; i < min(row + passed_rows, d.n) && column < d.size; i++)
				f(i, (i64)i * d.size);
	};
	each_row([&](int i, i64 to) ALWAYS_INLINE { now[i * 32 + lane()] = widen(state[to]); });
	for (int part = 0; part < d.parts; part++) {
		i64 of = row_of(p, part);
		each_row([&](int i, i64 to) ALWAYS_INLINE { d.before[of * d.bs + at + to] = now[i * 32 + lane()]; });
		if (tokens_of(p, part) == 0)
			continue; // its row says nothing
		sync(); // the state is there, and the one before it is read no more
		const float *left = d.left + of * d.ls + (i64)block_y() * d.n * d.n, *u = d.u + of * d.us + at;
		const int rows_down = passed_rows * (threads() / 32);
		NO_UNROLL for (int row = passed_rows * warp(); row < d.n && column < d.size; row += rows_down) {
			float sum[passed_rows];
			UNROLL for (int i = 0; i < passed_rows; i++) sum[i] = u[(i64)min(row + i, d.n - 1) * d.size];
			if (d.vec)
				add_product<4>(sum, left, d.n, row, now);
			else
				add_product<1>(sum, left, d.n, row, now);
			UNROLL for (int i = 0; i < passed_rows; i++) if (row + i < d.n) next[(row + i) * 32 + lane()] = sum[i];
		}
		float *old = now;
		now = next, next = old;
	}
	each_row([&](int i, i64 to) ALWAYS_INLINE { narrow(state[to], now[i * 32 + lane()]); });
}

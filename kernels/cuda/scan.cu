// The selective scan h = exp(dt A) h + dt u B, y = Σ_n h C (Gu and Dao 2023,
// eq. 2), per channel. Four lanes share a channel: of every 16 states, a lane
// has 4 neighbours. Both kernels do the same operations in the same order, so
// that how a prompt is cut changes no bit of a state in f32. FORMAT is that in which the
// state is kept: it is rounded when it is stored, and so at the end of a segment only. For whole
// segments of up to 16 states, u, z and y may all be in bf16.
// Formats: f32 bf16
#include "parts.h"
#include "pieces.h"

typedef FORMAT kept;

DEVICE float squares(f32x4 v) {
	float sum = 0;
	UNROLL for (int k = 0; k < 4; k++) sum = fma(v[k], v[k], sum);
	return sum;
}

DEVICE f32x4 rates(f32x4 a) {
	UNROLL for (int k = 0; k < 4; k++) a[k] = math::rate(a[k]);
	return a;
}

// One token of 4 states: the decays are those of dt A.
DEVICE f32x4 step(f32x4 h, f32x4 rate, f32x4 b, float dt, float x) {
	UNROLL for (int k = 0; k < 4; k++) h[k] = fma(math::decay(dt * rate[k]), h[k], x * b[k]);
	return h;
}

// The same; gives what is added to y.
DEVICE float recur(f32x4 &h, f32x4 rate, f32x4 b, f32x4 c, float dt, float x, float sum) {
	h = step(h, rate, b, dt, x);
	UNROLL for (int k = 0; k < 4; k++) sum = fma(h[k], c[k], sum);
	return sum;
}

// What is done around the scan where it is fused with that: steps are softplus(dt + bias),
// and what is put out is silu(z) · (y + u d). Without a bias, nothing.
template <class V> struct Gate {
	const float *bias, *d;
	const V *z;
	i64 zs;

	// A channel's numbers.
	struct Channel {
		bool on;
		float bias, d;

		__attribute__((device)) float step(float dt) const { return on ? math::softplus(dt + bias) : dt; }
		__attribute__((device)) float out(float y, float u, float z) const {
			return on ? math::silu(z) * (y + u * d) : y;
		}
	};
	__attribute__((device)) Channel channel(int ch) const {
		return bias ? Channel{true, bias[ch], d ? d[ch] : 0} : Channel{};
	}
	__attribute__((device)) float factor(i64 t, int ch) const { return bias ? widen(z[t * zs + ch]) : 0; }
};

// The sum over the four lanes of a channel, on each of them.
DEVICE float quad_sum(float v) {
	v += from_lane_xor(v, 2);
	return v + from_lane_xor(v, 1);
}

// The sum over the four lanes of a channel of each of 4 numbers: lane l gets that of number l.
DEVICE float quad_sums(float (&v)[4]) {
	bool upper = lane() & 2, odd = lane() & 1;
	UNROLL for (int i = 0; i < 2; i++)
		v[i] = pick(upper, v[i + 2], v[i]) + from_lane_xor(pick(upper, v[i], v[i + 2]), 2);
	return pick(odd, v[1], v[0]) + from_lane_xor(pick(odd, v[0], v[1]), 1);
}

// The value of one of a channel's lanes.
DEVICE float of_quad(float v, int at) { return float_of(from_lane(bits_of(v), (lane() & ~3) | at)); }

// The norms of what all channels share, where they are fused with the scan: of x, of which
// steps are the product, and of B and C; without a weight where that is null.
struct Norms {
	const float *x, *b, *c;
	float eps;
	int on;

	// Four at k of a row of n, which the four lanes of a channel have.
	__attribute__((device)) f32x4 normed(f32x4 v, const float *weight, int k, int n, bool vec) const {
		if (!on)
			return v;
		v *= inverse_rms(quad_sum(squares(v)), n, eps);
		return weight ? v * load4(weight + k, n - k, vec) : v;
	}
};

struct Shared {
	Groups groups;
	Norms norms;
};

// The sequence's tokens one by one, with the state in memory, in f32 if there are several tokens:
// for states that are too many for registers, or not aligned. y may lie over dt. Four lanes have a
// channel. Blocks of 128 threads are (sequences, channels / 32).
KERNEL THREADS(128) selective_scan_steps(float *y, i64 ys, const float *__restrict__ u, i64 us, const float *dt, i64 ds,
		const float *__restrict__ a, i64 as, const float *__restrict__ b, i64 bs, const float *__restrict__ c, i64 cs,
		kept *state, i64 hs, const int *__restrict__ seg, int cols, int n, int vec, const float *bias,
		const float *skip, const float *z, i64 zs, Groups groups) {
	int ch = block_y() * 32 + thread() / 4, part = 4 * (thread() % 4);
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	int held = min(ch, cols - 1); // all lanes take part in the sums
	int g = group_of(groups, held) * n;
	Gate<float> gate{bias, skip, z, zs};
	auto own = gate.channel(held);
	kept *h = state + slot * hs + (i64)held * n;
	for (i64 t = first; t < first + tokens; t++) {
		float d = of_quad(ch < cols && part == 0 ? dt[t * ds + ch] : 0, 0); // by the lane that writes y
		float in = u[t * us + held], sum = 0;
		d = own.step(d);
		for (int k = part; k < n && ch < cols; k += 16) {
			f32x4 rate = rates(load4(a + held * as + k, n - k, vec)), v = load4(h + k, n - k, vec);
			sum = recur(v, rate, load4(b + t * bs + g + k, n - k, vec), load4(c + t * cs + g + k, n - k, vec), d,
					d * in, sum);
			store4(h + k, v, n - k, vec);
		}
		sum = quad_sum(sum);
		if (ch < cols && part == 0)
			y[t * ys + ch] = own.out(sum, in, gate.factor(t, ch));
	}
}

// Four of a state as they are in memory, so that the load need not have arrived.
template <class T> struct Four {
	u32x2 v;
	__attribute__((device)) f32x4 widened() const { return whole4((const T *)&v); }
};
template <> struct Four<float> {
	f32x4 v;
	__attribute__((device)) f32x4 widened() const { return v; }
};

// Loads four states, of which the first left exist: with Vec all do, and are aligned.
template <bool Vec> DEVICE void load_four(Four<float> &to, const float *p, int left, bool vec) {
	to.v = Vec ? whole4(p) : load4(p, left, vec);
}
template <bool Vec> DEVICE void load_four(Four<bf16> &to, const bf16 *p, int left, bool vec) {
	if (Vec || (vec && left >= 4))
		to.v = *(const u32x2 *)p;
	else
		UNROLL for (int i = 0; i < 4; i++) if (i < left) to.v[i / 2] |= (u32)p[i].bits << 16 * (i % 2);
}

// One token of each of Each sequences, 1 or 4, of up to 16 states a channel. All loads but those of
// segments are issued before the first is waited for. Four lanes have a channel; of 4 sequences,
// each lane has the step, the input and the result of one. step(t, ch, mine) is a token's step, on
// lanes where mine is true. For 4 sequences, states must be in aligned fours. Blocks of 128 threads
// are (sequences / Each, channels / 32).
template <int Each, class Step>
DEVICE void scan_each(float *y, i64 ys, const float *u, i64 us, const float *a, i64 as, const float *b, i64 bs,
		const float *c, i64 cs, kept *state, i64 hs, const int *seg, int seqs, int cols, int n, int vec, Groups groups,
		Gate<float> gate, Norms norms, Step step) {
	const bool whole = Each > 1;
	int ch = block_y() * 32 + thread() / 4, held = min(ch, cols - 1); // all lanes take part in the sums
	int quarter = thread() % 4, k = 4 * quarter, left = ch < cols ? n - k : 0;
	int row[Each], tokens[Each], slot[Each];
	UNROLL for (int j = 0; j < Each; j++) {
		const int *of = seg + 3 * min(block_x() * Each + j, seqs - 1);
		row[j] = of[0], tokens[j] = of[1], slot[j] = of[2];
	}
	int shared = group_of(groups, held) * n + k;
	Four<kept> old[Each] = {};
	f32x4 rate = 0, in_b[Each], in_c[Each];
	kept *h[Each];
	bool own = false;
	i64 t = 0;
	UNROLL for (int j = 0; j < Each; j++) {
		bool live = block_x() * Each + j < seqs && tokens[j] > 0;
		const float *from_b = b + row[j] * bs + shared, *from_c = c + row[j] * cs + shared;
		h[j] = state + slot[j] * hs + (i64)held * n + k;
		in_b[j] = in_c[j] = 0;
		tokens[j] = live ? left : 0;
		if (tokens[j] > 0) {
			load_four<whole>(old[j], h[j], left, vec);
			in_b[j] = whole ? whole4(from_b) : load4(from_b, left, vec);
			in_c[j] = whole ? whole4(from_c) : load4(from_c, left, vec);
		}
		if (live && (Each == 1 || j == quarter))
			t = row[j], own = true;
	}
	if (Each == 1 && !own)
		return;
	if (left > 0)
		rate = whole ? whole4(a + held * as + k) : load4(a + held * as + k, left, vec);
	auto around = gate.channel(held);
	float in = own ? u[t * us + held] : 0, factor = own ? gate.factor(t, held) : 0;
	float d = around.step(step(t, held, own && ch < cols));
	float x = d * in, sums[Each];
	rate = rates(rate);
	UNROLL for (int j = 0; j < Each; j++) {
		f32x4 v = old[j].widened();
		sums[j] = recur(v, rate, norms.normed(in_b[j], norms.b, k, n, vec), norms.normed(in_c[j], norms.c, k, n, vec),
				Each > 1 ? of_quad(d, j) : d, Each > 1 ? of_quad(x, j) : x, 0);
		if (tokens[j] > 0)
			store4(h[j], v, whole ? 4 : left, whole || vec);
	}
	float sum;
	if constexpr (Each > 1)
		sum = quad_sums(sums);
	else
		sum = quad_sum(sums[0]);
	if (own && ch < cols && (Each > 1 || quarter == 0))
		y[t * ys + ch] = around.out(sum, in, factor);
}

// y may lie over dt. States are aligned fours.
KERNEL THREADS_BLOCKS(128, 5) selective_scan_each(float *y, i64 ys, const float *__restrict__ u, i64 us,
		const float *dt, i64 ds, const float *__restrict__ a, i64 as, const float *__restrict__ b, i64 bs,
		const float *__restrict__ c, i64 cs, kept *state, i64 hs, const int *__restrict__ seg, int cols, int n, int vec,
		const float *bias, const float *skip, const float *z, i64 zs, int seqs, Groups groups) {
	scan_each<4>(y, ys, u, us, a, as, b, bs, c, cs, state, hs, seg, seqs, cols, n, vec, groups,
			Gate<float>{bias, skip, z, zs}, Norms{},
			[=](i64 t, int ch, bool mine) { return mine ? dt[t * ds + ch] : 0; });
}

// A lane's part of x wᵀ, of depth terms: a channel's lanes take eights of them in turn. With
// Weighted, x is times the weight of its norm.
template <bool Weighted, class T> DEVICE float terms(const float *x, const float *weight, const T *w, int depth,
		int vec) {
	const int ahead = Weighted ? 2 : sizeof(T) == 4 ? 3 : 5; // loads in flight
	float sum = 0;
	int j = 8 * (thread() % 4);
	for (; vec && j + 8 <= depth; j += ahead * 32) {
		Raw<float> in[ahead];
		Raw<T> raw[ahead];
		UNROLL for (int p = 0; p < ahead; p++) {
			int at = j + 32 * p, left = at + 8 <= depth ? 8 : 0;
			load_raw(raw[p], w + at, left);
			load_raw(in[p], x + at, left);
		}
		UNROLL for (int p = 0; p < ahead; p++) {
			Eight a = widen(in[p]), b = widen(raw[p]);
			if (Weighted && j + 32 * p + 8 <= depth) {
				Eight g = whole8(weight + j + 32 * p);
				UNROLL for (int i = 0; i < 8; i++) a.v[i] *= g.v[i];
			}
			UNROLL for (int i = 0; i < 8; i++) sum = fma(a.v[i], b.v[i], sum);
		}
	}
	if (vec)
		j = depth % 8 && thread() % 4 == depth / 8 % 4 ? depth / 8 * 8 : depth;
	for (; j < depth; j += 32)
		NO_UNROLL for (int i = j; i < min(j + 8, depth); i++)
			sum = fma(Weighted ? x[i] * weight[i] : x[i], widen(w[i]), sum);
	return sum;
}

// The product that steps come from, x wᵀ, x normed first if norms are on.
template <class T>
DEVICE float projected(const float *x, const T *w, int depth, int vec, Norms norms) {
	float sum = quad_sum(norms.x ? terms<true>(x, norms.x, w, depth, vec) : terms<false>(x, nullptr, w, depth, vec));
	if (!norms.on)
		return sum;
	float own = 0;
	NO_UNROLL for (int i = 4 * lane(); i < depth; i += 128) own += squares(load4(x + i, depth - i, vec));
	return sum * inverse_rms(warp_sum(own), depth, norms.eps);
}

#define TOKEN(T) \
	KERNEL THREADS_BLOCKS(128, 4) selective_scan_token_##T(float *y, i64 ys, const float *__restrict__ u, i64 us, \
			const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int depth, int vec_product, \
			const float *__restrict__ a, i64 as, const float *__restrict__ b, i64 bs, const float *__restrict__ c, \
			i64 cs, kept *state, i64 hs, const int *__restrict__ seg, int cols, int n, int vec, const float *bias, \
			const float *skip, const float *z, i64 zs, int seqs, Shared shared) { \
		scan_each<1>(y, ys, u, us, a, as, b, bs, c, cs, state, hs, seg, seqs, cols, n, vec, shared.groups, \
				Gate<float>{bias, skip, z, zs}, shared.norms, [=](i64 t, int ch, bool) { \
					return projected(x + t * xs, w + ch * ws, depth, vec_product, shared.norms); \
				}); \
	}

TOKEN(f32)
TOKEN(f16)
TOKEN(bf16)

// Tokens and channels that a block has at a time. While it computes one chunk,
// the next comes to shared memory.
const int chunk_tokens = 32, chunk_channels = 32;

// What a chunk is in shared memory: Sixteens · 16 states, the last ones 0; without C
// where nothing is put out.
template <int Sixteens, class V, bool Ends> struct alignas(16) Chunk {
	V u[chunk_tokens][chunk_channels];
	float dt[chunk_tokens][chunk_channels];
	float b[chunk_tokens][16 * Sixteens], c[Ends ? 1 : chunk_tokens][Ends ? 4 : 16 * Sixteens];
};

DEVICE void fetch_one(float *to, const float *from) { copy_async(to, from); }
DEVICE void fetch_one(bf16 *to, const bf16 *from) { *to = *from; }

// Copies the part of rows that lies in a chunk, 16 bytes at a time where rows are
// aligned to them.
template <int Cols, class V> DEVICE void fetch(V (*to)[Cols], const V *from, i64 stride, int rows, int cols) {
	const int each = 16 / sizeof(V), per_row = Cols / each, apart = 128 / per_row;
	int row = thread() / per_row, k = thread() % per_row * each;
	from += row * stride + k;
	bool whole = (u64)from % 16 == 0 && stride % each == 0 && k + each <= cols;
	UNROLL for (int i = 0; i < chunk_tokens / apart; i++, row += apart, from += apart * stride) {
		if (row < rows && whole)
			copy_async_16(&to[row][k], from);
		else if (row < rows)
			NO_UNROLL for (int e = 0; e < min(each, cols - k); e++) fetch_one(&to[row][k + e], from + e);
	}
}

const int piece_tokens = 128; // of a piece of a segment

// Parts of segments: the state stays in registers, B and C are shared by the
// channels of a block, which are of one group. Blocks of 128 threads are
// (sequences or pieces, groups · each / 32).
template <int Sixteens, class V, bool Ends>
DEVICE void scan_chunks(Span span, V *y, i64 ys, const V *u, i64 us, const float *dt, i64 ds, const float *a, i64 as,
		const float *b, i64 bs, const float *c, i64 cs, kept *state, i64 hs, float *sums, int cols, int n, int vec,
		Groups groups, Gate<V> gate) {
	SHARED static Chunk<Sixteens, V, Ends> chunks[2];
	int per_group = ceil_div(groups.each, chunk_channels), group = block_y() / per_group;
	int from = (group + groups.skip) * groups.each - groups.first; // the group's first channel
	int last = min(from + groups.each, cols);
	from = max(from, 0) + block_y() % per_group * chunk_channels;
	int first = span.first, tokens = span.tokens;
	if (from >= last || tokens < 1 || (Ends && span.last))
		return;
	int wide = min(chunk_channels, last - from), own = thread() / 4, part = 4 * (thread() % 4);
	int ch = from + min(own, wide - 1); // all lanes take part in the sums
	auto fetch_chunk = [&](int at) {
		Chunk<Sixteens, V, Ends> &to = chunks[at / chunk_tokens % 2];
		i64 row = first + at;
		int rows = min(chunk_tokens, tokens - at);
		fetch(to.u, u + row * us + from, us, rows, wide);
		fetch(to.dt, dt + row * ds + from, ds, rows, wide);
		fetch(to.b, b + row * bs + (i64)group * n, bs, rows, n);
		if constexpr (!Ends)
			fetch(to.c, c + row * cs + (i64)group * n, cs, rows, n);
		end_group();
	};
	if (n < 16 * Sixteens)
		NO_UNROLL for (int i = thread(); i < 2 * chunk_tokens * 16 * Sixteens; i += 128) {
			int k = i % (16 * Sixteens), row = i / (16 * Sixteens);
			if (k >= n) {
				chunks[row % 2].b[row / 2][k] = 0;
				if constexpr (!Ends)
					chunks[row % 2].c[row / 2][k] = 0;
			}
		}
	f32x4 h[Sixteens], rate[Sixteens];
	kept *held = state + span.slot * hs + (i64)ch * n;
	float *begin = span.state + (i64)ch * n;
	UNROLL for (int i = 0; i < Sixteens; i++) {
		int k = part + 16 * i;
		if (Ends)
			h[i] = 0;
		else
			h[i] = span.state ? load4(begin + k, n - k, vec) : load4(held + k, n - k, vec);
		rate[i] = rates(load4(a + ch * as + k, n - k, vec));
	}
	auto around = gate.channel(ch);
	float of_lane = around.on ? gate.bias[from + min(lane(), wide - 1)] : 0, steps = 0;
	int quarter = thread() % 4; // of four tokens, this lane's
	V *out = y + (first + quarter) * ys + ch;
	const V *factors = gate.z + (first + quarter) * gate.zs + ch;
	auto factor = [&](int at) { return at < tokens && around.on && !Ends ? factors[(at - quarter) * gate.zs] : V{}; };
	V next = factor(quarter); // on its way while the four tokens before are computed
	fetch_chunk(0);
	for (int at = 0; at < tokens; at += chunk_tokens) {
		if (at + chunk_tokens < tokens)
			fetch_chunk(at + chunk_tokens);
		else
			end_group();
		wait_groups<1>();
		sync();
		Chunk<Sixteens, V, Ends> &now = chunks[at / chunk_tokens % 2];
		int count = min(chunk_tokens, tokens - at);
		if (around.on) {
			if (lane() < wide)
				UNROLL_4 for (int t = warp(); t < count; t += 4)
					now.dt[t][lane()] = math::softplus(now.dt[t][lane()] + of_lane);
			sync();
		}
		auto token = [&](int t) {
			float d = now.dt[t][ch - from], x = d * widen(now.u[t][ch - from]), sum = 0;
			if constexpr (Ends) {
				steps += d;
				UNROLL for (int i = 0; i < Sixteens; i++)
					h[i] = step(h[i], rate[i], whole4(&now.b[t][part + 16 * i]), d, x);
			} else
				UNROLL for (int i = 0; i < Sixteens; i++)
					sum = recur(h[i], rate[i], whole4(&now.b[t][part + 16 * i]), whole4(&now.c[t][part + 16 * i]), d, x,
							sum);
			return sum;
		};
		for (int t = 0; t < count; t += 4) {
			float sums[4];
			if (t + 4 <= count) {
				UNROLL for (int j = 0; j < 4; j++) sums[j] = token(t + j);
			} else {
				UNROLL for (int j = 0; j < 4; j++) sums[j] = t + j < count ? token(t + j) : 0;
			}
			if constexpr (Ends)
				continue;
			float sum = quad_sums(sums);
			int mine = t + quarter;
			V z = next;
			next = factor(at + mine + 4);
			if (own < wide && mine < count)
				narrow(out[(i64)(at + t) * ys], around.out(sum, widen(now.u[mine][ch - from]), widen(z)));
		}
		sync(); // the next but one overwrites this
	}
	if (own >= wide)
		return;
	UNROLL for (int i = 0; i < Sixteens; i++) {
		int k = part + 16 * i;
		if (Ends)
			store4(begin + k, h[i], n - k, vec);
		else if (span.last)
			store4(held + k, h[i], n - k, vec);
	}
	if (Ends && part == 0)
		sums[(i64)block_x() * cols + ch] = steps;
}

#define SCAN(name, sixteens, V, threads) \
	KERNEL threads selective_scan_##name(V *__restrict__ y, i64 ys, const V *__restrict__ u, i64 us, \
			const float *__restrict__ dt, i64 ds, const float *__restrict__ a, i64 as, const float *__restrict__ b, \
			i64 bs, const float *__restrict__ c, i64 cs, kept *state, i64 hs, const int *__restrict__ seg, int cols, \
			int n, int vec, const float *bias, const float *skip, const V *z, i64 zs, float *starts, int seqs, \
			Groups groups) { \
		scan_chunks<sixteens, V, false>(span_of<false>(seg, seqs, piece_tokens, starts, (i64)cols * n), y, ys, u, us, \
				dt, ds, a, as, b, bs, c, cs, state, hs, nullptr, cols, n, vec, groups, Gate<V>{bias, skip, z, zs}); \
	}

SCAN(16, 1, float, THREADS_BLOCKS(128, 6)) // as of activations in bf16
SCAN(32, 2, float, THREADS_BLOCKS(128, 3)) // of which shared memory has room for no more on 8.6
SCAN(64, 4, float, THREADS(128))
SCAN(16_bf16, 1, bf16, THREADS_BLOCKS(128, 6)) // one more, which shared memory has room for, spills

#define ENDS(name, V) \
	KERNEL THREADS_BLOCKS(128, 8) selective_scan_ends_##name(float *__restrict__ starts, float *__restrict__ sums, \
			const V *__restrict__ u, i64 us, const float *__restrict__ dt, i64 ds, const float *__restrict__ a, \
			i64 as, const float *__restrict__ b, i64 bs, const int *__restrict__ seg, int seqs, int cols, int n, \
			int vec, const float *__restrict__ bias, Groups groups) { \
		scan_chunks<1, V, true>(span_of<true>(seg, seqs, piece_tokens, starts, (i64)cols * n), (V *)nullptr, 0, u, us, \
				dt, ds, a, as, b, bs, nullptr, 0, nullptr, 0, sums, cols, n, vec, groups, \
				Gate<V>{bias, nullptr, nullptr, 0}); \
	}

ENDS(16, float)
ENDS(16_bf16, bf16)

// From what pieces add, the states with which they begin. One thread per state of a
// channel, in blocks of 128: (sequences, channels · states / 128).
KERNEL THREADS(128) selective_scan_starts(float *starts, const float *__restrict__ sums, const float *__restrict__ a,
		i64 as, const kept *__restrict__ state, i64 hs, const int *__restrict__ seg, int cols, int n) {
	int i = block_y() * 128 + thread(), seq = block_x(), count = ceil_div(seg[3 * seq + 1], piece_tokens);
	if (i >= cols * n || count < 1)
		return;
	i64 piece = pieces_before(seg, seq, piece_tokens);
	int ch = i / n;
	float rate = math::rate(a[ch * as + i % n]);
	sums += piece * cols + ch;
	begin_pieces(starts + piece * cols * n + i, (i64)cols * n, count, widen(state[seg[3 * seq + 2] * hs + i]),
			[&](int at) { return math::decay(sums[(i64)at * cols] * rate); });
}

// Passes states from part to part, h = exp(a Σdt) h + u: before each part it is stored. Columns are
// n to a sum; each has a rate, of which a load has each neighbours (1 or 4), or with each 0 all of
// a sum have one. Blocks are (sequences, columns / 1024).
KERNEL THREADS(256) scan_states(float *__restrict__ before, i64 bs, const float *__restrict__ sums, i64 ss,
		const float *__restrict__ u, i64 us, const float *__restrict__ a, i64 as, int each, kept *state, i64 hs,
		const int *__restrict__ seg, int seqs, int parts, int cols, int n, int vec) {
	each4(cols, [=](i64, int j, int count) {
		Passing p = passing(seg, seqs, parts);
		f32x4 h = load4(state + p.slot * hs + j, count, vec), rate = 0;
		int of[4];
		UNROLL for (int k = 0; k < 4; k++) {
			of[k] = min(j + k, cols - 1) / n;
			if (each < 4)
				rate[k] = a[of[k] * as + min(j + k, cols - 1) % n * each];
		}
		if (each == 4)
			rate = whole4(a + of[0] * as + j % n);
		rate = rates(rate);
		for (int part = 0; part < parts; part++) {
			i64 row = row_of(p, part);
			store4(before + row * bs + j, h, count, vec);
			if (tokens_of(p, part) == 0)
				continue; // its row says nothing
			f32x4 in = load4(u + row * us + j, count, vec);
			UNROLL for (int k = 0; k < 4; k++) h[k] = fma(math::decay(sums[row * ss + of[k]] * rate[k]), h[k], in[k]);
		}
		store4(state + p.slot * hs + j, h, count, vec);
	});
}

// The selective scan h = exp(dt A) h + dt u B, y = Σ_n h C (Gu and Dao 2023, eq. 2), per channel.
// Four lanes share a channel: of every 16 states, a lane has 4 neighbours. In long prompts and of
// many sequences a thread has a whole channel. All kernels do the same operations in the same
// order, so that how a prompt is cut changes no bit of a result or a state in f32: pairs of
// neighbours are added up first, then the quarters of 16 states as lanes do. FORMAT is that in
// which the state is kept: it is rounded when it is stored, and so at the end of a segment only.
// For whole segments of up to 16 states, u, z and y may all be in bf16.
// Formats: f32 bf16
#include "apart.h"
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

// The same; adds what goes to y to the sums of pairs of states.
DEVICE void recur(f32x4 &h, f32x4 rate, f32x4 b, f32x4 c, float dt, float x, float (&sums)[2]) {
	h = step(h, rate, b, dt, x);
	UNROLL for (int k = 0; k < 4; k++) sums[k / 2] = fma(h[k], c[k], sums[k / 2]);
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
DEVICE float quad_sums(const float (&v)[4]) {
	bool upper = lane() & 2, odd = lane() & 1;
	float half[2];
	UNROLL for (int i = 0; i < 2; i++)
		half[i] = pick(upper, v[i + 2], v[i]) + from_lane_xor(pick(upper, v[i], v[i + 2]), 2);
	return pick(odd, half[1], half[0]) + from_lane_xor(pick(odd, half[0], half[1]), 1);
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

// What the kernels of the scan are given. y may lie over dt where each sequence has one token, or
// tokens go one by one.
template <class V> struct Scan {
	V *y;
	i64 ys;
	const V *u;
	i64 us;
	const float *dt;
	i64 ds;
	const float *a;
	i64 as;
	const float *b;
	i64 bs;
	const float *c;
	i64 cs;
	kept *state;
	i64 hs;
	const int *seg;
	int seqs, cols, n, vec;
	Gate<V> gate;
	float *starts, *sums; // states of pieces, and for each channel the sum of its steps; null: no pieces
	Groups groups;
};

// The sequence's tokens one by one, with the state in memory, in f32 if there are several tokens:
// for states that are too many for registers, or not aligned. Four lanes have a channel. Blocks of
// 128 threads are (sequences, channels / 32).
KERNEL THREADS(128) selective_scan_steps(Scan<float> arg) {
	int ch = block_y() * 32 + thread() / 4, part = 4 * (thread() % 4), n = arg.n, vec = arg.vec;
	const int *seg = arg.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	int held = min(ch, arg.cols - 1); // all lanes take part in the sums
	int group = group_of(arg.groups, held) * n;
	bool here = ch < arg.cols;
	auto own = arg.gate.channel(held);
	const float *a = arg.a + held * arg.as;
	kept *h = arg.state + slot * arg.hs + (i64)held * n;
	for (i64 t = first; t < first + tokens; t++) {
		const float *b = arg.b + t * arg.bs + group, *c = arg.c + t * arg.cs + group;
		float d = of_quad(here && part == 0 ? arg.dt[t * arg.ds + ch] : 0, 0); // by the lane that writes y
		float in = arg.u[t * arg.us + held], sums[2] = {};
		d = own.step(d);
		for (int k = part; k < n && here; k += 16) {
			f32x4 rate = rates(load4(a + k, n - k, vec)), v = load4(h + k, n - k, vec);
			recur(v, rate, load4(b + k, n - k, vec), load4(c + k, n - k, vec), d, d * in, sums);
			store4(h + k, v, n - k, vec);
		}
		float sum = quad_sum(sums[0] + sums[1]);
		if (here && part == 0)
			arg.y[t * arg.ys + ch] = own.out(sum, in, arg.gate.factor(t, ch));
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
template <int Each, class Step> DEVICE void scan_each(const Scan<float> &arg, const Norms &norms, Step step) {
	const bool whole = Each > 1;
	int cols = arg.cols, n = arg.n, vec = arg.vec;
	int ch = block_y() * 32 + thread() / 4, held = min(ch, cols - 1); // all lanes take part in the sums
	int quarter = thread() % 4, k = 4 * quarter, left = ch < cols ? n - k : 0;
	int row[Each], tokens[Each], slot[Each];
	UNROLL for (int j = 0; j < Each; j++) {
		const int *of = arg.seg + 3 * min(block_x() * Each + j, arg.seqs - 1);
		row[j] = of[0], tokens[j] = of[1], slot[j] = of[2];
	}
	int shared = group_of(arg.groups, held) * n + k;
	Four<kept> old[Each] = {};
	f32x4 rate = 0, in_b[Each], in_c[Each];
	kept *h[Each];
	bool own = false;
	i64 t = 0;
	UNROLL for (int j = 0; j < Each; j++) {
		bool live = block_x() * Each + j < arg.seqs && tokens[j] > 0;
		const float *from_b = arg.b + row[j] * arg.bs + shared, *from_c = arg.c + row[j] * arg.cs + shared;
		h[j] = arg.state + slot[j] * arg.hs + (i64)held * n + k;
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
	const float *from_a = arg.a + held * arg.as + k;
	if (left > 0)
		rate = whole ? whole4(from_a) : load4(from_a, left, vec);
	auto around = arg.gate.channel(held);
	float in = own ? arg.u[t * arg.us + held] : 0, factor = own ? arg.gate.factor(t, held) : 0;
	float d = around.step(step(t, held, own && ch < cols));
	float x = d * in, sums[Each];
	rate = rates(rate);
	UNROLL for (int j = 0; j < Each; j++) {
		f32x4 v = old[j].widened();
		float pairs[2] = {};
		recur(v, rate, norms.normed(in_b[j], norms.b, k, n, vec), norms.normed(in_c[j], norms.c, k, n, vec),
				Each > 1 ? of_quad(d, j) : d, Each > 1 ? of_quad(x, j) : x, pairs);
		sums[j] = pairs[0] + pairs[1];
		if (tokens[j] > 0)
			store4(h[j], v, whole ? 4 : left, whole || vec);
	}
	float sum;
	if constexpr (Each > 1)
		sum = quad_sums(sums);
	else
		sum = quad_sum(sums[0]);
	if (own && ch < cols && (Each > 1 || quarter == 0))
		arg.y[t * arg.ys + ch] = around.out(sum, in, factor);
}

// States are aligned fours.
KERNEL THREADS_BLOCKS(128, 5) selective_scan_each(Scan<float> arg) {
	scan_each<4>(arg, Norms{}, [=](i64 t, int ch, bool mine) { return mine ? arg.dt[t * arg.ds + ch] : 0; });
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
			Eight v = widen(in[p]), by = widen(raw[p]);
			if (Weighted && j + 32 * p + 8 <= depth) {
				Eight g = whole8(weight + j + 32 * p);
				UNROLL for (int i = 0; i < 8; i++) v.v[i] *= g.v[i];
			}
			UNROLL for (int i = 0; i < 8; i++) sum = fma(v.v[i], by.v[i], sum);
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

// A scan whose steps are a product, and the norms.
template <class T> struct Token {
	Scan<float> scan; // without dt
	const float *x;
	i64 xs;
	const T *w;
	i64 ws;
	int depth, vec;
	Norms norms;
};

#define TOKEN(T) \
	KERNEL THREADS_BLOCKS(128, 4) selective_scan_token_##T(Token<T> arg) { \
		scan_each<1>(arg.scan, arg.norms, [=](i64 t, int ch, bool) { \
			return projected(arg.x + t * arg.xs, arg.w + ch * arg.ws, arg.depth, arg.vec, arg.norms); \
		}); \
	}

TOKEN(f32)
TOKEN(f16)
TOKEN(bf16)

// Tokens of which a block has B and C at a time. While it computes one chunk, the next comes to
// shared memory.
const int chunk_tokens = 32;

// What a chunk is in shared memory: Sixteens · 16 states, the last ones 0; without C
// where nothing is put out.
template <int Sixteens, bool Ends> struct alignas(16) Chunk {
	float b[chunk_tokens][16 * Sixteens], c[Ends ? 1 : chunk_tokens][Ends ? 4 : 16 * Sixteens];
};

// Copies rows of cols columns to a block's chunks, one after the other, 16 bytes at a time where
// rows are aligned to them.
template <int Threads, int Cols> struct Rows {
	static const int per_row = Cols / 4, apart = Threads / per_row;
	const float *from;
	i64 stride;
	int row, k, cols;
	bool whole;

	__attribute__((device)) Rows(const float *p, i64 stride, int cols) : stride(stride), cols(cols) {
		row = thread() / per_row, k = thread() % per_row * 4;
		from = p + row * stride + k;
		whole = (u64)from % 16 == 0 && stride % 4 == 0 && k + 4 <= cols;
	}
	__attribute__((device, always_inline)) void fetch(float (*to)[Cols], int rows) {
		const float *p = from;
		UNROLL for (int r = row; r < row + chunk_tokens; r += apart, p += apart * stride) {
			if (r < rows && whole)
				copy_async_16(&to[r][k], p);
			else if (r < rows)
				NO_UNROLL for (int e = 0; e < min(4, cols - k); e++) copy_async(&to[r][k + e], p + e);
		}
		from += chunk_tokens * stride;
	}
};

// The element t rows behind p, of rows that are that many bytes apart.
template <class T> DEVICE T *in_row(T *p, int t, int bytes) { return (T *)((char *)p + (i64)t * bytes); }
template <class T> DEVICE const T *in_row(const T *p, int t, int bytes) {
	return (const T *)((const char *)p + (i64)t * bytes);
}

const int piece_tokens = 128; // of a piece of a segment

// Parts of segments: the state stays in registers, B and C are shared by the channels of a block,
// which are of one group. A channel has 4 lanes, of blocks of 32 channels; or with up to 16 states
// one, of 64, which takes the fewest instructions, where there are enough threads. Of as many
// tokens as a channel has lanes, each lane makes the step and the result of one. Blocks are
// (sequences or pieces, groups · each / channels). Apart: y is in pieces (apart.cu), ys apart, of
// packed rows.
template <int Lanes, int Sixteens, class V, bool Ends, bool Apart = false> DEVICE void scan_chunks(const Scan<V> &arg) {
	const int threads = Lanes == 1 ? 64 : 128, channels = threads / Lanes;
	const int fours = Lanes == 1 ? 4 : Sixteens, apart = Lanes == 1 ? 4 : 16; // of a lane's states
	SHARED static Chunk<Sixteens, Ends> chunks[2];
	Span span = span_of<Ends>(arg.seg, arg.seqs, piece_tokens, arg.starts, (i64)arg.cols * arg.n);
	int per_group = ceil_div(arg.groups.each, channels), group = block_y() / per_group, n = arg.n;
	int from = (group + arg.groups.skip) * arg.groups.each - arg.groups.first; // the group's first channel
	int last = min(from + arg.groups.each, arg.cols);
	from = max(from, 0) + block_y() % per_group * channels;
	int first = span.first, tokens = span.tokens;
	if (from >= last || tokens < 1 || (Ends && span.last))
		return;
	int at_channel = from + thread() / Lanes, mine = thread() % Lanes, part = 4 * mine;
	int ch = min(at_channel, last - 1); // all lanes take part in the sums
	Rows<threads, 16 * Sixteens> of_b(arg.b + first * arg.bs + (i64)group * n, arg.bs, n);
	Rows<threads, 16 * Sixteens> of_c(arg.c + first * arg.cs + (i64)group * n, arg.cs, n);
	auto fetch_chunk = [&](int at) ALWAYS_INLINE {
		auto &to = chunks[at / chunk_tokens % 2];
		int rows = min(chunk_tokens, tokens - at);
		of_b.fetch(to.b, rows);
		if constexpr (!Ends)
			of_c.fetch(to.c, rows);
		end_group();
	};
	if (n < 16 * Sixteens)
		NO_UNROLL for (int i = thread(); i < 2 * chunk_tokens * 16 * Sixteens; i += threads) {
			int k = i % (16 * Sixteens), row = i / (16 * Sixteens);
			if (k >= n) {
				chunks[row % 2].b[row / 2][k] = 0;
				if constexpr (!Ends)
					chunks[row % 2].c[row / 2][k] = 0;
			}
		}
	f32x4 h[fours], rate[fours];
	kept *state = arg.state + span.slot * arg.hs + (i64)ch * n;
	float *begin = span.state + (i64)ch * n;
	UNROLL for (int i = 0; i < fours; i++) {
		int k = part + apart * i;
		if (Ends)
			h[i] = 0;
		else
			h[i] = span.state ? load4(begin + k, n - k, arg.vec) : load4(state + k, n - k, arg.vec);
		rate[i] = rates(load4(arg.a + ch * arg.as + k, n - k, arg.vec));
	}
	auto around = arg.gate.channel(ch);
	const float *dt = arg.dt + (first + mine) * arg.ds + ch;
	const V *u = arg.u + (first + mine) * arg.us + ch, *z = arg.gate.z + (first + mine) * arg.gate.zs + ch;
	V *y = arg.y + (first + mine) * arg.ys + ch;
	if constexpr (Apart)
		y = (V *)((u16 *)arg.y + (i64)(first + mine) * arg.cols + ch);
	int to_dt = arg.ds * sizeof(float), to_u = arg.us * sizeof(V), to_z = arg.gate.zs * sizeof(V);
	int to_y = Apart ? arg.cols * sizeof(u16) : arg.ys * sizeof(V);
	struct Own {
		float dt;
		V u, z;
	} next = {}, after = {}; // on their way while the tokens before are computed
	auto load = [&](Own &to, int at) ALWAYS_INLINE {
		if (at + mine >= tokens)
			return;
		to.dt = *in_row(dt, at, to_dt);
		to.u = *in_row(u, at, to_u);
		if (!Ends && around.on)
			to.z = *in_row(z, at, to_z);
	};
	auto give = [&](int t, float v) ALWAYS_INLINE {
		V *to = in_row(y, t, to_y);
		if constexpr (Apart)
			UNROLL for (int i = 0; i < pieces; i++) {
				((u16 *)to)[i * arg.ys] = bits_of(v) >> 16;
				v = i == 0 ? rest_of(v) : v - cut_off(v);
			}
		else
			narrow(*to, v);
	};
	float all_steps = 0;
	load(next, 0);
	load(after, Lanes);
	fetch_chunk(0);
	for (int at = 0; at < tokens; at += chunk_tokens) {
		if (at + chunk_tokens < tokens)
			fetch_chunk(at + chunk_tokens);
		else
			end_group();
		wait_groups<1>();
		sync();
		auto &now = chunks[at / chunk_tokens % 2];
		int count = min(chunk_tokens, tokens - at);
		for (int t = 0; t < count; t += Lanes) {
			float d = around.step(next.dt), in = widen(next.u), x = d * in, factor = widen(next.z), sums[Lanes];
			next = after;
			load(after, at + t + 2 * Lanes);
			auto token = [&](int j) ALWAYS_INLINE {
				float dj = Lanes == 1 ? d : of_quad(d, j), xj = Lanes == 1 ? x : of_quad(x, j);
				float pairs[Lanes == 1 ? 4 : 1][2] = {};
				all_steps += Ends ? dj : 0;
				UNROLL for (int i = 0; i < fours; i++) {
					f32x4 b = whole4(&now.b[t + j][part + apart * i]);
					if constexpr (Ends)
						h[i] = step(h[i], rate[i], b, dj, xj);
					else
						recur(h[i], rate[i], b, whole4(&now.c[t + j][part + apart * i]), dj, xj,
								pairs[Lanes == 1 ? i : 0]);
				}
				float quarters[4] = {};
				UNROLL for (int i = 0; i < (Lanes == 1 ? 4 : 1); i++) quarters[i] = pairs[i][0] + pairs[i][1];
				return Lanes == 1 ? (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]) : quarters[0];
			};
			if (t + Lanes <= count) {
				UNROLL for (int j = 0; j < Lanes; j++) sums[j] = token(j);
			} else {
				UNROLL for (int j = 0; j < Lanes; j++) sums[j] = t + j < count ? token(j) : 0;
			}
			if constexpr (Ends)
				continue;
			if constexpr (Lanes > 1)
				sums[0] = quad_sums(sums);
			if (at_channel < last && t + mine < count)
				give(at + t, around.out(sums[0], in, factor));
		}
		sync(); // the next but one overwrites this
	}
	if (at_channel >= last)
		return;
	UNROLL for (int i = 0; i < fours; i++) {
		int k = part + apart * i;
		if (Ends)
			store4(begin + k, h[i], n - k, arg.vec);
		else if (span.last)
			store4(state + k, h[i], n - k, arg.vec);
	}
	if (Ends && part == 0)
		arg.sums[(i64)block_x() * arg.cols + ch] = all_steps;
}

KERNEL THREADS_BLOCKS(128, 5) selective_scan_16(Scan<float> arg) { scan_chunks<4, 1, float, false>(arg); }
KERNEL THREADS_BLOCKS(128, 4) selective_scan_16_bf16(Scan<bf16> arg) { scan_chunks<4, 1, bf16, false>(arg); }
KERNEL THREADS_BLOCKS(128, 5) selective_scan_16_apart(Scan<float> arg) { scan_chunks<4, 1, float, false, true>(arg); }
// Of which shared memory has room for no more on 8.6.
KERNEL THREADS_BLOCKS(128, 3) selective_scan_32(Scan<float> arg) { scan_chunks<4, 2, float, false>(arg); }
KERNEL THREADS_BLOCKS(128, 2) selective_scan_64(Scan<float> arg) { scan_chunks<4, 4, float, false>(arg); }

// By a thread per channel.
KERNEL THREADS_BLOCKS(64, 10) selective_scan_thread_16(Scan<float> arg) { scan_chunks<1, 1, float, false>(arg); }
KERNEL THREADS_BLOCKS(64, 10) selective_scan_thread_16_bf16(Scan<bf16> arg) { scan_chunks<1, 1, bf16, false>(arg); }
KERNEL THREADS_BLOCKS(64, 10) selective_scan_thread_16_apart(Scan<float> arg) {
	scan_chunks<1, 1, float, false, true>(arg);
}

// What pieces but the last of a segment add to its state.
KERNEL THREADS_BLOCKS(64, 12) selective_scan_ends_16(Scan<float> arg) { scan_chunks<1, 1, float, true>(arg); }
KERNEL THREADS_BLOCKS(64, 12) selective_scan_ends_16_bf16(Scan<bf16> arg) { scan_chunks<1, 1, bf16, true>(arg); }

// From what pieces add, the states with which they begin. One thread per state of a
// channel, in blocks of 128: (sequences, channels · states / 128).
KERNEL THREADS(128) selective_scan_starts(Scan<float> arg) {
	int i = block_y() * 128 + thread(), seq = block_x(), count = ceil_div(arg.seg[3 * seq + 1], piece_tokens);
	if (i >= arg.cols * arg.n || count < 1)
		return;
	i64 piece = pieces_before(arg.seg, seq, piece_tokens), all = (i64)arg.cols * arg.n;
	int ch = i / arg.n;
	float rate = math::rate(arg.a[ch * arg.as + i % arg.n]);
	const float *sums = arg.sums + piece * arg.cols + ch;
	begin_pieces(arg.starts + piece * all + i, all, count, widen(arg.state[arg.seg[3 * seq + 2] * arg.hs + i]),
			[&](int at) { return math::decay(sums[(i64)at * arg.cols] * rate); });
}

// Passes states from part to part, h = exp(a Σdt) h + u: before each part it is stored. Columns are
// n to a sum; each has a rate, of which a load has each neighbours (1 or 4), or with each 0 all of
// a sum have one. Blocks are (sequences, columns / 1024).
struct States {
	float *before;
	i64 bs;
	const float *sums;
	i64 ss;
	const float *u;
	i64 us;
	const float *a;
	i64 as;
	int each;
	kept *state;
	i64 hs;
	const int *seg;
	int seqs, parts, cols, n, vec;
};

DEVICE void pass_states(float *__restrict__ before, const float *__restrict__ sums, const float *__restrict__ u,
		const States &arg) {
	each4(arg.cols, [=](i64, int j, int count) {
		Passing p = passing(arg.seg, arg.seqs, arg.parts);
		kept *state = arg.state + p.slot * arg.hs + j;
		f32x4 h = load4(state, count, arg.vec), rate = 0;
		int of[4];
		UNROLL for (int k = 0; k < 4; k++) {
			int column = min(j + k, arg.cols - 1);
			of[k] = column / arg.n;
			if (arg.each < 4)
				rate[k] = arg.a[of[k] * arg.as + column % arg.n * arg.each];
		}
		if (arg.each == 4)
			rate = whole4(arg.a + of[0] * arg.as + j % arg.n);
		rate = rates(rate);
		for (int part = 0; part < arg.parts; part++) {
			i64 row = row_of(p, part);
			store4(before + row * arg.bs + j, h, count, arg.vec);
			if (tokens_of(p, part) == 0)
				continue; // its row says nothing
			f32x4 in = load4(u + row * arg.us + j, count, arg.vec);
			UNROLL for (int k = 0; k < 4; k++)
				h[k] = fma(math::decay(sums[row * arg.ss + of[k]] * rate[k]), h[k], in[k]);
		}
		store4(state, h, count, arg.vec);
	});
}

KERNEL THREADS(256) scan_states(States arg) { pass_states(arg.before, arg.sums, arg.u, arg); }

// The selective scan h = exp(dt A) h + dt u B, y = Σ_n h C (Gu and Dao 2023,
// eq. 2), per channel. Four lanes share a channel: of every 16 states, a lane
// has 4 neighbours. Both kernels do the same operations in the same order, so
// that how a prompt is cut changes no bit of a state in f32. FORMAT is that in which the
// state is kept: it is rounded when it is stored, and so at the end of a segment only. For whole
// segments of up to 16 states, u, z and y may all be in bf16.
// Formats: f32 bf16
#include "krait.h"

typedef FORMAT kept;

DEVICE f32x4 rates(f32x4 a) {
	UNROLL for (int k = 0; k < 4; k++) a[k] = math::rate(a[k]);
	return a;
}

// One token of 4 states: the decays are those of dt A; gives what is added to y.
DEVICE float recur(f32x4 &h, f32x4 rate, f32x4 b, f32x4 c, float dt, float x, float sum) {
	UNROLL for (int k = 0; k < 4; k++) {
		h[k] = fma(math::decay(dt * rate[k]), h[k], x * b[k]);
		sum = fma(h[k], c[k], sum);
	}
	return sum;
}

// What is done around the scan where it is fused with that: steps are softplus(dt + bias),
// and what is put out is silu(z) · (y + u d). Without a bias, nothing.
template <class V> struct Gate {
	const float *bias, *d;
	const V *z;
	i64 zs;

	__attribute__((device)) float step(float dt, int ch) const { return bias ? math::softplus(dt + bias[ch]) : dt; }
	__attribute__((device)) float out(float y, float u, i64 t, int ch) const {
		return bias ? math::silu(widen(z[t * zs + ch])) * (y + u * d[ch]) : y;
	}
};

// The sequence's tokens one by one, with the state in memory: for one token, or
// states that are too many for registers, which the host gives in f32. y may lie over dt. Four
// lanes have a channel; step(t, ch) is its step on all of them. Blocks of
// 128 threads are (sequences, channels / 32).
template <class Step>
DEVICE void scan_steps(float *y, i64 ys, const float *u, i64 us, const float *a, i64 as, const float *b, i64 bs, const float *c, i64 cs, kept *state, i64 hs, const int *seg, int cols, int n, int vec, Groups groups, Gate<float> gate, Step step) {
	int ch = block_y() * 32 + thread() / 4, part = 4 * (thread() % 4);
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	int held = min(ch, cols - 1); // all lanes take part in the sums
	int g = group_of(groups, held) * n;
	kept *h = state + slot * hs + (i64)held * n;
	for (i64 t = first; t < first + tokens; t++) {
		float d = gate.step(step(t, held), held), in = u[t * us + held];
		float x = d * in, sum = 0;
		for (int k = part; k < n && ch < cols; k += 16) {
			f32x4 rate = rates(load4(a + held * as + k, n - k, vec));
			f32x4 v = load4(h + k, n - k, vec);
			sum = recur(v, rate, load4(b + t * bs + g + k, n - k, vec), load4(c + t * cs + g + k, n - k, vec), d, x, sum);
			store4(h + k, v, n - k, vec);
		}
		sum += from_lane_xor(sum, 2);
		sum += from_lane_xor(sum, 1);
		if (ch < cols && part == 0)
			y[t * ys + ch] = gate.out(sum, in, t, ch);
	}
}

KERNEL THREADS(128) selective_scan_steps(float *y, i64 ys, const float *__restrict__ u, i64 us, const float *dt, i64 ds, const float *__restrict__ a, i64 as, const float *__restrict__ b, i64 bs, const float *__restrict__ c, i64 cs, kept *state, i64 hs, const int *__restrict__ seg, int cols, int n, int vec, const float *bias, const float *skip, const float *z, i64 zs, Groups groups) {
	scan_steps(y, ys, u, us, a, as, b, bs, c, cs, state, hs, seg, cols, n, vec, groups, Gate<float>{bias, skip, z, zs}, [=](i64 t, int ch) {
		float d = block_y() * 32 + thread() / 4 < cols && thread() % 4 == 0 ? dt[t * ds + ch] : 0; // by the lane that writes y
		return __builtin_bit_cast(float, from_lane(__builtin_bit_cast(int, d), lane() & ~3));
	});
}

// The same with the product that steps come from: dt = x wᵀ, of depth terms. A channel's
// lanes take eights of them in turn.
template <class T>
DEVICE float projected(const float *x, const T *w, int depth, int vec) {
	const int ahead = 4; // loads under way
	float sum = 0;
	int j = 8 * (thread() % 4);
	if (vec)
		for (; j + 8 <= depth; j += ahead * 32) {
			Raw<T> raw[ahead];
			UNROLL for (int p = 0; p < ahead; p++) if (j + 32 * p + 8 <= depth) load_raw(raw[p], w + j + 32 * p, 8);
			UNROLL for (int p = 0; p < ahead; p++) if (j + 32 * p + 8 <= depth) {
				Eight a = whole8(x + j + 32 * p), b = widen(raw[p]);
				UNROLL for (int i = 0; i < 8; i++) sum = fma(a.v[i], b.v[i], sum);
			}
		}
	if (vec)
		j = depth % 8 && thread() % 4 == depth / 8 % 4 ? depth / 8 * 8 : depth;
	for (; j < depth; j += 32)
		NO_UNROLL for (int i = j; i < min(j + 8, depth); i++) sum = fma(x[i], widen(w[i]), sum);
	sum += from_lane_xor(sum, 2);
	return sum + from_lane_xor(sum, 1);
}

#define TOKEN(T)                                                                                                           \
	KERNEL THREADS_BLOCKS(128, 4) selective_scan_token_##T(float *y, i64 ys, const float *__restrict__ u, i64 us, const float *__restrict__ x, i64 xs, const T *__restrict__ w, i64 ws, int depth, int vec_product, const float *__restrict__ a, i64 as, const float *__restrict__ b, i64 bs, const float *__restrict__ c, i64 cs, kept *state, i64 hs, const int *__restrict__ seg, int cols, int n, int vec, const float *bias, const float *skip, const float *z, i64 zs, Groups groups) { \
		scan_steps(y, ys, u, us, a, as, b, bs, c, cs, state, hs, seg, cols, n, vec, groups, Gate<float>{bias, skip, z, zs}, [=](i64 t, int ch) { return projected(x + t * xs, w + ch * ws, depth, vec_product); }); \
	}

TOKEN(f32)
TOKEN(f16)
TOKEN(bf16)

// Tokens and channels that a block has at a time. While it computes one chunk,
// the next comes to shared memory.
const int chunk_tokens = 32, chunk_channels = 32;

// What a chunk is in shared memory: Sixteens · 16 states, the last ones 0.
template <int Sixteens, class V> struct alignas(16) Chunk {
	V u[chunk_tokens][chunk_channels];
	float dt[chunk_tokens][chunk_channels];
	float b[chunk_tokens][16 * Sixteens], c[chunk_tokens][16 * Sixteens];
};

// Copies the part of rows that lies in a chunk.
template <int Cols> DEVICE void fetch(float (*to)[Cols], const float *from, i64 stride, int rows, int cols) {
	NO_UNROLL for (int i = thread(); i < rows * Cols; i += 128)
		if (i % Cols < cols)
			copy_async(&to[i / Cols][i % Cols], from + i / Cols * stride + i % Cols);
}

// The same by twos, where these are aligned.
template <int Cols> DEVICE void fetch(bf16 (*to)[Cols], const bf16 *from, i64 stride, int rows, int cols) {
	bool twos = (u64)from % 4 == 0 && stride % 2 == 0;
	NO_UNROLL for (int i = thread(); i < rows * Cols / 2; i += 128) {
		int k = i % (Cols / 2) * 2;
		const bf16 *in = from + i / (Cols / 2) * stride + k;
		bf16 *out = &to[i / (Cols / 2)][k];
		if (twos && k + 1 < cols) {
			copy_async((float *)out, (const float *)in);
			continue;
		}
		UNROLL for (int e = 0; e < 2; e++) if (k + e < cols) out[e] = in[e];
	}
}

// The sum over the four lanes of a channel of each of 4 tokens: lane l gets that
// of token l.
DEVICE float quad_sums(float (&v)[4]) {
	bool upper = lane() & 2, odd = lane() & 1;
	UNROLL for (int i = 0; i < 2; i++) v[i] = pick(upper, v[i + 2], v[i]) + from_lane_xor(pick(upper, v[i], v[i + 2]), 2);
	return pick(odd, v[1], v[0]) + from_lane_xor(pick(odd, v[0], v[1]), 1);
}

// Whole segments: the state stays in registers, B and C are shared by the
// channels of a block, which are of one group. Blocks of 128 threads are
// (sequences, groups · each / 32).
template <int Sixteens, class V>
DEVICE void scan_chunks(V *y, i64 ys, const V *u, i64 us, const float *dt, i64 ds, const float *a, i64 as, const float *b, i64 bs, const float *c, i64 cs, kept *state, i64 hs, const int *seg, int cols, int n, int vec, Groups groups, Gate<V> gate) {
	SHARED static Chunk<Sixteens, V> chunks[2];
	int per_group = ceil_div(groups.each, chunk_channels), group = block_y() / per_group;
	int from = (group + groups.skip) * groups.each - groups.first; // the group's first channel
	int last = min(from + groups.each, cols);
	from = max(from, 0) + block_y() % per_group * chunk_channels;
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	if (from >= last || tokens < 1)
		return;
	int wide = min(chunk_channels, last - from), own = thread() / 4, part = 4 * (thread() % 4);
	int ch = from + min(own, wide - 1); // all lanes take part in the sums
	auto fetch_chunk = [&](int at) {
		Chunk<Sixteens, V> &to = chunks[at / chunk_tokens % 2];
		i64 row = first + at;
		int rows = min(chunk_tokens, tokens - at);
		fetch(to.u, u + row * us + from, us, rows, wide);
		fetch(to.dt, dt + row * ds + from, ds, rows, wide);
		fetch(to.b, b + row * bs + (i64)group * n, bs, rows, n);
		fetch(to.c, c + row * cs + (i64)group * n, cs, rows, n);
		end_group();
	};
	NO_UNROLL for (int i = thread(); i < 2 * chunk_tokens * 16 * Sixteens; i += 128) {
		int k = i % (16 * Sixteens), row = i / (16 * Sixteens);
		if (k >= n)
			chunks[row % 2].b[row / 2][k] = chunks[row % 2].c[row / 2][k] = 0;
	}
	f32x4 h[Sixteens], rate[Sixteens];
	kept *held = state + slot * hs + (i64)ch * n;
	UNROLL for (int i = 0; i < Sixteens; i++) {
		int k = part + 16 * i;
		h[i] = load4(held + k, n - k, vec);
		rate[i] = rates(load4(a + ch * as + k, n - k, vec));
	}
	fetch_chunk(0);
	for (int at = 0; at < tokens; at += chunk_tokens) {
		if (at + chunk_tokens < tokens)
			fetch_chunk(at + chunk_tokens);
		else
			end_group();
		wait_groups<1>();
		sync();
		Chunk<Sixteens, V> &now = chunks[at / chunk_tokens % 2];
		int count = min(chunk_tokens, tokens - at);
		if (gate.bias) {
			NO_UNROLL for (int i = thread(); i < count * chunk_channels; i += 128)
				if (int c = i % chunk_channels; c < wide)
					now.dt[i / chunk_channels][c] = gate.step(now.dt[i / chunk_channels][c], from + c);
			sync();
		}
		auto token = [&](int t) {
			float d = now.dt[t][ch - from], x = d * widen(now.u[t][ch - from]), sum = 0;
			UNROLL for (int i = 0; i < Sixteens; i++)
				sum = recur(h[i], rate[i], whole4(&now.b[t][part + 16 * i]), whole4(&now.c[t][part + 16 * i]), d, x, sum);
			return sum;
		};
		for (int t = 0; t < count; t += 4) {
			float sums[4];
			if (t + 4 <= count) {
				UNROLL for (int j = 0; j < 4; j++) sums[j] = token(t + j);
			} else {
				UNROLL for (int j = 0; j < 4; j++) sums[j] = t + j < count ? token(t + j) : 0;
			}
			float sum = quad_sums(sums);
			int at_lane = t + thread() % 4;
			if (own < wide && at_lane < count)
				narrow(y[(i64)(first + at + at_lane) * ys + ch], gate.out(sum, widen(now.u[at_lane][ch - from]), first + at + at_lane, ch));
		}
		sync(); // the next but one overwrites this
	}
	UNROLL for (int i = 0; i < Sixteens; i++) {
		int k = part + 16 * i;
		if (own < wide)
			store4(held + k, h[i], n - k, vec);
	}
}

#define SCAN(name, sixteens, V, threads)                                                                                      \
	KERNEL threads selective_scan_##name(V *__restrict__ y, i64 ys, const V *__restrict__ u, i64 us, const float *__restrict__ dt, i64 ds, const float *__restrict__ a, i64 as, const float *__restrict__ b, i64 bs, const float *__restrict__ c, i64 cs, kept *state, i64 hs, const int *__restrict__ seg, int cols, int n, int vec, const float *bias, const float *skip, const V *z, i64 zs, Groups groups) { \
		scan_chunks<sixteens, V>(y, ys, u, us, dt, ds, a, as, b, bs, c, cs, state, hs, seg, cols, n, vec, groups, Gate<V>{bias, skip, z, zs}); \
	}

SCAN(16, 1, float, THREADS(128))
SCAN(32, 2, float, THREADS_BLOCKS(128, 3)) // of which shared memory has room for no more on 8.6
SCAN(64, 4, float, THREADS(128))
SCAN(16_bf16, 1, bf16, THREADS_BLOCKS(128, 6)) // one more, which shared memory has room for, spills

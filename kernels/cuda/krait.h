// What the kernels share: names for the machine's builtins, loads that take four
// or eight neighbours at a time, sums over lanes and threads, functions of one
// number. Nothing of a CUDA toolkit is used.
//
// Products and sums are fused only where fma is written, so that two kernels
// that share a function give the same bits.
#pragma once

// A kernel of more than eight parameters takes a struct, arg. Its pointers cannot be __restrict__:
// where loads are to run ahead of stores, a function has them as parameters that are.
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static inline __attribute__((device, always_inline))
// Of a lambda, behind its parameters.
#define ALWAYS_INLINE __attribute__((always_inline))
#define SHARED __attribute__((shared))
#define THREADS(n) __attribute__((launch_bounds(n)))
// The same, and how many blocks a multiprocessor is to have room for: what makes
// machine code then takes as many registers as that leaves, where it would put some
// in memory for the sake of more blocks.
#define THREADS_BLOCKS(n, blocks) __attribute__((launch_bounds(n, blocks)))
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define NO_UNROLL _Pragma("nounroll")

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE int lane() { return thread() & 31; }
DEVICE int warp() { return thread() >> 5; }
// The first axis counts rows, sequences or pieces of them: the others have 65535
// blocks at most.
DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE int block_in_yz() { return block_z() * __nvvm_read_ptx_sreg_nctaid_y() + block_y(); } // of 65,535 and more
DEVICE int blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE int blocks_z() { return __nvvm_read_ptx_sreg_nctaid_z(); }
DEVICE void sync() { __syncthreads(); }

DEVICE int min(int a, int b) { return a < b ? a : b; }
DEVICE int max(int a, int b) { return a > b ? a : b; }
DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE int ceil_div(int a, int b) { return (a + b - 1) / b; }
DEVICE u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float float_of(u32 x) { return __builtin_bit_cast(float, x); }

// A choice between values: ?: of array elements would be one between addresses,
// and put the array into local memory.
DEVICE float pick(bool first, float a, float b) { return first ? a : b; }

const u32 all_lanes = 0xffffffff;

DEVICE float from_lane_xor(float v, int mask) { return __nvvm_shfl_sync_bfly_f32(all_lanes, v, mask, 31); }
DEVICE int from_lane(int v, int at) { return __nvvm_shfl_sync_idx_i32(all_lanes, v, at, 31); }

// What lane() - by has; the first lanes keep their own.
DEVICE int from_lane_below(int v, int by) { return __nvvm_shfl_sync_up_i32(all_lanes, v, by, 0); }
DEVICE u64 from_lane_below(u64 v, int by) {
	u32 lo = from_lane_below((int)v, by), hi = from_lane_below((int)(v >> 32), by);
	return (u64)hi << 32 | lo;
}

// The sum of a lane's number and those of the lanes below it.
DEVICE int lanes_through(int v) {
	UNROLL for (int o = 1; o < 32; o *= 2) {
		int below = from_lane_below(v, o);
		if (lane() >= o)
			v += below;
	}
	return v;
}

DEVICE u32 ballot(bool p) { return __nvvm_vote_ballot_sync(all_lanes, p); }

// Makes what the thread has stored visible to threads that see what it does next.
DEVICE void fence() { __nvvm_membar_gl(); }

// Counts up to last and then from 0 again; returns what was there.
DEVICE u32 atomic_inc(u32 *p, u32 last) { return __nvvm_atom_inc_gen_ui(p, last); }

// The storage formats. Weights are widened as they are loaded.
typedef float f32;
struct bf16 {
	u16 bits;
};
struct f16 {
	u16 bits;
};
struct e4m3 {
	unsigned char bits;
};

DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return float_of((u32)x.bits << 16); }
DEVICE float widen(f16 x) {
	float y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
	return y;
}
DEVICE float widen(e4m3 x) { // as f16, of which exponents are 8 more; 0x7f is NaN
	u32 size = x.bits & 0x7f;
	return widen(f16{(u16)((x.bits & 0x80) << 8 | (size == 0x7f ? 0x7fff : size << 7))}) * 256;
}

// To nearest, ties to even. Loops with asm would not be unrolled where their ends are not known.
DEVICE void narrow(float &y, float x) { y = x; }
DEVICE void narrow(bf16 &y, float x) { y.bits = __builtin_bit_cast(u16, __nvvm_f2bf16_rn(x)); }
DEVICE void narrow(e4m3 &y, float x) { // what is beyond 448 is 448
	u32 bits = bits_of(x) & 0x7fffffff;
	float size = float_of(bits);
	if (x != x)
		bits = 0x7f;
	else if (size >= 448)
		bits = 0x7e;
	else if (size < 0x1p-6f) // a multiple of the least
		bits = (u32)__builtin_rintf(size * 0x1p9f);
	else
		bits = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
	y.bits = (bits_of(x) >> 24 & 0x80) | bits;
}
DEVICE void narrow(f16 &y, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

template <class T> DEVICE float rounded(float x) {
	T y;
	narrow(y, x);
	return widen(y);
}

// Two bf16 in a word, the first in the low half.
DEVICE u32 bf16x2(float lo, float hi) {
	u32 y;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}

// Loads and stores of up to 4 neighbours, of which the first n exist. Where vec
// is set, the address of a whole four is a multiple of its size.
DEVICE f32x4 whole4(const float *p) { return *(const f32x4 *)p; }
DEVICE void put4(float *p, f32x4 v) { *(f32x4 *)p = v; }

template <class T> DEVICE f32x4 whole4(const T *p) {
	u32x2 w = *(const u32x2 *)p;
	f32x4 v;
	UNROLL for (int i = 0; i < 4; i++) v[i] = widen(T{(u16)(w[i / 2] >> 16 * (i % 2))});
	return v;
}

DEVICE f32x4 whole4(const e4m3 *p) {
	u32 w = *(const u32 *)p;
	f32x4 v;
	UNROLL for (int i = 0; i < 4; i++) v[i] = widen(e4m3{(unsigned char)(w >> 8 * i)});
	return v;
}

// What is at an address of the device's memory: loads and stores are told that it is there.
template <class T> DEVICE T *at_address(u64 address) { return (T *)(__attribute__((address_space(1))) T *)address; }

template <class T> DEVICE f32x4 load4(const T *p, int n, bool vec) {
	if (vec && n >= 4)
		return whole4(p);
	f32x4 v = 0;
	UNROLL for (int i = 0; i < 4; i++) if (i < n) v[i] = widen(p[i]);
	return v;
}

DEVICE void store4(float *p, f32x4 v, int n, bool vec) {
	if (vec && n >= 4) {
		*(f32x4 *)p = v;
		return;
	}
	UNROLL for (int i = 0; i < 4; i++) if (i < n) p[i] = v[i];
}

template <class T> DEVICE void store4(T *p, f32x4 v, int n, bool vec) {
	T t[4];
	UNROLL for (int i = 0; i < 4; i++) narrow(t[i], v[i]);
	if (vec && n >= 4) {
		if constexpr (sizeof(T) == 1)
			*(u32 *)p = (u32)t[3].bits << 24 | (u32)t[2].bits << 16 | (u32)t[1].bits << 8 | t[0].bits;
		else
			*(u32x2 *)p = u32x2{(u32)t[1].bits << 16 | t[0].bits, (u32)t[3].bits << 16 | t[2].bits};
		return;
	}
	UNROLL for (int i = 0; i < 4; i++) if (i < n) p[i] = t[i];
}

// Eight neighbours: 16 bytes of a short format, 32 of f32.
struct Eight {
	float v[8];
};

DEVICE Eight whole8(const float *p) {
	Eight e;
	f32x4 low = *(const f32x4 *)p, high = *(const f32x4 *)(p + 4);
	UNROLL for (int i = 0; i < 4; i++) e.v[i] = low[i], e.v[i + 4] = high[i];
	return e;
}

template <class T> DEVICE Eight whole8(const T *p) {
	Eight e;
	u32x4 w = *(const u32x4 *)p;
	UNROLL for (int i = 0; i < 8; i++) e.v[i] = widen(T{(u16)(w[i / 2] >> 16 * (i % 2))});
	return e;
}

// Eight neighbours as they are in memory, so that a load need not have arrived
// before it is used. Addresses are aligned, and of n neighbours, where fewer than 8
// are left, there are 4 in f32 or none: the host leaves other shapes to other kernels.
template <class T> struct Raw {
	u32x4 v;
};

template <> struct Raw<float> {
	f32x4 low, high;
};

DEVICE void load_raw(Raw<float> &r, const float *p, int n) {
	r.low = n > 0 ? whole4(p) : 0;
	r.high = n > 4 ? whole4(p + 4) : 0;
}

template <class T> DEVICE void load_raw(Raw<T> &r, const T *p, int n) { r.v = n > 0 ? *(const u32x4 *)p : 0; }

DEVICE Eight widen(Raw<float> r) {
	Eight e;
	UNROLL for (int i = 0; i < 4; i++) e.v[i] = r.low[i], e.v[i + 4] = r.high[i];
	return e;
}

template <class T> DEVICE Eight widen(Raw<T> r) {
	Eight e;
	UNROLL for (int i = 0; i < 8; i++) e.v[i] = widen(T{(u16)(r.v[i / 2] >> 16 * (i % 2))});
	return e;
}

// Where a launch that begins before the one before has ended waits for that: see dependent.go.
DEVICE void await() { asm volatile(".pragma \"await\";" ::: "memory"); }

// Asks for memory to come to the cache that all multiprocessors share, also before await().
template <class T> DEVICE void prefetch(const T *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// The same as load_raw of eight, of weights, which no launch writes, before await().
template <class T> DEVICE void load_early(Raw<T> &r, const T *p) {
	u32 v[4];
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
		: "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
		: "l"(p));
	r.v = u32x4{v[0], v[1], v[2], v[3]};
}

DEVICE void load_early(Raw<float> &r, const float *p) {
	Raw<bf16> low, high;
	load_early(low, (const bf16 *)p);
	load_early(high, (const bf16 *)(p + 4));
	r = Raw<float>{__builtin_bit_cast(f32x4, low.v), __builtin_bit_cast(f32x4, high.v)};
}

// The sum over the lanes of a warp, on each of them.
DEVICE float warp_sum(float v) {
	UNROLL for (int o = 16; o > 0; o /= 2) v += from_lane_xor(v, o);
	return v;
}

DEVICE float warp_max(float v) {
	UNROLL for (int o = 16; o > 0; o /= 2) v = max(v, from_lane_xor(v, o));
	return v;
}

// The warp's sums of N values, N a power of two: lane l gets that of value
// l / (32 / N). Lanes give half of their values away at each step, so that N
// sums cost N shuffles and not 5 N; each sum is added up as by warp_sum.
template <int N> DEVICE float warp_sums(float (&v)[N]) {
	int o = 16;
	UNROLL for (int c = N; c > 1; c /= 2) {
		bool upper = lane() & o;
		UNROLL for (int i = 0; i < c / 2; i++)
			v[i] = pick(upper, v[i + c / 2], v[i]) + from_lane_xor(pick(upper, v[i], v[i + c / 2]), o);
		o /= 2;
	}
	float sum = v[0];
	UNROLL for (int c = N; c < 32; c *= 2) {
		sum += from_lane_xor(sum, o);
		o /= 2;
	}
	return sum;
}

// The sum over the threads of a block, on each of them.
DEVICE float block_sum(float v) {
	SHARED static float sums[32];
	v = warp_sum(v);
	sync(); // sums may be in use
	if (lane() == 0)
		sums[warp()] = v;
	sync();
	return warp_sum(lane() < threads() / 32 ? sums[lane()] : 0);
}

DEVICE float block_max(float v) {
	SHARED static float tops[32];
	v = warp_max(v);
	sync();
	if (lane() == 0)
		tops[warp()] = v;
	sync();
	return warp_max(tops[lane() < threads() / 32 ? lane() : 0]);
}

// A piece of a sequence: tokens of the batch from row first on, of which there
// are tokens, and which are the sequence's tokens from at on in this batch.
struct Piece {
	int seq, slot, first, at, tokens;
};

// Cuts each sequence of the segment table into pieces of size tokens, and finds
// one, counted over the batch; all lanes look. There are at most (t + s (size - 1)) / size.
DEVICE bool find_piece(const int *seg, int seqs, int size, int piece, Piece &p) {
	for (int s0 = 0; s0 < seqs; s0 += 32) {
		int s = s0 + lane();
		int own = s < seqs ? ceil_div(seg[3 * s + 1], size) : 0;
		int upto = lanes_through(own);
		u32 found = ballot(upto > piece);
		if (found) {
			int at = __builtin_ctz(found);
			p.seq = s0 + at;
			p.at = (piece - from_lane(upto - own, at)) * size;
			p.first = seg[3 * p.seq] + p.at;
			p.tokens = min(size, seg[3 * p.seq + 1] - p.at);
			p.slot = seg[3 * p.seq + 2];
			return true;
		}
		piece -= from_lane(upto, 31);
	}
	return false;
}

// Which group of B and C a head of a scan reads: see kernels.GroupsOf.
struct Groups {
	int first, each, skip;
};

DEVICE int group_of(Groups g, int head) { return (g.first + head) / g.each - g.skip; }

// The log2 of a decay as sums of them take it: what is gone after one token is gone,
// and a larger number would take the digits of those of other tokens.
DEVICE double bounded(double log) { return log < -256 ? -256 : log; }

// The address of shared memory as instructions for it want it.
DEVICE u32 shared_address(const void *p) { return (u32)(u64)(__attribute__((address_space(3))) const void *)p; }

// Copies of 4 bytes to shared memory that run on while the thread does other
// things, and waiting for all but the last n groups of them.
DEVICE void copy_async(float *to, const float *from) {
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// The same of 16 bytes, both addresses multiples of that: past the first cache, as what a block
// copies it reads once.
DEVICE void copy_async_16(void *to, const void *from) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// The same of the first bytes, with zeros behind them, to an address of shared memory.
DEVICE void copy_async_16(u32 to, const void *from, int bytes) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

DEVICE void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int n> DEVICE void wait_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); }

namespace math {

const float log2e = 1.44269504088896341f, largest = 3.402823466e38f;

DEVICE float at_most(float x, float most) { return x > most ? most : x; } // NaN stays NaN

DEVICE float sqrt(float x) { return __nvvm_sqrt_rn_f(x); }

// 2^x to 2 units in the last place; results below the normal numbers are 0.
DEVICE float exp2(float x) { return __nvvm_ex2_approx_ftz_f(x); }

// e^x to 2 units in the last place; results below 2^-125 are 0. The range is
// reduced in two steps (Cody and Waite 1980); at the limits the power is 0 or
// infinite.
DEVICE float exp(float x) {
	x = x > 89.2f ? 89.2f : x < -87.5f ? -87.5f : x;
	float n = __builtin_rintf(x * log2e);
	float r = fma(n, -0.693359375f, x);
	r = fma(n, 2.12194440e-4f, r);
	float power = float_of((u32)((int)n + 126) << 23);
	return exp2(r * log2e) * power * 2;
}

DEVICE float silu(float x) { return x / (1 + exp(-x)); }

// The same to about 2^-20, for what is rounded to bf16 on the way in any case.
DEVICE float rough_silu(float x) { return x * __nvvm_rcp_approx_ftz_f(1 + exp2(-x * log2e)); }

DEVICE float relu(float x) { return x < 0 ? 0.f : x; } // NaN stays NaN

DEVICE float relu2(float x) { return relu(x) * relu(x); }

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), the logarithm of 1 + e as
// 2 atanh(e / (2 + e)) by its series, which is exact for small e too.
DEVICE float softplus(float x) {
	float e = exp(-__builtin_fabsf(x));
	float s = e * __nvvm_rcp_approx_ftz_f(2 + e), z = s * s;
	float p = 1.f / 17;
	UNROLL for (int k = 15; k > 0; k -= 2) p = fma(p, z, 1.f / k);
	return max(x, 0.f) + 2 * s * p;
}

// By Lambert's continued fraction near 0, where 1 - e^-2|x| has few digits.
DEVICE float tanh(float x) {
	float size = __builtin_fabsf(x), z = x * x;
	if (size < 0.625f) return x / (1 + z / (3 + z / (5 + z / (7 + z / 9))));
	float e = exp(-2 * size);
	return __builtin_copysignf((1 - e) / (1 + e), x);
}

// x Φ(x), with Φ(-|x|) by formula 7.1.26 of Abramowitz and Stegun (1964).
DEVICE float gelu(float x) {
	float z = __builtin_fabsf(x) * 0.70710678118654752f;
	float t = 1 / fma(0.3275911f, z, 1);
	float p = fma(t, 1.061405429f, -1.453152027f);
	p = fma(t, p, 1.421413741f);
	p = fma(t, p, -0.284496736f);
	p = fma(t, p, 0.254829592f) * t;
	float tail = 0.5f * p * exp(-z * z);
	return x * (x < 0 ? tail : 1 - tail);
}

// 0.5 (1 + tanh u) = 1 / (1 + e^-2u).
DEVICE float gelu_tanh(float x) {
	const float sqrt2_over_pi = 0.79788456080286536f;
	return x / (1 + exp(-2 * sqrt2_over_pi * fma(0.044715f * x * x, x, x)));
}

// The exponential of a decay: x is at most 0, where an error that grows with -x
// is lost in e^x. x comes times log2e, as rates of scans do.
DEVICE float decay(float x) { return exp2(x); }

// The rate of a scan times log2e, which overflows for the largest: a rate of
// -infinity would be a NaN times a step of 0.
DEVICE float rate(float a) { return -at_most(-a * log2e, largest); }

} // namespace math

// A NaN where the sum overflowed: a factor of 0 would hide a wrong norm.
DEVICE float inverse_rms(float sum, float width, float eps) {
	return sum > math::largest ? __builtin_nanf("") : 1 / math::sqrt(sum / width + eps);
}

// Calls f for a thread's four neighbours of a row: blocks are (rows, columns /
// 1024) of 256 threads; j is the first column, n how many there are.
template <class F> DEVICE void each4(int cols, F f) {
	int j = 4 * (block_y() * 256 + thread());
	if (j < cols)
		f((i64)block_x(), j, cols - j);
}

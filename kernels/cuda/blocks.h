// Weights in blocks: formats of which neighbouring elements share scales (graph.Format). They stay
// in their bytes, and are widened in registers to the bits of graph.DType.Decode.
//
// Of the blocks of a line lie first all codes, then what else a block has, part by part, as the
// table planes says (blocks.go): so loads are aligned, and there are no other bytes than in the
// file. A line begins at a multiple of 16 bytes; how many blocks it has, its length says.
#pragma once
#include "krait.h"

#define MEMBER __attribute__((device, always_inline))

template <class T> concept Blocks = T::bytes > 0; // of a block, of T::elems elements

// A row of a weight.
template <class T> struct Row {
	const T *p;

	MEMBER float one(int j) const { return widen(p[j]); }
	MEMBER f32x4 four(int j, int n, bool vec) const { return load4(p + j, n, vec); }
};

template <class T> DEVICE Row<T> row_of(const T *w, i64 index, i64 stride) { return {w + index * stride}; }

// As load_raw, of the elements from j on.
template <class T> DEVICE void load_raw(Raw<T> &r, Row<T> row, int j, int n) { load_raw(r, row.p + j, n); }

// Four bytes as numbers from 0 on, less a bias: 2^23 and a byte are an f32 (no conversion, which
// takes four times as long).
DEVICE float byte_of(u32 bytes, int i, float bias) {
	return float_of(__nvvm_prmt(bytes, 0x4b000000, 0x7440 | i)) - (8388608 + bias);
}

// What is in the bytes of a table of 16, of which each byte of codes is an index.
DEVICE u32 looked_up(u32 codes, u32 t0, u32 t1, u32 t2, u32 t3) {
	u32 at = (codes | codes >> 4) & 0x00ff00ff, upper = (codes >> 3 & 0x01010101) * 0xff;
	at = (at | at >> 8) & 0x7777;
	return (__nvvm_prmt(t0, t1, at) & ~upper) | (__nvvm_prmt(t2, t3, at) & upper);
}

// Of OCP's 8-bit floating point: the bits of a small f32, whose exponent is 120 too low.
DEVICE float e4m3(u32 code) {
	float v = float_of((code & 0x80) << 24 | (code & 0x7f) << 20) * 0x1p120f;
	return (code & 0x7f) == 0x7f ? __builtin_nanf("") : v;
}

DEVICE float half_of(u32 bits) { return widen(f16{(u16)bits}); }

// Where the eight of j are among codes of 4 bits: those of 32 elements have 16 bytes, the lower
// halves those of the first. And what shifts them to the lower halves.
DEVICE int nibbles_at(int j) { return j / 32 * 16 + j % 16; }
DEVICE u32 nibbles(u32 codes, int j) { return codes >> (j & 16) / 4 & 0x0f0f0f0f; }

// The bits i to i + 3, of each byte one, as its bit 4.
DEVICE u32 fifth_bits(u32 bits, int i) {
	bits >>= i;
	return ((bits & 1) | (bits & 2) << 7 | (bits & 4) << 14 | (bits & 8) << 21) << 4;
}

struct None {};

// Eight neighbours from j on, a multiple of 8, as they are in memory: all formats have codes and
// scales, some a second plane with bits of codes.
template <Blocks T> struct Raw<T> {
	int j;
	u32x2 codes;
	typename T::High high;
	typename T::Scale scale;
};

template <Blocks T> DEVICE Eight widen(Raw<T> r) {
	Eight e;
	T::widen(e, r, r.j);
	return e;
}

template <Blocks T> struct Row<T> {
	const T *p;
	int blocks;

	// What is at an offset of the plane that is behind so many bytes of each block.
	template <class V> MEMBER V at(int plane, int offset) const {
		return *(const V *)(p + (i64)plane * blocks + offset);
	}

	MEMBER Raw<T> eight(int j, int n) const {
		Raw<T> r{j};
		if (n > 0)
			T::load(r, *this, j);
		return r;
	}
	MEMBER float one(int j) const {
		Eight e = widen(eight(j / 8 * 8, 8));
		float v = 0;
		UNROLL for (int i = 0; i < 8; i++) v = pick(j % 8 == i, e.v[i], v);
		return v;
	}
	MEMBER f32x4 four(int j, int n, bool) const {
		Eight e = widen(eight(j / 8 * 8, n));
		f32x4 v;
		UNROLL for (int i = 0; i < 4; i++) v[i] = i < n ? pick(j & 4, e.v[i + 4], e.v[i]) : 0;
		return v;
	}
};

template <Blocks T> DEVICE Row<T> row_of(const T *w, i64 index, i64 stride) {
	return {w + index * stride, (int)stride / T::bytes};
}

template <Blocks T> DEVICE void load_raw(Raw<T> &r, Row<T> row, int j, int n) { r = row.eight(j, n); }

// The formats. Each says how many elements and bytes a block has, what it loads of eight
// neighbours, and what they are.

struct q8 {
	static const int elems = 32, bytes = 34;
	using High = None;
	using Scale = u16;
	u8 byte;

	static MEMBER void load(Raw<q8> &r, Row<q8> row, int j) {
		r.codes = row.at<u32x2>(0, j);
		r.scale = row.at<u16>(32, j / 32 * 2);
	}
	static MEMBER void widen(Eight &e, const Raw<q8> &r, int) {
		float d = half_of(r.scale);
		UNROLL for (int i = 0; i < 8; i++) e.v[i] = byte_of(r.codes[i / 4] ^ 0x80808080, i % 4, 128) * d;
	}
};

// Codes of 4 bits, each block with a scale in f16: (code - less) · d.
template <int less> struct Fours {
	static const int elems = 32, bytes = 18;
	using High = None;
	using Scale = u16;
	u8 byte;

	template <class T> static MEMBER void load(Raw<T> &r, Row<T> row, int j) {
		r.codes = row.template at<u32x2>(0, nibbles_at(j));
		r.scale = row.template at<u16>(16, j / 32 * 2);
	}
	template <class T> static MEMBER void widen(Eight &e, const Raw<T> &r, int j) {
		float d = half_of(r.scale);
		UNROLL for (int i = 0; i < 8; i++) e.v[i] = byte_of(nibbles(r.codes[i / 4], j), i % 4, less) * d;
	}
};

struct q4_0 : Fours<8> {};

// The same with a least number, which is added.
struct q4_1 {
	static const int elems = 32, bytes = 20;
	using High = None;
	using Scale = u32;
	u8 byte;

	static MEMBER void load(Raw<q4_1> &r, Row<q4_1> row, int j) {
		r.codes = row.at<u32x2>(0, nibbles_at(j));
		r.scale = row.at<u32>(16, j / 32 * 4);
	}
	static MEMBER void widen(Eight &e, const Raw<q4_1> &r, int j) {
		float d = half_of(r.scale), least = half_of(r.scale >> 16);
		UNROLL for (int i = 0; i < 8; i++) e.v[i] = byte_of(nibbles(r.codes[i / 4], j), i % 4, 0) * d + least;
	}
};

// Codes of 5 bits, of which a word has the fifth.
struct q5_0 {
	static const int elems = 32, bytes = 22;
	using High = u32;
	using Scale = u16;
	u8 byte;

	static MEMBER void load(Raw<q5_0> &r, Row<q5_0> row, int j) {
		r.codes = row.at<u32x2>(0, nibbles_at(j));
		r.high = row.at<u32>(16, j / 32 * 4);
		r.scale = row.at<u16>(20, j / 32 * 2);
	}
	static MEMBER void widen(Eight &e, const Raw<q5_0> &r, int j) {
		float d = half_of(r.scale);
		UNROLL for (int h = 0; h < 2; h++) {
			u32 codes = nibbles(r.codes[h], j) | fifth_bits(r.high, j % 32 + 4 * h);
			UNROLL for (int i = 0; i < 4; i++) e.v[4 * h + i] = byte_of(codes, i, 16) * d;
		}
	}
};

struct q5_1 {
	static const int elems = 32, bytes = 24;
	using High = u32;
	using Scale = u32;
	u8 byte;

	static MEMBER void load(Raw<q5_1> &r, Row<q5_1> row, int j) {
		r.codes = row.at<u32x2>(0, nibbles_at(j));
		r.high = row.at<u32>(16, j / 32 * 4);
		r.scale = row.at<u32>(20, j / 32 * 4);
	}
	static MEMBER void widen(Eight &e, const Raw<q5_1> &r, int j) {
		float d = half_of(r.scale), least = half_of(r.scale >> 16);
		UNROLL for (int h = 0; h < 2; h++) {
			u32 codes = nibbles(r.codes[h], j) | fifth_bits(r.high, j % 32 + 4 * h);
			UNROLL for (int i = 0; i < 4; i++) e.v[4 * h + i] = byte_of(codes, i, 0) * d + least;
		}
	}
};

// Codes of 4 bits that stand for uneven numbers of 8 bits: -127, -104, -83, …, 113, of which 128
// more are in the table.
DEVICE void widen_uneven(Eight &e, u32x2 codes, int j, float d) {
	UNROLL for (int h = 0; h < 2; h++) {
		u32 v = looked_up(nibbles(codes[h], j), 0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5);
		UNROLL for (int i = 0; i < 4; i++) e.v[4 * h + i] = byte_of(v, i, 128) * d;
	}
}

struct iq4_nl : Fours<0> {
	template <class T> static MEMBER void widen(Eight &e, const Raw<T> &r, int j) {
		widen_uneven(e, r.codes, j, half_of(r.scale));
	}
};

// A superblock of such, whose parts of 32 have scales of 6 bits: four bits of each in the upper
// word, two of each in the upper half of the lower.
struct iq4_xs {
	static const int elems = 256, bytes = 136;
	using High = None;
	using Scale = u32x2;
	u8 byte;

	static MEMBER void load(Raw<iq4_xs> &r, Row<iq4_xs> row, int j) {
		r.codes = row.at<u32x2>(0, nibbles_at(j));
		r.scale = row.at<u32x2>(128, j / 256 * 8);
	}
	static MEMBER void widen(Eight &e, const Raw<iq4_xs> &r, int j) {
		int k = j % 256 / 32;
		int scale = (int)((r.scale[1] >> 4 * k & 15) | (r.scale[0] >> (16 + 2 * k) & 3) << 4) - 32;
		widen_uneven(e, r.codes, j, half_of(r.scale[0]) * scale);
	}
};

// The scale and the minimum of part k of a superblock, of which 12 bytes hold 8 each: d, dmin, then
// these.
DEVICE void part_scales(u32x4 head, int k, float &scale, float &least) {
	int at = 8 * (k % 4);
	u32 s = head[1] >> at, m = head[2] >> at;
	if (k >= 4) {
		u32 both = head[3] >> at;
		s = (both & 15) | (s >> 6 & 3) << 4;
		m = (both >> 4 & 15) | (m >> 6 & 3) << 4;
	}
	scale = half_of(head[0]) * (float)(s & 63);
	least = half_of(head[0] >> 16) * (float)(m & 63);
}

struct q4_k {
	static const int elems = 256, bytes = 144;
	using High = None;
	using Scale = u32x4;
	u8 byte;

	static MEMBER void load(Raw<q4_k> &r, Row<q4_k> row, int j) {
		r.codes = row.at<u32x2>(0, j / 64 * 32 + j % 32);
		r.scale = row.at<u32x4>(128, j / 256 * 16);
	}
	static MEMBER void widen(Eight &e, const Raw<q4_k> &r, int j) {
		float scale, least;
		part_scales(r.scale, j % 256 / 32, scale, least);
		UNROLL for (int i = 0; i < 8; i++)
			e.v[i] = byte_of(r.codes[i / 4] >> (j & 32) / 8 & 0x0f0f0f0f, i % 4, 0) * scale - least;
	}
};

struct q5_k {
	static const int elems = 256, bytes = 176;
	using High = u32x2;
	using Scale = u32x4;
	u8 byte;

	static MEMBER void load(Raw<q5_k> &r, Row<q5_k> row, int j) {
		r.codes = row.at<u32x2>(0, j / 64 * 32 + j % 32);
		r.high = row.at<u32x2>(128, j / 256 * 32 + j % 32);
		r.scale = row.at<u32x4>(160, j / 256 * 16);
	}
	static MEMBER void widen(Eight &e, const Raw<q5_k> &r, int j) {
		float scale, least;
		int k = j % 256 / 32;
		part_scales(r.scale, k, scale, least);
		UNROLL for (int h = 0; h < 2; h++) {
			u32 codes = (r.codes[h] >> (j & 32) / 8 & 0x0f0f0f0f) | (r.high[h] >> k & 0x01010101) << 4;
			UNROLL for (int i = 0; i < 4; i++) e.v[4 * h + i] = byte_of(codes, i, 0) * scale - least;
		}
	}
};

// 6 bits, in parts of 16 with a scale of 8 bits each.
struct q6_k {
	static const int elems = 256, bytes = 210;
	using High = u32x2;
	struct Scale {
		u16 d;
		signed char part;
	};
	u8 byte;

	static MEMBER void load(Raw<q6_k> &r, Row<q6_k> row, int j) {
		r.codes = row.at<u32x2>(0, j / 128 * 64 + j % 64);
		r.high = row.at<u32x2>(128, j / 128 * 32 + j % 32);
		r.scale.part = row.at<signed char>(192, j / 16);
		r.scale.d = row.at<u16>(208, j / 256 * 2);
	}
	static MEMBER void widen(Eight &e, const Raw<q6_k> &r, int j) {
		float scale = half_of(r.scale.d) * (float)r.scale.part;
		int k = j % 128 / 32;
		UNROLL for (int h = 0; h < 2; h++) {
			u32 codes = (r.codes[h] >> k / 2 * 4 & 0x0f0f0f0f) | (r.high[h] >> 2 * k & 0x03030303) << 4;
			UNROLL for (int i = 0; i < 4; i++) e.v[4 * h + i] = byte_of(codes, i, 32) * scale;
		}
	}
};

// E4M3 with a scale in f32 for so many.
template <int n> struct Float8 {
	static const int elems = n, bytes = n + 4;
	using High = None;
	using Scale = float;
	u8 byte;

	template <class T> static MEMBER void load(Raw<T> &r, Row<T> row, int j) {
		r.codes = row.template at<u32x2>(0, j);
		r.scale = row.template at<float>(n, j / n * 4);
	}
	template <class T> static MEMBER void widen(Eight &e, const Raw<T> &r, int) {
		UNROLL for (int i = 0; i < 8; i++) e.v[i] = e4m3(r.codes[i / 4] >> 8 * (i % 4) & 0xff) * r.scale;
	}
};

struct fp8_128 : Float8<128> {};
struct fp8_32 : Float8<32> {};

// E2M1: codes that stand for 0, 0.5, 1, 1.5, 2, 3, 4 and 6, and with bit 3 for these below 0. In
// the table they are twice that, and 12 more.
DEVICE void widen_e2m1(Eight &e, u32x2 codes, int j, float scale) {
	UNROLL for (int h = 0; h < 2; h++) {
		u32 v = looked_up(nibbles(codes[h], j), 0x0f0e0d0c, 0x18141210, 0x090a0b0c, 0x00040608);
		UNROLL for (int i = 0; i < 4; i++) e.v[4 * h + i] = byte_of(v, i, 12) * 0.5f * scale;
	}
}

struct nvfp4 {
	static const int elems = 128, bytes = 76;
	using High = None;
	struct Scale {
		float second;
		u8 part;
	};
	u8 byte;

	static MEMBER void load(Raw<nvfp4> &r, Row<nvfp4> row, int j) {
		r.codes = row.at<u32x2>(0, nibbles_at(j));
		r.scale.part = row.at<u8>(64, j / 16);
		r.scale.second = row.at<float>(72, j / 128 * 4);
	}
	static MEMBER void widen(Eight &e, const Raw<nvfp4> &r, int j) {
		widen_e2m1(e, r.codes, j, e4m3(r.scale.part) * r.scale.second);
	}
};

struct mxfp4 {
	static const int elems = 32, bytes = 17;
	using High = None;
	using Scale = u8;
	u8 byte;

	static MEMBER void load(Raw<mxfp4> &r, Row<mxfp4> row, int j) {
		r.codes = row.at<u32x2>(0, nibbles_at(j));
		r.scale = row.at<u8>(16, j / 32);
	}
	// 0 is 2^-127, and 255 NaN.
	static MEMBER void widen(Eight &e, const Raw<mxfp4> &r, int j) {
		widen_e2m1(e, r.codes, j,
				r.scale == 255 ? __builtin_nanf("") : float_of(r.scale ? (u32)r.scale << 23 : 1u << 22));
	}
};

// Codes of 4 bits, of which one stands for 0, with a scale in f32 for so many.
template <int n> struct Int4 {
	static const int elems = n, bytes = n / 2 + 5;
	using High = None;
	struct Scale {
		float d;
		u8 zero;
	};
	u8 byte;

	template <class T> static MEMBER void load(Raw<T> &r, Row<T> row, int j) {
		r.codes = row.template at<u32x2>(0, nibbles_at(j));
		r.scale.d = row.template at<float>(n / 2, j / n * 4);
		r.scale.zero = row.template at<u8>(n / 2 + 4, j / n);
	}
	template <class T> static MEMBER void widen(Eight &e, const Raw<T> &r, int j) {
		float least = (float)r.scale.zero * r.scale.d;
		UNROLL for (int i = 0; i < 8; i++) e.v[i] = byte_of(nibbles(r.codes[i / 4], j), i % 4, 0) * r.scale.d - least;
	}
};

struct int4_128 : Int4<128> {};
struct int4_32 : Int4<32> {};

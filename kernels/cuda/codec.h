// Codes of blocks, as kernels/codec defines them.
#pragma once
#include "krait.h"

typedef unsigned char u8;

enum Kind { int8, int4, e4m3, e5m2, scaled16 }; // in the order of graph.CodecKind

const int scale_bytes = 2;

template <Kind k> DEVICE float largest_code() {
	return k == int8 ? 127.f : k == int4 ? 7.f : k == e4m3 ? 448.f : k == e5m2 ? 57344.f : 65504.f;
}

// Bytes of a block.
template <Kind k> DEVICE int block_bytes(int block) {
	return scale_bytes + (k == int4 ? block / 2 : k == scaled16 ? 2 * block : block);
}

const u16 nan_scale = 0x7fc0;

template <Kind k> DEVICE u16 scale_of(float most) {
	if (!(most <= math::largest))
		return nan_scale;
	u32 bits = bits_of(max(most / largest_code<k>(), 0x1p-126f));
	return k == scaled16 ? ((bits + 0x7fffff) & 0x7f800000) >> 16 : (bits + 0xffff) >> 16;
}

DEVICE int whole(float x, float most) { return (int)__builtin_rintf(x < -most ? -most : x > most ? most : x); }

template <int mantissa, int bias> DEVICE u8 fp8(float x, float most) {
	u32 sign = bits_of(x) >> 24 & 0x80;
	float size = float_of(bits_of(x) & 0x7fffffff);
	size = size > most ? most : size;
	if (size < float_of((128 - bias) << 23)) // a multiple of the least
		return sign | (u32)__builtin_rintf(size * float_of((126 + bias + mantissa) << 23));
	const int shift = 23 - mantissa;
	u32 bits = bits_of(size);
	bits += (1 << (shift - 1)) - 1 + (bits >> shift & 1);
	return sign | (bits >> shift) - ((127 - bias) << mantissa);
}

template <Kind k> DEVICE float decoded(const u8 *block, int at) {
	float scale = widen(*(const bf16 *)block), v;
	const u8 *codes = block + scale_bytes;
	if (k == int8)
		v = (float)(int)(signed char)codes[at];
	else if (k == int4)
		v = (float)((codes[at / 2] >> (at % 2 * 4) & 0xf) - 8);
	else if (k == e4m3) { // as f16, of which exponents are 8 more
		u32 code = codes[at];
		v = widen(f16{(u16)((code & 0x80) << 8 | (code & 0x7f) << 7)}) * 256;
	} else if (k == e5m2)
		v = widen(f16{(u16)(codes[at] << 8)});
	else
		v = widen(((const f16 *)codes)[at]);
	v *= scale;
	if (scale * largest_code<k>() > math::largest) // by rounding
		v = v < -math::largest ? -math::largest : v > math::largest ? math::largest : v;
	return v;
}

#define BY_KIND(kind, f, ...) \
	switch (kind) {                                                                                                    \
	case int8: f<int8>(__VA_ARGS__); break;                                                                            \
	case int4: f<int4>(__VA_ARGS__); break;                                                                            \
	case e4m3: f<e4m3>(__VA_ARGS__); break;                                                                            \
	case e5m2: f<e5m2>(__VA_ARGS__); break;                                                                            \
	default: f<scaled16>(__VA_ARGS__);                                                                                 \
	}

// Numbers of f32 as sums of three bf16.
#pragma once
#include "krait.h"

const int pieces = 3;

// The upper halves of two words: bf16 of the two numbers, cut off.
DEVICE u32 upper_halves(float lo, float hi) { return __nvvm_prmt(bits_of(lo), bits_of(hi), 0x7632); }

DEVICE float cut_off(float v) { return float_of(bits_of(v) & 0xffff0000); }

// Takes four numbers apart: piece 0 has their first 8 bits, and of what is left so on. Infinity is
// in piece 0 alone; what is left of NaN is NaN, wherever its bits are.
DEVICE float rest_of(float v) { return __builtin_fabsf(v) == __builtin_inff() ? 0 : v - cut_off(v); }

DEVICE void take_apart(f32x4 v, u32x2 (&p)[pieces]) {
	UNROLL for (int i = 0; i < pieces; i++) {
		p[i] = u32x2{upper_halves(v[0], v[1]), upper_halves(v[2], v[3])};
		UNROLL for (int e = 0; e < 4; e++) v[e] = i == 0 ? rest_of(v[e]) : v[e] - cut_off(v[e]);
	}
}

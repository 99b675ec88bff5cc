// What the kernels of the scan with one rate per head share.
#pragma once
#include "pieces.h"

// Rows of the scan's operands: x and y [t, head · size], dt [t, head],
// b and c [t, group · n], state [slot, head, size, n], in the format in which it is kept:
// it is rounded when it is stored, and so at the end of a segment only. Activations are in V.
typedef FORMAT kept;

template <class V> struct ScanOf {
	V *y;
	const V *x, *dt;
	const float *a;
	const V *b, *c;
	kept *state;
	const int *seg;
	i64 ys, xs, ds, bs, cs, hs;
	int size, n;
	Groups groups;
	int vec; // bits: x, B, C and the state are aligned; y and z are

	// What is done around the scan where it is fused with that: steps are
	// softplus(dt + bias), from least to most, and what is put out is
	// silu(z) · (y + x d). Without a bias, nothing.
	float least, most;
	const float *bias, *d;
	const V *z;
	i64 zs;

	// C Bᵀ of the tokens of a chunk, for chunks of whole segments: rows are tokens, of
	// groups · the chunk's tokens. Null: each block makes its own.
	const float *scores;
	i64 ss;

	// For pieces of segments (pieces.h), of that many tokens: the scratch, null where whole
	// segments are scanned, and the decays, [piece, head].
	float *starts, *decays;
	int piece, seqs, heads;

	template <bool Ends> __attribute__((device)) Span span() const {
		return span_of<Ends>(seg, seqs, piece, starts, (i64)heads * size * n);
	}

	__attribute__((device)) float step_of(float v, float by) const {
		if (!bias)
			return v;
		v = math::softplus(v + by);
		return v < least ? least : v > most ? most : v;
	}

	__attribute__((device)) float step(i64 t, int head) const {
		return step_of(widen(dt[t * ds + head]), bias ? bias[head] : 0);
	}

	// x is that of the channel, which is the given one of all heads'.
	__attribute__((device)) void put(i64 t, int head, i64 channel, float v, float x, float (*silu)(float) = math::silu)
			const {
		narrow(y[t * ys + channel], bias ? silu(widen(z[t * zs + channel])) * (v + x * d[head]) : v);
	}
};

typedef ScanOf<float> Scan;

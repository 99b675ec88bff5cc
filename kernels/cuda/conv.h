// What a convolution is given: x and y of rows of cols channels, a filter of width for each
// channel, and the state.
#pragma once
#include "krait.h"

typedef FORMAT kept;

template <class V> struct Conv {
	V *y;
	i64 ys;
	const V *x;
	i64 xs;
	const float *w;
	i64 ws;
	kept *state;
	i64 hs;
	const int *seg;
	int seqs, cols, width;
	const float *bias;
	int silu;
};

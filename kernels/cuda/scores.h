// C Bᵀ of the tokens of a chunk with each other, apart from the scan.
#pragma once
#include "krait.h"

template <class V> struct Scores {
	float *y;
	i64 ys;
	const V *b;
	i64 bs;
	const V *c;
	i64 cs;
	const int *seg;
	int seqs, n, vec;
};

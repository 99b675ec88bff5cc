// What the launches of products on tensor cores are given.
#pragma once
#include "split.h"

// What a launch multiplies. Blocks are (rows / tile rows, columns / tile columns, slices of k):
// with several slices, the last block of a tile to arrive adds up the sums of all in their order.
template <class T> struct Product {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const T *w;
	i64 ws;
	const T *other; // a second weight, with strides as the first: y is silu(x wᵀ) · (x otherᵀ); null: none
	const float *add;
	i64 as;
	const float *norm; // the weight of a norm of x; null: x is not normed
	float *partial;    // for each tile and slice its sums, and then the squares of its rows
	u32 *arrived;      // for each tile a 0, before and after
	int t, n, k, slice;
	float eps;
	int fixed; // w and other are weights, which no launch writes
};

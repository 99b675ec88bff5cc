// What the kernels of matrix products share.
#pragma once
#include "blocks.h"

// What vec says of a product: loads of 16 bytes are aligned, and stores are.
const int loads = 1, stores = 2;

// What is added to a product, with rows as far apart as stride says; null: nothing. It
// may lie where the result does.
struct Sum {
	const float *y;
	i64 stride;

	__attribute__((device)) float to(float v, i64 row, int col) const { return y ? v + y[row * stride + col] : v; }
};

// What the tiles of products in f32 are given: y = x wᵀ, of t rows and n columns.
template <class T> struct Matmul {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const T *w;
	i64 ws;
	int t, n, k, vec;
	Sum add;
};

// Which rows a product is of: those of the batch, in order. Others are experts.h's: ragged are
// those that may leave most of a tile empty.
struct All {
	static const bool ragged = false;
	int count;

	__attribute__((device)) int in(int i) const { return i; }
};

// Which rows of the weight make the columns of a tile: those from one on. What lies beyond the last
// is the last again.
template <class T> struct Columns {
	const T *w;
	i64 stride;
	int from, n;

	__attribute__((device)) Row<T> row(int c) const { return row_of(w, min(from + c, n - 1), stride); }
};

// What the kernels of matrix products share.
#pragma once
#include "krait.h"

// What vec says of a product: loads of 16 bytes are aligned, and stores are.
const int loads = 1, stores = 2;

// What is added to a product, with rows as far apart as stride says; null: nothing. It
// may lie where the result does.
struct Sum {
	const float *y;
	i64 stride;

	__attribute__((device)) float to(float v, i64 row, int col) const { return y ? v + y[row * stride + col] : v; }
};

// Which rows a product is of: those of the batch, in order.
struct All {
	int count;

	__attribute__((device)) int in(int i) const { return i; }
	__attribute__((device)) int out(int i) const { return i; }
};

// Or those that an expert has: a list of slots, of which each share rows of x.
struct Listed {
	int count, share;
	const int *slots;

	__attribute__((device)) int in(int i) const { return slots[i] / share; }
	__attribute__((device)) int out(int i) const { return slots[i]; }
};

// The rows that expert e has, from lists of room slots each.
DEVICE Listed expert_rows(const int *counts, const int *lists, int room, int share, int e) {
	return Listed{counts[e], share, lists + (i64)e * room};
}

// The products of experts with the rows that they have; weights are es apart. Two
// weights may be multiplied in one launch: y1 = x w1ᵀ beside y = x wᵀ. The last
// axis of the grid is experts · weights.
struct Expert {
	const int *counts, *lists;
	int room, share;
};

#define EXPERT_PRODUCT(T, product, from, col)                                                                              \
	int e = second ? block_z() / 2 : block_z();                                                                        \
	bool other = second && block_z() % 2;                                                                              \
	Listed rows = expert_rows(expert.counts, expert.lists, expert.room, expert.share, e);                              \
	if (from < rows.count)                                                                                             \
		product(other ? y1 : y, ys, x, xs, (other ? w1 : w) + e * es, ws, rows, from, col, n, k, vec, Sum{});

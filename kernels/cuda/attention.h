// What the kernels of attention share: the pages of a cache, queries, and who asks.
#pragma once
#include "krait.h"

typedef FORMAT kept;

struct Pages {
	const u64 *table;
	i64 keys, values; // bytes from the beginning of a page to the rows
	i64 cs;
	int width, page;
};

// The byte at which the row of a token begins, of rows that are there in a page.
DEVICE u64 row_at(const Pages &p, i64 there, int seq, int token) {
	return p.table[(i64)seq * p.width + token / p.page] + there + (u64)(token % p.page) * p.cs * sizeof(kept);
}

struct Attention {
	float *y, *partial;
	const float *q;
	const int *seg, *past;
	Pages pages;
	i64 ys, qs;
	int seqs;
	// Heads of size channels; each of them share a group. The rank has heads
	// from first_head on, held of them; its caches begin with group first_group.
	int size, each, held, first_head, first_group;
	int vec, splits;
	int from, to; // tokens of the batch of which there are queries; q and y are as if all were
	float scale;
};

DEVICE bool asked(const Attention &arg, int token) { return arg.from <= token && token < arg.to; }

// The cache's channel from which on the head's keys and values lie.
DEVICE int group_channel(const Attention &arg, int head) {
	return ((arg.first_head + head) / arg.each - arg.first_group) * arg.size;
}

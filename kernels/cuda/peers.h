// Ranks whose memory this device reaches.
#pragma once
#include "krait.h"

const int max_peers = 16;

struct Peers {
	const void *from[max_peers]; // the ranks' operands, rank 0 first
	void *to[max_peers];         // where the sum goes
	int ranks, copies;
};

// The operand of a rank: parameters are not indexed, which would take a stack.
DEVICE const void *from_rank(const Peers &p, int rank) {
	const void *x = p.from[0];
	UNROLL for (int r = 1; r < max_peers; r++) x = r == rank ? p.from[r] : x;
	return x;
}

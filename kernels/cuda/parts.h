// How the tokens of sequences lie in parts.
#pragma once
#include "krait.h"

const int part_block = 64; // graph.PartBlock

// The tokens of a sequence that a part has, counted in the sequence: graph.PartOf.
struct Run {
	int start, tokens;
};

DEVICE Run part_of(int tokens, int parts, int part) {
	int blocks = ceil_div(tokens, part_block);
	int from = min(part * blocks / parts * part_block, tokens);
	return Run{from, min((part + 1) * blocks / parts * part_block, tokens) - from};
}

// A sequence whose state passes from part to part: values have a row for each part, all first parts
// before all second.
struct Passing {
	int seq, seqs, parts, tokens, slot;
};

DEVICE Passing passing(const int *seg, int seqs, int parts) {
	int seq = block_x();
	return Passing{seq, seqs, parts, seg[3 * seq + 1], seg[3 * seq + 2]};
}

DEVICE i64 row_of(Passing p, int part) { return (i64)part * p.seqs + p.seq; }

DEVICE int tokens_of(Passing p, int part) { return part_of(p.tokens, p.parts, part).tokens; }

// Segments that are scanned in pieces. Where whole ones would make few blocks, their pieces are
// scanned beside each other: what each but the last adds to a state of 0 (Ends), from that the
// states with which pieces begin (begin_pieces), and from those the pieces as segments
// are. Cuts are counted from the segment's first token. Scratch has for each piece a state in
// f32, and behind all of them for each by what a state decays over it.
#pragma once
#include "krait.h"

// What a block scans: a whole segment, or a piece of one.
struct Span {
	int first, tokens, slot;
	bool last;    // its end is the segment's
	float *state; // that of the scratch; null: the part begins with that of the slot
};

// The block's, which x of the grid counts, of pieces of size tokens, whose states in starts have
// the given number of elements; without starts, of segments.
template <bool Ends> DEVICE Span span_of(const int *seg, int seqs, int size, float *starts, i64 elements) {
	if (!Ends && !starts)
		return Span{seg[3 * block_x()], seg[3 * block_x() + 1], seg[3 * block_x() + 2], true, nullptr};
	Piece p;
	if (!find_piece(seg, seqs, size, block_x(), p))
		return Span{};
	return Span{p.first, p.tokens, p.slot, p.at + p.tokens == seg[3 * p.seq + 1], starts + block_x() * elements};
}

// How many pieces there are before those of a sequence.
DEVICE i64 pieces_before(const int *seg, int seq, int size) {
	i64 n = 0;
	for (int s = 0; s < seq; s++) n += ceil_div(seg[3 * s + 1], size);
	return n;
}

// For one element of a state, which was h: replaces what each of count pieces adds, apart from one
// another, by that with which it begins. The last has added nothing, and decay(i) is that over
// piece i.
template <class F> DEVICE void begin_pieces(float *p, i64 apart, int count, float h, F decay) {
	const int ahead = 8; // loads in flight
	for (int at = 0; at < count; at += ahead) {
		float added[ahead], left[ahead];
		UNROLL for (int j = 0; j < ahead; j++) {
			added[j] = left[j] = 0;
			if (at + j + 1 < count) {
				added[j] = p[(at + j) * apart];
				left[j] = decay(at + j);
			}
		}
		UNROLL for (int j = 0; j < ahead; j++) {
			if (at + j < count)
				p[(at + j) * apart] = h;
			h = fma(left[j], h, added[j]);
		}
	}
}

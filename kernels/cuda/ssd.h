// What the kernels of the scan with one rate per head share.
#pragma once
#include "krait.h"

// Rows of the scan's operands: x and y [t, head · size], dt [t, head],
// b and c [t, group · n], state [slot, head, size, n], in the format in which it is kept:
// it is rounded when it is stored, and so at the end of a segment only.
typedef FORMAT kept;

struct Scan {
	float *y;
	const float *x, *dt, *a, *b, *c;
	kept *state;
	const int *seg;
	i64 ys, xs, ds, bs, cs, hs;
	int size, n;
	Groups groups;
	int vec;
};

// The log2 of a decay as sums of them take it: what is gone after one token is gone,
// and a larger number would take the digits of those of other tokens.
DEVICE double bounded(double log) { return log < -256 ? -256 : log; }

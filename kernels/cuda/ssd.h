// What the kernels of the scan with one rate per head share.
#pragma once
#include "krait.h"

// Rows of the scan's operands: x and y [t, head · size], dt [t, head],
// b and c [t, group · n], state [slot, head, size, n].
struct Scan {
	float *y;
	const float *x, *dt, *a, *b, *c;
	float *state;
	const int *seg;
	i64 ys, xs, ds, bs, cs, hs;
	int size, n;
	Groups groups;
	int vec;
};

// The log2 of a decay as sums of them take it: what is gone after one token is gone,
// and a larger number would take the digits of those of other tokens.
DEVICE double bounded(double log) { return log < -256 ? -256 : log; }

// What the kernels of the scan in f32 on tensor cores share: a row of the scratch, which is a
// token's and a group's, has C Bᵀ with the tokens of its chunk, what brings it, B and C back to
// their sizes (Scale), and the halves of B and then C, of states in sixteens.
#pragma once
#include "halves.h"

const int chunk = 32, scales = chunk, score_columns = chunk + 4;

DEVICE int in_sixteens(int n) { return (n + 15) / 16 * 16; }

// The floats of a row.
DEVICE int row_of(int n) { return score_columns + 2 * in_sixteens(n); }

DEVICE const u16 *halves_of(const float *row) { return (const u16 *)(row + score_columns); }

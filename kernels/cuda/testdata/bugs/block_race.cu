// The convolution of a piece of a sequence, whose last block moves the state on
// while the first may still read the old one.
#include "krait.h"

KERNEL THREADS(128) conv1d_pieces(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs,
		const float *__restrict__ w, i64 ws, float *state, i64 hs, const int *__restrict__ seg, int seqs, int cols,
		int width, const float *, int) {
	Piece p;
	int c = block_y() * 128 + thread(), keep = width - 1;
	if (!find_piece(seg, seqs, 32, block_x(), p) || c >= cols)
		return;
	x += p.first * xs + c;
	y += p.first * ys + c;
	w += c * ws;
	float *history = state + p.slot * hs + (i64)c * keep;
	for (int t = 0; t < p.tokens; t++) {
		float sum = 0;
		for (int j = 0; j < width; j++) {
			int back = t - keep + j;
			sum = fma(w[j], p.at + back >= 0 ? x[back * xs] : history[p.at + back + keep], sum);
		}
		y[t * ys] = sum;
	}
	if (p.at + p.tokens == seg[3 * p.seq + 1])
		for (int i = 0; i < keep; i++)
			history[i] = x[(p.tokens - keep + i) * xs];
}

// The convolution of a piece of a sequence, whose last block moves the state on
// while the first may still read the old one.
#define FORMAT f32
#include "conv.h"

KERNEL THREADS(128) conv1d_pieces(Conv<float> arg) {
	Piece p;
	int channel = block_y() * 128 + thread(), keep = arg.width - 1;
	if (!find_piece(arg.seg, arg.seqs, 32, block_x(), p) || channel >= arg.cols)
		return;
	const float *x = arg.x + p.first * arg.xs + channel, *w = arg.w + channel * arg.ws;
	float *y = arg.y + p.first * arg.ys + channel, *history = arg.state + p.slot * arg.hs + (i64)channel * keep;
	for (int t = 0; t < p.tokens; t++) {
		float sum = 0;
		for (int j = 0; j <= keep; j++) {
			int back = t - keep + j;
			sum = fma(w[j], p.at + back >= 0 ? x[back * arg.xs] : history[p.at + back + keep], sum);
		}
		y[t * arg.ys] = sum;
	}
	if (p.at + p.tokens == arg.seg[3 * p.seq + 1])
		for (int i = 0; i < keep; i++)
			history[i] = x[(p.tokens - keep + i) * arg.xs];
}

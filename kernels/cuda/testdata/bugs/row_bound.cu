// A token of the convolution for one channel too many.
#define FORMAT f32
#include "conv.h"

KERNEL THREADS(128) conv1d_update(Conv<float> arg) {
	int channel = block_y() * 128 + thread(), keep = arg.width - 1;
	int first = arg.seg[3 * block_x()], slot = arg.seg[3 * block_x() + 2];
	if (channel > arg.cols)
		return;
	float *history = arg.state + slot * arg.hs + (i64)channel * keep;
	const float *w = arg.w + channel * arg.ws;
	float sum = 0, in = arg.x[first * arg.xs + channel];
	for (int j = 0; j < keep; j++) {
		float old = history[j];
		sum = fma(w[j], old, sum);
		if (j > 0)
			history[j - 1] = old;
	}
	if (keep > 0)
		history[keep - 1] = in;
	arg.y[first * arg.ys + channel] = fma(w[keep], in, sum);
}

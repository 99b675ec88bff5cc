// A token of the convolution for one channel too many.
#include "krait.h"

KERNEL THREADS(128) conv1d_update(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs,
		const float *__restrict__ w, i64 ws, float *state, i64 hs, const int *__restrict__ seg, int cols, int width,
		const float *, int) {
	int c = block_y() * 128 + thread();
	int first = seg[3 * block_x()], slot = seg[3 * block_x() + 2];
	if (c > cols)
		return;
	float *history = state + slot * hs + (i64)c * (width - 1);
	w += c * ws;
	float sum = 0, in = x[first * xs + c];
	for (int j = 0; j < width - 1; j++) {
		float old = history[j];
		sum = fma(w[j], old, sum);
		if (j > 0)
			history[j - 1] = old;
	}
	if (width > 1)
		history[width - 2] = in;
	y[first * ys + c] = fma(w[width - 1], in, sum);
}

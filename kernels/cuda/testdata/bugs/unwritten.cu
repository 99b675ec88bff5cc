// The sum of squares, by a reduction that takes there to be 32 warps.
#include "krait.h"

DEVICE float sum_of_block(float v) {
	SHARED static float sums[32];
	v = warp_sum(v);
	if (lane() == 0)
		sums[warp()] = v;
	sync();
	return warp_sum(sums[lane()]);
}

KERNEL THREADS(1024) group_sumsq(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs, int cols, int size,
		int x_start, int y_start, int vec) {
	float sum = 0;
	for (int j = thread(); j < cols; j += threads())
		sum = fma(x[block_x() * xs + j], x[block_x() * xs + j], sum);
	sum = sum_of_block(sum);
	if (thread() == 0)
		y[block_x() * ys + block_y()] = sum;
}

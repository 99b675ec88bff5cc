// Four neighbours are loaded at once, whether they are aligned or not.
#include "krait.h"

KERNEL THREADS(256) silu(float *y, i64 ys, const float *x, i64 xs, int cols, int vec) {
	int j = 4 * thread();
	if (j + 4 > cols)
		return;
	f32x4 v = *(const f32x4 *)(x + j);
	UNROLL for (int k = 0; k < 4; k++) y[j + k] = math::silu(v[k]);
}

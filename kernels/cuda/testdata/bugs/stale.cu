// In place, what another thread has written is read through the cache that does not see
// what the launch writes, as x is declared __restrict__.
#include "krait.h"

KERNEL THREADS(256) silu(float *y, i64 ys, const float *__restrict__ x, i64 xs, int cols, int vec) {
	int j = thread();
	if (j < cols)
		y[j] = (float)j;
	sync();
	if (j < cols)
		y[j] = math::silu(x[cols - 1 - j]);
}

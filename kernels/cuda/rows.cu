// Copies of rows.
#include "krait.h"

// Copies rows in units of 16 bytes or of T; index, if not null, lists the
// rows of x.
template <class T> DEVICE void copy(T *y, i64 ys, const T *x, i64 xs, const int *index, int cols, int vec) {
	const int each = 16 / sizeof(T);
	int j = each * (block_y() * 256 + thread());
	i64 i = block_x();
	if (j >= cols)
		return;
	const T *from = x + (index ? index[i] : i) * xs + j;
	T *to = y + i * ys + j;
	if (vec && cols - j >= each) {
		*(u32x4 *)to = *(const u32x4 *)from;
		return;
	}
	UNROLL for (int k = 0; k < each; k++) if (k < cols - j) to[k] = from[k];
}

KERNEL THREADS(256) copy_4(u32 *__restrict__ y, i64 ys, const u32 *__restrict__ x, i64 xs,
		const int *__restrict__ index, int cols, int vec) {
	copy(y, ys, x, xs, index, cols, vec);
}

KERNEL THREADS(256) copy_2(u16 *__restrict__ y, i64 ys, const u16 *__restrict__ x, i64 xs,
		const int *__restrict__ index, int cols, int vec) {
	copy(y, ys, x, xs, index, cols, vec);
}

template <class T> DEVICE void zero(T *y, i64 ys, int cols, int vec) {
	const int each = 16 / sizeof(T);
	int j = each * (block_y() * 256 + thread());
	y += block_x() * ys + j;
	if (vec && cols - j >= each) {
		*(u32x4 *)y = 0;
		return;
	}
	UNROLL for (int k = 0; k < each; k++) if (k < cols - j) y[k] = 0;
}

KERNEL THREADS(256) zero_4(u32 *y, i64 ys, int cols, int vec) { zero(y, ys, cols, vec); }
KERNEL THREADS(256) zero_2(u16 *y, i64 ys, int cols, int vec) { zero(y, ys, cols, vec); }

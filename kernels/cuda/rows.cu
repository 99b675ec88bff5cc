// Rows in and out, and copies of rows.
#include "krait.h"

// What a rank holds of an axis: see kernels.Tensor.Runs.
const int max_runs = 8;

struct Runs {
	int start[max_runs], len[max_runs];
};

// The held row of row i of the whole table, or -1: runs that are not there have
// length 0.
DEVICE int held_row(Runs runs, int i) {
	int at = -1, before = 0;
	UNROLL for (int r = 0; r < max_runs; r++) {
		if (runs.start[r] <= i && i < runs.start[r] + runs.len[r])
			at = before + i - runs.start[r];
		before += runs.len[r];
	}
	return at;
}

template <class T> DEVICE void embedding(float *y, i64 ys, const int *ids, const T *table, i64 ts, int cols, int vec, Runs runs) {
	each4(cols, [=](i64 i, int j, int n) {
		int row = held_row(runs, ids[i]);
		f32x4 v = 0; // another rank has it
		if (row >= 0)
			v = load4(table + row * ts + j, n, vec);
		store4(y + i * ys + j, v, n, vec);
	});
}

#define EMBEDDING(T, name)                                                                                                 \
	KERNEL THREADS(256) embedding_##name(float *__restrict__ y, i64 ys, const int *__restrict__ ids, const T *__restrict__ table, i64 ts, int cols, int vec, Runs runs) { \
		embedding(y, ys, ids, table, ts, cols, vec, runs);                                                         \
	}

EMBEDDING(float, f32)
EMBEDDING(bf16, bf16)
EMBEDDING(f16, f16)

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

KERNEL THREADS(256) copy_4(u32 *__restrict__ y, i64 ys, const u32 *__restrict__ x, i64 xs, const int *__restrict__ index, int cols, int vec) {
	copy(y, ys, x, xs, index, cols, vec);
}

KERNEL THREADS(256) copy_2(u16 *__restrict__ y, i64 ys, const u16 *__restrict__ x, i64 xs, const int *__restrict__ index, int cols, int vec) {
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

// Rows of a table, by their ids. FORMAT is the table's.
// Formats: f32 f16 bf16 BLOCKS
#include "blocks.h"

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

// Blocks are (ids, columns / 1024).
KERNEL THREADS(256) embedding(float *__restrict__ y, i64 ys, const int *__restrict__ ids,
		const FORMAT *__restrict__ table, i64 ts, int cols, int vec, Runs runs) {
	each4(cols, [=](i64 i, int j, int n) {
		int row = held_row(runs, ids[i]);
		f32x4 v = 0; // another rank has it
		if (row >= 0)
			v = row_of(table, row, ts).four(j, n, vec);
		store4(y + i * ys + j, v, n, vec);
	});
}

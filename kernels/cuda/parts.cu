// What recurrences over parts of sequences take beside states: their segments, zeros to begin with,
// and sums of what states decay by.
#include "parts.h"

// The segments of the parts of all sequences, or those of one part (own, at least 0), whose rows
// are counted among the part's. One block of a warp.
KERNEL THREADS(32) parts(int *__restrict__ y, const int *__restrict__ seg, int rows, int seqs, int parts, int own) {
	for (int from = 0, held = 0; from < rows; from += 32) {
		int row = from + lane(), seq = row % seqs;
		Run p = part_of(row < rows ? seg[3 * seq + 1] : 0, parts, own < 0 ? row / seqs : own);
		int upto = lanes_through(p.tokens);
		if (row < rows) {
			y[3 * row] = own < 0 ? seg[3 * seq] + p.start : held + upto - p.tokens;
			y[3 * row + 1] = p.tokens;
			y[3 * row + 2] = row;
		}
		held += from_lane(upto, 31);
	}
}

// Rows of square matrices, of n columns, with ones on their diagonals.
KERNEL THREADS(256) diagonal(float *y, i64 ys, int cols, int n, int vec) {
	each4(cols, [=](i64 i, int j, int count) {
		f32x4 v;
		UNROLL for (int k = 0; k < 4; k++) v[k] = (j + k) % n == (j + k) / n % n ? 1 : 0;
		store4(y + i * ys + j, v, count, vec);
	});
}

// The sums of the tokens of segments: the 32 warps of a block take turns with tokens, of 32
// columns. Blocks are (segments, columns / 32).
KERNEL THREADS(1024) segment_sums(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs,
		const int *__restrict__ seg, int cols) {
	SHARED static float sums[32][32];
	int column = block_y() * 32 + lane(), first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1];
	float sum = 0;
	if (column < cols)
		UNROLL_4 for (int t = warp(); t < tokens; t += 32) sum += x[(i64)(first + t) * xs + column];
	sums[warp()][lane()] = sum;
	sync();
	if (warp() > 0 || column >= cols)
		return;
	UNROLL for (int w = 1; w < 32; w++) sum += sums[w][lane()];
	y[block_x() * ys + column] = sum;
}

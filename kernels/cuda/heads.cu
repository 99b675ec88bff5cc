// A matrix per head: y[t, h n] = Σ_k w[h n, k] x[t, h k]. FORMAT is the weights'.
// Formats: f32 f16 bf16 BLOCKS
#include "blocks.h"

// What the rank holds: x has channels from x_start on, of heads of size
// channels; y has columns from y_start on, each per head. Rows of w go with the
// columns of y. A rank that has a part of a head's channels adds up that part.
struct Heads {
	int cols, x_start, x_cols, size, y_start, each;
};

// Lanes lanes share a column, as dots of a few or of many channels want it.
template <int Lanes, class T> DEVICE void head_matmul(float *y, i64 ys, const float *x, i64 xs, const T *w, i64 ws,
		Heads h) {
	int col = (block_y() * 128 + thread()) / Lanes;
	int held = min(col, h.cols - 1); // all lanes take part in the sum
	int first = (h.y_start + held) / h.each * h.size;
	int from = max(first - h.x_start, 0), to = min(first + h.size - h.x_start, h.x_cols);
	x += block_x() * xs;
	auto row = row_of(w, held, ws);
	float sum = 0;
	for (int k = from + thread() % Lanes; k < to; k += Lanes)
		sum = fma(x[k], row.one(k + h.x_start - first), sum);
	UNROLL for (int o = Lanes / 2; o > 0; o /= 2) sum += from_lane_xor(sum, o);
	if (col < h.cols && thread() % Lanes == 0)
		y[block_x() * ys + col] = sum;
}

#define HEADS(lanes) \
	KERNEL THREADS(128) head_matmul_##lanes(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs, \
			const FORMAT *__restrict__ w, i64 ws, Heads h) { \
		head_matmul<lanes>(y, ys, x, xs, w, ws, h);                                                                \
	}

HEADS(2)
HEADS(32)

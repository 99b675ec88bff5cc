// Norms (Zhang and Sennrich 2019), whole and in two parts. What may be in place is
// not __restrict__, as in elementwise.cu.
#include "krait.h"

// The sum of squares of n neighbours, by all threads of the block.
template <class X> DEVICE float sum_of_squares(const X *x, int n, bool vec) {
	float sum = 0;
	for (int j = 4 * thread(); j < n; j += 4 * threads()) {
		f32x4 v = load4(x + j, n - j, vec);
		UNROLL for (int k = 0; k < 4; k++) sum = fma(v[k], v[k], sum);
	}
	return block_sum(sum);
}

// y = w · x / sqrt(Σ x² / width + eps), of one of equal groups of a row, whose weights are ws
// apart; without w where that is null. Blocks are (rows, groups).
template <class X, class Y> DEVICE void norm(Y *__restrict__ y, i64 ys, const X *__restrict__ x, i64 xs,
		const float *__restrict__ w, int ws, int size, int width, int vec, float eps) {
	i64 group = (i64)block_y() * size;
	x += block_x() * xs + group;
	y += block_x() * ys + group;
	w += (i64)block_y() * ws;
	float f = inverse_rms(sum_of_squares(x, size, vec), width, eps);
	for (int j = 4 * thread(); j < size; j += 4 * threads()) {
		f32x4 v = load4(x + j, size - j, vec) * f;
		if (w)
			v *= load4(w + j, size - j, vec);
		store4(y + j, v, size - j, vec);
	}
}

#define NORM(name, X, Y) \
	KERNEL THREADS(1024) name(Y *__restrict__ y, i64 ys, const X *__restrict__ x, i64 xs, const float *__restrict__ w, \
			int ws, int size, int width, int vec, float eps) { \
		norm(y, ys, x, xs, w, ws, size, width, vec, eps);                                                          \
	}

NORM(rmsnorm, float, float)
NORM(rmsnorm_f32_bf16, float, bf16)
NORM(rmsnorm_bf16_f32, bf16, float)
NORM(rmsnorm_bf16_bf16, bf16, bf16)

// s = a + b and y = w · s / sqrt(mean s² + eps), by the same threads and in the
// same order as rmsnorm would: a thread reads of s what it wrote. Blocks are rows.
template <class Y> DEVICE void add_norm(Y *y, i64 ys, float *s, i64 ss, const float *a, i64 as, const float *b, i64 bs,
		const float *__restrict__ w, int size, int vec, float eps) {
	y += block_x() * ys, s += block_x() * ss, a += block_x() * as, b += block_x() * bs;
	float sum = 0;
	for (int j = 4 * thread(); j < size; j += 4 * threads()) {
		f32x4 v = load4(a + j, size - j, vec) + load4(b + j, size - j, vec);
		store4(s + j, v, size - j, vec);
		UNROLL for (int k = 0; k < 4; k++) sum = fma(v[k], v[k], sum);
	}
	float f = inverse_rms(block_sum(sum), size, eps);
	for (int j = 4 * thread(); j < size; j += 4 * threads())
		store4(y + j, load4(s + j, size - j, vec) * f * load4(w + j, size - j, vec), size - j, vec);
}

#define ADD_NORM(name, Y) \
	KERNEL THREADS(1024) name(Y *y, i64 ys, float *s, i64 ss, const float *a, i64 as, const float *b, i64 bs, \
			const float *__restrict__ w, int size, int vec, float eps) { \
		add_norm(y, ys, s, ss, a, as, b, bs, w, size, vec, eps);                                                   \
	}

ADD_NORM(add_rmsnorm, float)
ADD_NORM(add_rmsnorm_bf16, bf16)

// Three rows of a token, which are short, each normed by a warp: what a scan reads. Blocks are
// tokens.
struct Row {
	void *y;
	const void *x;
	const float *w; // null: without
	i64 ys, xs;
	int size, flags; // 1: aligned; 2: x is in bf16; 4: y is
};

struct Rows {
	Row a, b, c;
};

// One of them: as elements of an array they would be in local memory.
DEVICE Row one_of(int i, const Row &a, const Row &b, const Row &c) {
	return Row{
		i == 0 ? a.y : i == 1 ? b.y : c.y,
		i == 0 ? a.x : i == 1 ? b.x : c.x,
		i == 0 ? a.w : i == 1 ? b.w : c.w,
		i == 0 ? a.ys : i == 1 ? b.ys : c.ys,
		i == 0 ? a.xs : i == 1 ? b.xs : c.xs,
		i == 0 ? a.size : i == 1 ? b.size : c.size,
		i == 0 ? a.flags : i == 1 ? b.flags : c.flags,
	};
}

KERNEL THREADS(96) rmsnorm_each(float eps, Rows rows) {
	Row r = one_of(warp(), rows.a, rows.b, rows.c);
	i64 from = block_x() * r.xs, to = block_x() * r.ys;
	bool vec = r.flags & 1;
	auto load = [&](int j) {
		if (r.flags & 2)
			return load4((const bf16 *)r.x + from + j, r.size - j, vec);
		return load4((const float *)r.x + from + j, r.size - j, vec);
	};
	float sum = 0;
	NO_UNROLL for (int j = 4 * lane(); j < r.size; j += 128) {
		f32x4 v = load(j);
		UNROLL for (int k = 0; k < 4; k++) sum = fma(v[k], v[k], sum);
	}
	float f = inverse_rms(warp_sum(sum), r.size, eps);
	for (int j = 4 * lane(); j < r.size; j += 128) {
		f32x4 v = load(j) * f;
		if (r.w)
			v *= load4(r.w + j, r.size - j, vec);
		if (r.flags & 4)
			store4((bf16 *)r.y + to + j, v, r.size - j, vec);
		else
			store4((float *)r.y + to + j, v, r.size - j, vec);
	}
}

// The sum of squares of what the rank holds of each group of size channels: of
// the axis it has cols channels from x_start and groups from y_start on. Blocks
// are (rows, groups).
KERNEL THREADS(1024) group_sumsq(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs, int cols, int size,
		int x_start, int y_start, int vec) {
	int from = (y_start + block_y()) * size - x_start;
	int lo = min(max(from, 0), cols), hi = max(lo, min(from + size, cols));
	float sum = sum_of_squares(x + block_x() * xs + lo, hi - lo, vec && lo % 4 == 0);
	if (thread() == 0)
		y[block_x() * ys + block_y()] = sum;
}

// y = w · x / sqrt(sum / width + eps), without w where that is null, with the
// sum of the row.
KERNEL THREADS(256) rms_scale(float *y, i64 ys, const float *x, i64 xs, const float *__restrict__ sums, i64 ss,
		const float *__restrict__ w, int cols, int vec, float width, float eps) {
	each4(cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(x + i * xs + j, n, vec) * inverse_rms(sums[i * ss], width, eps);
		if (w)
			v *= load4(w + j, n, vec);
		store4(y + i * ys + j, v, n, vec);
	});
}

// The same with a sum per group of size channels; the rank has channels from
// x_start and groups from s_start on.
KERNEL THREADS(256) group_rms_scale(float *y, i64 ys, const float *x, i64 xs, const float *__restrict__ sums, i64 ss,
		const float *__restrict__ w, int cols, int vec, int size, int x_start, int s_start, float eps) {
	each4(cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(x + i * xs + j, n, vec), u = load4(w + j, n, vec);
		UNROLL for (int k = 0; k < 4; k++) {
			int group = (u32)(x_start + j + min(k, n - 1)) / (u32)size - s_start;
			v[k] = u[k] * (v[k] * inverse_rms(sums[i * ss + group], size, eps));
		}
		store4(y + i * ys + j, v, n, vec);
	});
}

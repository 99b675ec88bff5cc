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
template <class X, class Y> struct Norm {
	Y *y;
	i64 ys;
	const X *x;
	i64 xs;
	const float *w;
	int ws, size, width, vec;
	float eps;
};

template <class X, class Y>
DEVICE void norm(Y *__restrict__ y, const X *__restrict__ x, const float *__restrict__ w, const Norm<X, Y> &arg) {
	int size = arg.size, vec = arg.vec;
	i64 group = (i64)block_y() * size;
	x += block_x() * arg.xs + group;
	y += block_x() * arg.ys + group;
	w += (i64)block_y() * arg.ws;
	float factor = inverse_rms(sum_of_squares(x, size, vec), arg.width, arg.eps);
	for (int j = 4 * thread(); j < size; j += 4 * threads()) {
		f32x4 v = load4(x + j, size - j, vec) * factor;
		if (w)
			v *= load4(w + j, size - j, vec);
		store4(y + j, v, size - j, vec);
	}
}

#define NORM(name, X, Y) \
	KERNEL THREADS(1024) name(Norm<X, Y> arg) { norm(arg.y, arg.x, arg.w, arg); }

NORM(rmsnorm, float, float)
NORM(rmsnorm_f32_bf16, float, bf16)
NORM(rmsnorm_bf16_f32, bf16, float)
NORM(rmsnorm_bf16_bf16, bf16, bf16)

// s = x + z and y = w · s / sqrt(mean s² + eps), by the same threads and in the
// same order as rmsnorm would: a thread reads of s what it wrote. Blocks are rows.
template <class Y> struct AddNorm {
	Y *y;
	i64 ys;
	float *s;
	i64 ss;
	const float *x;
	i64 xs;
	const float *z;
	i64 zs;
	const float *w;
	int size, vec;
	float eps;
};

template <class Y> DEVICE void add_norm(const float *__restrict__ w, const AddNorm<Y> &arg) {
	Y *y = arg.y + block_x() * arg.ys;
	float *s = arg.s + block_x() * arg.ss, sum = 0;
	const float *x = arg.x + block_x() * arg.xs, *z = arg.z + block_x() * arg.zs;
	int size = arg.size, vec = arg.vec;
	for (int j = 4 * thread(); j < size; j += 4 * threads()) {
		f32x4 v = load4(x + j, size - j, vec) + load4(z + j, size - j, vec);
		store4(s + j, v, size - j, vec);
		UNROLL for (int k = 0; k < 4; k++) sum = fma(v[k], v[k], sum);
	}
	float factor = inverse_rms(block_sum(sum), size, arg.eps);
	for (int j = 4 * thread(); j < size; j += 4 * threads())
		store4(y + j, load4(s + j, size - j, vec) * factor * load4(w + j, size - j, vec), size - j, vec);
}

KERNEL THREADS(1024) add_rmsnorm(AddNorm<float> arg) { add_norm(arg.w, arg); }
KERNEL THREADS(1024) add_rmsnorm_bf16(AddNorm<bf16> arg) { add_norm(arg.w, arg); }

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
	Row first, second, third;
};

// One of them: as elements of an array they would be in local memory.
DEVICE Row one_of(int i, const Row &first, const Row &second, const Row &third) {
	return Row{
		i == 0 ? first.y : i == 1 ? second.y : third.y,
		i == 0 ? first.x : i == 1 ? second.x : third.x,
		i == 0 ? first.w : i == 1 ? second.w : third.w,
		i == 0 ? first.ys : i == 1 ? second.ys : third.ys,
		i == 0 ? first.xs : i == 1 ? second.xs : third.xs,
		i == 0 ? first.size : i == 1 ? second.size : third.size,
		i == 0 ? first.flags : i == 1 ? second.flags : third.flags,
	};
}

KERNEL THREADS(96) rmsnorm_each(float eps, Rows rows) {
	Row r = one_of(warp(), rows.first, rows.second, rows.third);
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
	float factor = inverse_rms(warp_sum(sum), r.size, eps);
	for (int j = 4 * lane(); j < r.size; j += 128) {
		f32x4 v = load(j) * factor;
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
struct GroupSums {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	int cols, size, x_start, y_start, vec;
};

KERNEL THREADS(1024) group_sumsq(GroupSums arg) {
	int from = (arg.y_start + block_y()) * arg.size - arg.x_start;
	int lo = min(max(from, 0), arg.cols), hi = max(lo, min(from + arg.size, arg.cols));
	float sum = sum_of_squares(arg.x + block_x() * arg.xs + lo, hi - lo, arg.vec && lo % 4 == 0);
	if (thread() == 0)
		arg.y[block_x() * arg.ys + block_y()] = sum;
}

// y = w · x / sqrt(sum / width + eps), without w where that is null, with the
// sum of the row.
struct Scale {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const float *sums;
	i64 ss;
	const float *w;
	int cols, vec;
	float width, eps;
};

KERNEL THREADS(256) rms_scale(Scale arg) {
	each4(arg.cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(arg.x + i * arg.xs + j, n, arg.vec) * inverse_rms(arg.sums[i * arg.ss], arg.width, arg.eps);
		if (arg.w)
			v *= load4(arg.w + j, n, arg.vec);
		store4(arg.y + i * arg.ys + j, v, n, arg.vec);
	});
}

// The same with a sum per group of size channels; the rank has channels from
// x_start and groups from s_start on.
struct GroupScale {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const float *sums;
	i64 ss;
	const float *w;
	int cols, vec, size, x_start, s_start;
	float eps;
};

KERNEL THREADS(256) group_rms_scale(GroupScale arg) {
	each4(arg.cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(arg.x + i * arg.xs + j, n, arg.vec), w = load4(arg.w + j, n, arg.vec);
		UNROLL for (int k = 0; k < 4; k++) {
			int group = (u32)(arg.x_start + j + min(k, n - 1)) / (u32)arg.size - arg.s_start;
			v[k] = w[k] * (v[k] * inverse_rms(arg.sums[i * arg.ss + group], arg.size, arg.eps));
		}
		store4(arg.y + i * arg.ys + j, v, n, arg.vec);
	});
}

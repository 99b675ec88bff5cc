// Functions of one element and of two. Rows are xs, ys elements apart. A result may
// lie where an operand does (InPlace in graph/ops.go): those are not __restrict__,
// which would let them be read from a cache that does not see what is written.
#include "krait.h"

template <class V, class F> DEVICE void map(V *y, i64 ys, const V *x, i64 xs, int cols, int vec, F f) {
	each4(cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(x + i * xs + j, n, vec);
		UNROLL for (int k = 0; k < 4; k++) v[k] = f(v[k]);
		store4(y + i * ys + j, v, n, vec);
	});
}

#define MAP(name, f) \
	KERNEL THREADS(256) name(float *y, i64 ys, const float *x, i64 xs, int cols, int vec) {					   \
		map(y, ys, x, xs, cols, vec, [](float x) { return f; });                                                   \
	}

MAP(silu, math::silu(x))
MAP(gelu, math::gelu(x))
MAP(gelu_tanh, math::gelu_tanh(x))
MAP(relu, math::relu(x))
MAP(relu2, math::relu2(x))
MAP(sigmoid, 1 / (1 + math::exp(-x)))
MAP(tanh, math::tanh(x))
MAP(softplus, math::softplus(x))
MAP(neg_exp, -math::at_most(math::exp(x), math::largest)) // -infinity would be a NaN times a step of 0

KERNEL THREADS(256) times(float *y, i64 ys, const float *x, i64 xs, int cols, int vec, float by) {
	map(y, ys, x, xs, cols, vec, [=](float v) { return v * by; });
}

KERNEL THREADS(256) plus(float *y, i64 ys, const float *x, i64 xs, int cols, int vec, float by) {
	map(y, ys, x, xs, cols, vec, [=](float v) { return v + by; });
}

KERNEL THREADS(256) clamp(float *y, i64 ys, const float *x, i64 xs, int cols, int vec, float least, float most) {
	map(y, ys, x, xs, cols, vec, [=](float v) { return v < least ? least : v > most ? most : v; });
}

template <class V, class F> DEVICE void zip(V *y, i64 ys, const V *a, i64 as, const V *b, i64 bs, int cols, int vec,
		F f) {
	each4(cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(a + i * as + j, n, vec), w = load4(b + i * bs + j, n, vec);
		UNROLL for (int k = 0; k < 4; k++) v[k] = f(v[k], w[k]);
		store4(y + i * ys + j, v, n, vec);
	});
}

// A stride of 0 gives all rows the same b: a bias.
KERNEL THREADS(256) add(float *y, i64 ys, const float *a, i64 as, const float *b, i64 bs, int cols, int vec) {
	zip(y, ys, a, as, b, bs, cols, vec, [](float x, float y) { return x + y; });
}

KERNEL THREADS(256) mul(float *y, i64 ys, const float *a, i64 as, const float *b, i64 bs, int cols, int vec) {
	zip(y, ys, a, as, b, bs, cols, vec, [](float x, float y) { return x * y; });
}

// v times its factors, of which each size neighbours have one; v is n channels
// from j on.
DEVICE f32x4 scaled(f32x4 v, const float *d, int j, int n, int size) {
	u32 h = (u32)j / (u32)size, at = j - h * size;
	UNROLL for (int k = 0; k < 4; k++) {
		if (k < n)
			v[k] *= d[h];
		if (++at == size)
			at = 0, h++;
	}
	return v;
}

KERNEL THREADS(256) scale(float *y, i64 ys, const float *x, i64 xs, const float *__restrict__ d, int cols, int size,
		int vec) {
	each4(cols, [=](i64 i, int j, int n) {
		store4(y + i * ys + j, scaled(load4(x + i * xs + j, n, vec), d, j, n, size), n, vec);
	});
}

// y = a + x · d.
KERNEL THREADS(256) add_scaled(float *y, i64 ys, const float *a, i64 as, const float *x, i64 xs,
		const float *__restrict__ d, int cols, int size, int vec) {
	each4(cols, [=](i64 i, int j, int n) {
		f32x4 v = scaled(load4(x + i * xs + j, n, vec), d, j, n, size);
		store4(y + i * ys + j, load4(a + i * as + j, n, vec) + v, n, vec);
	});
}

// The same two steps at once for fused operations, which give the bits of the
// operations apart.
KERNEL THREADS(256) silu_mul(float *y, i64 ys, const float *a, i64 as, const float *b, i64 bs, int cols, int vec) {
	zip(y, ys, a, as, b, bs, cols, vec, [](float x, float y) { return math::silu(x) * y; });
}

// What comes between products, of activations in bf16.
KERNEL THREADS(256) silu_mul_bf16(bf16 *y, i64 ys, const bf16 *a, i64 as, const bf16 *b, i64 bs, int cols, int vec) {
	zip(y, ys, a, as, b, bs, cols, vec, [](float x, float y) { return math::silu(x) * y; });
}

KERNEL THREADS(256) relu2_bf16(bf16 *y, i64 ys, const bf16 *x, i64 xs, int cols, int vec) {
	map(y, ys, x, xs, cols, vec, [](float x) { return math::relu2(x); });
}

KERNEL THREADS(256) bias_softplus(float *y, i64 ys, const float *a, i64 as, const float *__restrict__ b, i64 bs,
		int cols, int vec) {
	zip(y, ys, a, as, b, bs, cols, vec, [](float x, float y) { return math::softplus(x + y); });
}

template <class Out, class In> DEVICE void convert(Out *y, i64 ys, const In *x, i64 xs, int cols, int vec) {
	each4(cols, [=](i64 i, int j, int n) { store4(y + i * ys + j, load4(x + i * xs + j, n, vec), n, vec); });
}

#define CONVERT(In, Out, from, to) \
	KERNEL THREADS(256) convert_##from##_##to(Out *__restrict__ y, i64 ys, const In *__restrict__ x, i64 xs, int cols, \
			int vec) { \
		convert(y, ys, x, xs, cols, vec);                                                                          \
	}

CONVERT(float, float, f32, f32)
CONVERT(float, bf16, f32, bf16)
CONVERT(float, f16, f32, f16)
CONVERT(bf16, float, bf16, f32)
CONVERT(bf16, bf16, bf16, bf16)
CONVERT(bf16, f16, bf16, f16)
CONVERT(f16, float, f16, f32)
CONVERT(f16, bf16, f16, bf16)
CONVERT(f16, f16, f16, f16)

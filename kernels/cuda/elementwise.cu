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

template <class V, class F> DEVICE void zip(V *y, i64 ys, const V *x, i64 xs, const V *z, i64 zs, int cols, int vec,
		F f) {
	each4(cols, [=](i64 i, int j, int n) {
		f32x4 v = load4(x + i * xs + j, n, vec), w = load4(z + i * zs + j, n, vec);
		UNROLL for (int k = 0; k < 4; k++) v[k] = f(v[k], w[k]);
		store4(y + i * ys + j, v, n, vec);
	});
}

// A stride of 0 gives all rows the same z: a bias.
KERNEL THREADS(256) add(float *y, i64 ys, const float *x, i64 xs, const float *z, i64 zs, int cols, int vec) {
	zip(y, ys, x, xs, z, zs, cols, vec, [](float x, float z) { return x + z; });
}

KERNEL THREADS(256) mul(float *y, i64 ys, const float *x, i64 xs, const float *z, i64 zs, int cols, int vec) {
	zip(y, ys, x, xs, z, zs, cols, vec, [](float x, float z) { return x * z; });
}

// v times its factors, of which each size neighbours have one; v is n channels
// from j on.
DEVICE f32x4 scaled(f32x4 v, const float *factors, int j, int n, int size) {
	u32 factor = (u32)j / (u32)size, at = j - factor * size;
	UNROLL for (int k = 0; k < 4; k++) {
		if (k < n)
			v[k] *= factors[factor];
		if (++at == size)
			at = 0, factor++;
	}
	return v;
}

KERNEL THREADS(256) scale(float *y, i64 ys, const float *x, i64 xs, const float *__restrict__ factors, int cols,
		int size, int vec) {
	each4(cols, [=](i64 i, int j, int n) {
		store4(y + i * ys + j, scaled(load4(x + i * xs + j, n, vec), factors, j, n, size), n, vec);
	});
}

// y = x + z · factors.
struct AddScaled {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const float *z;
	i64 zs;
	const float *factors;
	int cols, size, vec;
};

KERNEL THREADS(256) add_scaled(AddScaled arg) {
	each4(arg.cols, [=](i64 i, int j, int n) {
		f32x4 v = scaled(load4(arg.z + i * arg.zs + j, n, arg.vec), arg.factors, j, n, arg.size);
		store4(arg.y + i * arg.ys + j, load4(arg.x + i * arg.xs + j, n, arg.vec) + v, n, arg.vec);
	});
}

// The same two steps at once for fused operations, which give the bits of the
// operations apart.
KERNEL THREADS(256) silu_mul(float *y, i64 ys, const float *x, i64 xs, const float *z, i64 zs, int cols, int vec) {
	zip(y, ys, x, xs, z, zs, cols, vec, [](float x, float z) { return math::silu(x) * z; });
}

// What comes between products, of activations in bf16.
KERNEL THREADS(256) silu_mul_bf16(bf16 *y, i64 ys, const bf16 *x, i64 xs, const bf16 *z, i64 zs, int cols, int vec) {
	zip(y, ys, x, xs, z, zs, cols, vec, [](float x, float z) { return math::silu(x) * z; });
}

KERNEL THREADS(256) relu2_bf16(bf16 *y, i64 ys, const bf16 *x, i64 xs, int cols, int vec) {
	map(y, ys, x, xs, cols, vec, [](float x) { return math::relu2(x); });
}

KERNEL THREADS(256) bias_softplus(float *y, i64 ys, const float *x, i64 xs, const float *__restrict__ z, i64 zs,
		int cols, int vec) {
	zip(y, ys, x, xs, z, zs, cols, vec, [](float x, float z) { return math::softplus(x + z); });
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

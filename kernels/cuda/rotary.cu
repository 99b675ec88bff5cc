// Turns pairs (j, j + dims/2) of the first dims channels of each head by
// position · theta^(-2j/dims) (Su et al. 2021).
#include "krait.h"

// 2^x for any x, in double: by the series of e^x, which has 14 terms for the
// fraction.
DEVICE double exp2_double(double x) {
	double n = __builtin_rint(x), r = (x - n) * 0.69314718055994531, p = 1;
	UNROLL for (int k = 13; k > 0; k--) p = __builtin_fma(p * r, 1. / k, 1.);
	return p * __builtin_bit_cast(double, (u64)((i64)n + 1023) << 52);
}

// Sine and cosine of an angle of many turns: it is brought to [-π/4, π/4] in
// double, and a power series does the rest.
DEVICE void turn(double angle, float &sin, float &cos) {
	double quarter = __builtin_rint(angle * 0.63661977236758134);
	float r = __builtin_fma(-quarter, 1.5707963267948966, angle), z = r * r;
	float s = fma(fma(fma(fma(2.7557319e-6f, z, -1.9841270e-4f), z, 8.3333333e-3f), z, -1.6666667e-1f) * z, r, r);
	float c = fma(fma(fma(fma(fma(-2.7557319e-7f, z, 2.4801587e-5f), z, -1.3888889e-3f), z, 4.1666667e-2f), z, -0.5f),
			z, 1);
	i64 q = (i64)quarter;
	sin = pick(q & 1, c, s);
	cos = pick(q & 1, s, c);
	if (q & 2)
		sin = -sin;
	if ((q + 1) & 2)
		cos = -cos;
}

// A thread turns a pair in some heads of a token, and copies what is not turned.
// log2_theta is log2(theta) · -2 / dims. Blocks of 128 threads are (tokens, heads / 4);
// the first token is one of the batch, with which x and y begin.
const int block_heads = 4;

struct Rotary {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const int *seg, *past;
	int seqs, cols, size, dims, token;
	double log2_theta;
};

DEVICE void turn_heads(float *__restrict__ y, const float *__restrict__ x, const Rotary &arg) {
	Piece p;
	if (!find_piece(arg.seg, arg.seqs, 1, arg.token + block_x(), p))
		return;
	int size = arg.size, channel = block_y() * block_heads * size, half = arg.dims / 2;
	x += (i64)(p.first - arg.token) * arg.xs + channel;
	y += (i64)(p.first - arg.token) * arg.ys + channel;
	int cols = min(arg.cols - channel, block_heads * size);
	for (int j = thread(); j < half; j += 128) {
		float sin, cos;
		turn((arg.past[p.seq] + p.at) * exp2_double(arg.log2_theta * j), sin, cos);
		for (int at = j; at < cols; at += size) {
			float one = x[at], other = x[at + half];
			y[at] = fma(one, cos, -(other * sin));
			y[at + half] = fma(other, cos, one * sin);
		}
	}
	int still = size - arg.dims;
	for (int i = thread(); i < cols / size * still; i += 128) {
		int at = i / still * size + arg.dims + i % still;
		y[at] = x[at];
	}
}

KERNEL THREADS(128) rotary(Rotary arg) { turn_heads(arg.y, arg.x, arg); }

// The selective scan in steps that leave what they make in memory: its terms, and their
// prefix scan. The result of a step has tokens × channels × states elements.
#include "krait.h"

// exp(dt A) and dt u B. One thread per state of a channel; blocks of 256 threads are
// (tokens, channels · states / 256).
struct Terms {
	float *decay;
	i64 ys;
	float *input;
	i64 is;
	const float *u;
	i64 us;
	const float *dt;
	i64 ds;
	const float *a;
	i64 as;
	const float *b;
	i64 bs;
	int cols, n;
	Groups groups;
};

KERNEL THREADS(256) scan_terms(Terms arg) {
	int i = block_y() * 256 + thread(), ch = i / arg.n, k = i % arg.n;
	i64 t = block_x();
	if (ch >= arg.cols)
		return;
	float dt = arg.dt[t * arg.ds + ch], b = arg.b[t * arg.bs + group_of(arg.groups, ch) * arg.n + k];
	float input = dt * arg.u[t * arg.us + ch] * b;
	arg.decay[t * arg.ys + i] = math::decay(dt * math::rate(arg.a[ch * arg.as + k]));
	arg.input[t * arg.is + i] = input;
}

// The running products of decays, and h from 0. One thread per column, in blocks of
// 128: (sequences, columns / 128).
struct Prefix {
	float *products;
	i64 ps;
	float *sums;
	i64 ss;
	const float *decay;
	i64 ds;
	const float *input;
	i64 is;
	const int *seg;
	int cols;
};

KERNEL THREADS(128) scan_prefix(Prefix arg) {
	int i = block_y() * 128 + thread();
	int first = arg.seg[3 * block_x()], tokens = arg.seg[3 * block_x() + 1];
	if (i >= arg.cols)
		return;
	float product = 1, sum = 0;
	for (i64 t = first; t < first + tokens; t++) {
		float decay = arg.decay[t * arg.ds + i];
		product *= decay;
		sum = fma(decay, sum, arg.input[t * arg.is + i]);
		arg.products[t * arg.ps + i] = product;
		arg.sums[t * arg.ss + i] = sum;
	}
}

// The selective scan in steps that leave what they make in memory: its terms, and their
// prefix scan. The result of a step has tokens × channels × states elements.
#include "krait.h"

// exp(dt A) and dt u B. One thread per state of a channel; blocks of 256 threads are
// (tokens, channels · states / 256).
KERNEL THREADS(256) scan_terms(float *__restrict__ decay, i64 ys, float *__restrict__ input, i64 is,
		const float *__restrict__ u, i64 us, const float *__restrict__ dt, i64 ds, const float *__restrict__ a, i64 as,
		const float *__restrict__ b, i64 bs, int cols, int n, Groups groups) {
	int i = block_y() * 256 + thread(), ch = i / n, k = i % n;
	i64 t = block_x();
	if (ch >= cols)
		return;
	float d = dt[t * ds + ch];
	decay[t * ys + i] = math::decay(d * math::rate(a[ch * as + k]));
	input[t * is + i] = d * u[t * us + ch] * b[t * bs + group_of(groups, ch) * n + k];
}

// The running products of decays, and h from 0. One thread per column, in blocks of
// 128: (sequences, columns / 128).
KERNEL THREADS(128) scan_prefix(float *__restrict__ products, i64 ps, float *__restrict__ sums, i64 ss,
		const float *__restrict__ decay, i64 ds, const float *__restrict__ input, i64 is, const int *__restrict__ seg,
		int cols) {
	int i = block_y() * 128 + thread();
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1];
	if (i >= cols)
		return;
	float product = 1, sum = 0;
	for (i64 t = first; t < first + tokens; t++) {
		float d = decay[t * ds + i];
		product *= d;
		sum = fma(d, sum, input[t * is + i]);
		products[t * ps + i] = product;
		sums[t * ss + i] = sum;
	}
}

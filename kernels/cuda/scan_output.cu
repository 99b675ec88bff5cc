// What the selective scan puts out, of the prefix scan of its terms: y = Σ_n h C with
// h = products · state + sums, and the last h as the new state. FORMAT is that in which
// the state is kept.
// Formats: f32 bf16
#include "krait.h"

typedef FORMAT kept;

// One thread per channel; blocks of 128 threads are (sequences, channels / 128).
struct Output {
	float *y;
	i64 ys;
	const float *products;
	i64 ps;
	const float *sums;
	i64 ss;
	const float *c;
	i64 cs;
	kept *state;
	i64 hs;
	const int *seg;
	int cols, n;
	Groups groups;
};

KERNEL THREADS(128) scan_output(Output arg) {
	int ch = block_y() * 128 + thread(), n = arg.n;
	const int *seg = arg.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	if (ch >= arg.cols || tokens < 1)
		return;
	kept *h = arg.state + slot * arg.hs + (i64)ch * n;
	const float *products = arg.products + (i64)ch * n, *sums = arg.sums + (i64)ch * n;
	const float *c = arg.c + group_of(arg.groups, ch) * n;
	auto state = [&](i64 t, int k) { return fma(products[t * arg.ps + k], widen(h[k]), sums[t * arg.ss + k]); };
	for (i64 t = first; t < first + tokens; t++) {
		float sum = 0;
		for (int k = 0; k < n; k++) sum = fma(state(t, k), c[t * arg.cs + k], sum);
		arg.y[t * arg.ys + ch] = sum;
	}
	for (int k = 0; k < n; k++) narrow(h[k], state(first + tokens - 1, k));
}

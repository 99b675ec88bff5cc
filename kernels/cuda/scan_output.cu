// What the selective scan puts out, of the prefix scan of its terms: y = Σ_n h C with
// h = products · state + sums, and the last h as the new state. FORMAT is that in which
// the state is kept.
// Formats: f32 bf16
#include "krait.h"

typedef FORMAT kept;

// One thread per channel; blocks of 128 threads are (sequences, channels / 128).
KERNEL THREADS(128) scan_output(float *__restrict__ y, i64 ys, const float *__restrict__ products, i64 ps,
		const float *__restrict__ sums, i64 ss, const float *__restrict__ c, i64 cs, kept *__restrict__ state, i64 hs,
		const int *__restrict__ seg, int cols, int n, Groups groups) {
	int ch = block_y() * 128 + thread();
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	if (ch >= cols || tokens < 1)
		return;
	kept *h = state + slot * hs + (i64)ch * n;
	int g = group_of(groups, ch) * n;
	products += (i64)ch * n;
	sums += (i64)ch * n;
	for (i64 t = first; t < first + tokens; t++) {
		float sum = 0;
		for (int k = 0; k < n; k++)
			sum = fma(fma(products[t * ps + k], widen(h[k]), sums[t * ss + k]), c[t * cs + g + k], sum);
		y[t * ys + ch] = sum;
	}
	i64 last = first + tokens - 1;
	for (int k = 0; k < n; k++)
		narrow(h[k], fma(products[last * ps + k], widen(h[k]), sums[last * ss + k]));
}

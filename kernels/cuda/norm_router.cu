// What stands before experts, of few tokens: a norm, the product that gives the scores, and the
// router, of which each would be a launch. FORMAT is the weight's.
// Formats: f32 f16 bf16
#include "router.h"

// Blocks of 1024 threads are (tokens). The scores' weight has so few rows that warps share each;
// there are 1024 at most. n is what is normed: threads read what others wrote of it, so that it is
// not __restrict__.
KERNEL THREADS(1024) norm_router(float *n, i64 ns, float *__restrict__ p, i64 ps, const float *__restrict__ x, i64 xs,
		const float *__restrict__ g, const FORMAT *__restrict__ w, i64 ws, int k, int experts, int top, int norm,
		int vec, float eps) {
	SHARED static float scores[1024];
	n += block_x() * ns, x += block_x() * xs;
	float sum = 0;
	for (int j = 4 * thread(); j < k; j += 4 * threads()) {
		f32x4 v = load4(x + j, k - j, vec);
		UNROLL for (int i = 0; i < 4; i++) sum = fma(v[i], v[i], sum);
	}
	float f = inverse_rms(block_sum(sum), k, eps);
	for (int j = 4 * thread(); j < k; j += 4 * threads())
		store4(n + j, load4(x + j, k - j, vec) * f * load4(g + j, k - j, vec), k - j, vec);
	sync();
	int each = max(1, 32 / experts); // warps that share a score
	for (int i = warp(); i < experts * each; i += 32) {
		const FORMAT *row = w + i % experts * ws;
		sum = 0;
		int j = 8 * (lane() + i / experts * 32), step = 256 * each;
		for (; vec && j < k; j += 2 * step) {
			Raw<FORMAT> b[2];
			UNROLL for (int h = 0; h < 2; h++) load_raw(b[h], row + j + h * step, k - j - h * step);
			UNROLL for (int h = 0; h < 2; h++) if (j + h * step < k) {
				Eight a = whole8(n + j + h * step), v = widen(b[h]);
				UNROLL for (int c = 0; c < 8; c++) sum = fma(a.v[c], v.v[c], sum);
			}
		}
		for (; j < k; j += step)
			NO_UNROLL for (int c = j; c < min(j + 8, k); c++) sum = fma(n[c], widen(row[c]), sum);
		sum = warp_sum(sum);
		if (lane() == 0)
			scores[i] = sum;
	}
	sync();
	if (thread() < experts)
		for (int i = 1; i < each; i++) scores[thread()] += scores[thread() + i * experts];
	sync();
	route(p + block_x() * ps, scores, experts, top, norm);
}

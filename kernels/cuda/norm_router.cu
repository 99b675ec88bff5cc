// What stands before experts, of few tokens: a norm, the product that gives the scores, and the
// router, of which each would be a launch. FORMAT is the weight's.
// Formats: f32 f16 bf16
#include "router.h"

// Blocks of 1024 threads are (tokens). The scores' weight has so few rows that warps share each;
// there are 1024 at most. n is what is normed: threads read what others wrote of it, so that it is
// not __restrict__.
struct NormRouter {
	float *n;
	i64 ns;
	float *p; // of the experts
	i64 ps;
	const float *x;
	i64 xs;
	const float *g; // the norm's weight
	const FORMAT *w;
	i64 ws;
	int k, experts, top, norm, vec;
	float eps;
};

DEVICE void norm_and_route(const float *__restrict__ x, const float *__restrict__ g, const FORMAT *__restrict__ w,
		const NormRouter &arg) {
	SHARED static float scores[1024];
	int k = arg.k, experts = arg.experts, vec = arg.vec;
	float *n = arg.n + block_x() * arg.ns, sum = 0;
	x += block_x() * arg.xs;
	for (int j = 4 * thread(); j < k; j += 4 * threads()) {
		f32x4 v = load4(x + j, k - j, vec);
		UNROLL for (int i = 0; i < 4; i++) sum = fma(v[i], v[i], sum);
	}
	float factor = inverse_rms(block_sum(sum), k, arg.eps);
	for (int j = 4 * thread(); j < k; j += 4 * threads())
		store4(n + j, load4(x + j, k - j, vec) * factor * load4(g + j, k - j, vec), k - j, vec);
	sync();
	int each = max(1, 32 / experts); // warps that share a score
	for (int i = warp(); i < experts * each; i += 32) {
		const FORMAT *row = w + i % experts * arg.ws;
		sum = 0;
		int j = 8 * (lane() + i / experts * 32), step = 256 * each;
		for (; vec && j < k; j += 2 * step) {
			Raw<FORMAT> raw[2];
			UNROLL for (int h = 0; h < 2; h++) load_raw(raw[h], row + j + h * step, k - j - h * step);
			UNROLL for (int h = 0; h < 2; h++) if (j + h * step < k) {
				Eight in = whole8(n + j + h * step), by = widen(raw[h]);
				UNROLL for (int e = 0; e < 8; e++) sum = fma(in.v[e], by.v[e], sum);
			}
		}
		for (; j < k; j += step)
			NO_UNROLL for (int at = j; at < min(j + 8, k); at++) sum = fma(n[at], widen(row[at]), sum);
		sum = warp_sum(sum);
		if (lane() == 0)
			scores[i] = sum;
	}
	sync();
	if (thread() < experts)
		for (int i = 1; i < each; i++) scores[thread()] += scores[thread() + i * experts];
	sync();
	route(arg.p + block_x() * arg.ps, scores, experts, arg.top, arg.norm);
}

KERNEL THREADS(1024) norm_router(NormRouter arg) { norm_and_route(arg.x, arg.g, arg.w, arg); }

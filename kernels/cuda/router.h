// What chooses between experts.
#pragma once
#include "krait.h"

// Softmax over the experts, of which the top stay, of equal ones the first, and
// others are 0; norm makes those that stay sum to 1. By all threads of a block, of a token.
DEVICE void route(float *y, const float *x, int experts, int top, int norm) {
	float most = -__builtin_inff(), total = 0, kept = 0;
	for (int j = thread(); j < experts; j += threads())
		most = max(most, x[j]);
	most = block_max(most);
	for (int j = thread(); j < experts; j += threads())
		total += math::exp(x[j] - most);
	total = block_sum(total);
	for (int j = thread(); j < experts; j += threads()) {
		int before = 0;
		for (int i = 0; i < experts; i++)
			before += x[i] > x[j] || (x[i] == x[j] && i < j);
		float p = before < top ? math::exp(x[j] - most) / total : 0;
		y[j] = p;
		kept += p;
	}
	if (!norm)
		return;
	kept = block_sum(kept);
	for (int j = thread(); j < experts; j += threads())
		y[j] /= kept;
}

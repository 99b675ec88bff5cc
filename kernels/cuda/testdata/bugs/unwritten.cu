// The sum of squares, by a reduction that takes there to be 32 warps.
#include "krait.h"

DEVICE float sum_of_block(float v) {
	SHARED static float sums[32];
	v = warp_sum(v);
	if (lane() == 0)
		sums[warp()] = v;
	sync();
	return warp_sum(sums[lane()]);
}

#define block_sum sum_of_block
#include "norm.cu"

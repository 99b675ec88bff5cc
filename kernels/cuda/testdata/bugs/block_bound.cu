// Rows in blocks of int8 for which a block too many is written.
#include "codec.h"

KERNEL THREADS(256) encode_f32(u8 *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs, int cols, int block,
		int) {
	int b = 8 * block_y() + warp(), from = b * block;
	if (from > cols)
		return;
	int n = min(block, cols - from);
	x += block_x() * xs + from;
	y += block_x() * ys + (i64)b * block_bytes<int8>(block);
	float most = 0;
	for (int j = lane(); j < n; j += 32)
		most = max(most, __builtin_fabsf(x[j]));
	u16 scale = scale_of<int8>(warp_max(most));
	float inverse = 1 / float_of((u32)scale << 16);
	if (lane() == 0)
		*(u16 *)y = scale;
	for (int j = lane(); j < block; j += 32)
		y[scale_bytes + j] = j < n ? whole(x[j] * inverse, 127) : 0;
}

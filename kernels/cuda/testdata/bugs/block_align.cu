// A sum of blocks of int8 that reads two scales' bytes at once: blocks have an even number
// of bytes, not one that is divisible by four.
#include "codec.h"
#include "peers.h"

KERNEL THREADS(256) codec_sum(float *y, i64 ys, i64 xs, int cols, int block, int, Peers p) {
	int j = 256 * block_y() + thread();
	if (j >= cols)
		return;
	float sum = 0;
	for (int r = 0; r < p.ranks; r++) {
		const u8 *at = (const u8 *)from_rank(p, r) + block_x() * xs + (i64)(j / block) * block_bytes<int8>(block);
		sum += (float)(signed char)at[scale_bytes + j % block] * float_of(*(const u32 *)at << 16);
	}
	y[block_x() * ys + j] = sum;
}

// Rows into blocks of a codec, and out of them.
#include "codec.h"
#include "peers.h"

// A warp makes a block; ys is in bytes.
template <Kind k, class In> DEVICE void encode(u8 *y, i64 ys, const In *x, i64 xs, int cols, int block) {
	int at = 8 * block_y() + warp(), from = at * block;
	if (from >= cols)
		return;
	int n = min(block, cols - from);
	x += block_x() * xs + from;
	y += block_x() * ys + (i64)at * block_bytes<k>(block);
	float most = 0;
	for (int j = lane(); j < n; j += 32) {
		float size = __builtin_fabsf(widen(x[j]));
		most = max(most, size <= math::largest ? size : __builtin_inff()); // max drops a NaN
	}
	u16 scale = scale_of<k>(warp_max(most));
	float inverse = 1 / float_of((u32)scale << 16);
	if (lane() == 0)
		*(u16 *)y = scale;
	y += scale_bytes;
	auto element = [&](int j) { return j < n && scale != nan_scale ? widen(x[j]) * inverse : 0.f; };
	if (k == int4) {
		for (int j = lane(); j < block / 2; j += 32)
			y[j] = whole(element(2 * j), 7) + 8 | (whole(element(2 * j + 1), 7) + 8) << 4;
		return;
	}
	for (int j = lane(); j < block; j += 32) {
		float v = element(j);
		if (k == int8)
			y[j] = whole(v, 127);
		else if (k == e4m3)
			y[j] = fp8<3, 7>(v, 448);
		else if (k == e5m2)
			y[j] = fp8<2, 15>(v, 57344);
		else
			narrow(((f16 *)y)[j], v);
	}
}

template <Kind k, class Out> DEVICE void decode(Out *y, i64 ys, const u8 *x, i64 xs, int cols, int block) {
	int j = 256 * block_y() + thread();
	if (j < cols)
		narrow(y[block_x() * ys + j],
				decoded<k>(x + block_x() * xs + (i64)(j / block) * block_bytes<k>(block), j % block));
}

// Adds in the order of the ranks, in f32.
template <Kind k> DEVICE void sum(float *y, i64 ys, i64 xs, int cols, int block, const Peers &p) {
	int j = 256 * block_y() + thread();
	if (j >= cols)
		return;
	i64 at = block_x() * xs + (i64)(j / block) * block_bytes<k>(block);
	float sum = decoded<k>((const u8 *)p.from[0] + at, j % block);
	for (int r = 1; r < p.ranks; r++)
		sum += decoded<k>((const u8 *)from_rank(p, r) + at, j % block);
	y[block_x() * ys + j] = sum;
}

KERNEL THREADS(256) codec_sum(float *y, i64 ys, i64 xs, int cols, int block, int kind, Peers p) {
	BY_KIND(kind, sum, y, ys, xs, cols, block, p)
}

#define CODEC(T) \
	KERNEL THREADS(256) encode_##T(u8 *__restrict__ y, i64 ys, const T *__restrict__ x, i64 xs, int cols, int block, \
			int kind) { \
		BY_KIND(kind, encode, y, ys, x, xs, cols, block)                                                           \
	}                                                                                                                  \
	KERNEL THREADS(256) decode_##T(T *__restrict__ y, i64 ys, const u8 *__restrict__ x, i64 xs, int cols, int block, \
			int kind) { \
		BY_KIND(kind, decode, y, ys, x, xs, cols, block)                                                           \
	}

CODEC(f32)
CODEC(bf16)
CODEC(f16)

// Sums over ranks whose memory this device reaches.
#include "peers.h"

// Adds in the order of the ranks, in T or, where wide is set, in f32.
template <class T> DEVICE void peer_sum(const Peers &p, i64 ys, i64 xs, int cols, int vec, int wide) {
	each4(cols, [&](i64 i, int j, int n) {
		f32x4 sum = load4((const T *)p.from[0] + i * xs + j, n, vec);
		UNROLL for (int r = 1; r < max_peers; r++) {
			if (r >= p.ranks)
				break;
			sum += load4((const T *)p.from[r] + i * xs + j, n, vec);
			if (!wide)
				UNROLL for (int k = 0; k < 4; k++) sum[k] = rounded<T>(sum[k]);
		}
		UNROLL for (int copy = 0; copy < max_peers; copy++) {
			if (copy >= p.copies)
				break;
			store4((T *)p.to[copy] + i * ys + j, sum, n, vec);
		}
	});
}

KERNEL THREADS(256) peer_sum_f32(i64 ys, i64 xs, int cols, int vec, int wide, Peers p) {
	peer_sum<float>(p, ys, xs, cols, vec, wide);
}
KERNEL THREADS(256) peer_sum_bf16(i64 ys, i64 xs, int cols, int vec, int wide, Peers p) {
	peer_sum<bf16>(p, ys, xs, cols, vec, wide);
}
KERNEL THREADS(256) peer_sum_f16(i64 ys, i64 xs, int cols, int vec, int wide, Peers p) {
	peer_sum<f16>(p, ys, xs, cols, vec, wide);
}

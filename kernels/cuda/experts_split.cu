// The products of experts with many rows on tensor cores, by weights in 16 bits, with f32's result
// but for the last bits: see matmul_split.cu. FORMAT is the weights'.
// Formats: f16 bf16
#include "experts.h"
#include "split.h"

// Of two pieces of w wide tiles would not fit shared memory.
const int tile_rows = 64, cols = weight_pieces<FORMAT> == 1 ? 256 : 128;

// Blocks are (rows / 64, columns / cols, experts).
template <class T> DEVICE void product(const Mixture<T> &arg) {
	int expert = block_z(), from = block_x() * tile_rows, col = block_y() * (arg.of.both ? cols / 2 : cols);
	Listed rows = arg.of.rows(expert);
	if (from < rows.count)
		split_tile<T, tile_rows, cols>(arg.x, arg.xs, rows, from, Paired<T>(arg, expert, col), arg.k,
			Finish<2, cols, float>{arg.of, rows, expert, arg.y, arg.ys, from, col, arg.n, arg.vec});
}

#define SPLIT(T) \
	KERNEL THREADS_BLOCKS(256, 2) expert_mma_split_##T(Mixture<T> arg) { product(arg); }

#define ALL(T) SPLIT(T)
ALL(FORMAT)

// The products of experts with some rows and with many on tensor cores, of activations in bf16 and
// of weights that are rounded to it: see matmul_mma.cu. FORMAT is the weights'.
// Formats: f32 f16 bf16
#include "experts.h"
#include "tile_mma.h"

typedef Finish<4, tile_cols, bf16> FinishTile;

// What comes behind the sums of some rows, all of them at once.
struct FinishFew : Finish<1, few_cols, bf16> {
	static const int stride = few_cols + 4;

	__attribute__((device, always_inline)) void put(int row, int column, float v, float *shared) const {
		shared[row * stride + column] = v;
	}
	__attribute__((device, always_inline)) void done(float *shared) const {
		sync();
		put_rows<few_rows, few_cols, stride>(shared, x, rows, expert, y, ys, col, n, vec,
				[=, this](int i) ALWAYS_INLINE { return from + i; });
	}
};

// Blocks are (rows / 32, columns / 64, experts) and (rows / 128, columns / 128, experts).
#define PRODUCT(name, T, product, rows_of, cols_of, End) \
	KERNEL THREADS(256) expert_##name##_##T(Mixture<T, bf16> arg) { \
		int expert = block_z(), from = block_x() * rows_of, col = block_y() * (arg.of.both ? cols_of / 2 : cols_of); \
		Listed rows = arg.of.rows(expert); \
		if (from < rows.count) \
			product<T>(arg.x, arg.xs, rows, from, Paired<T>(arg, expert, col), arg.k, \
				End{arg.of, rows, expert, arg.y, arg.ys, from, col, arg.n, arg.vec}); \
	}

#define ALL(T) \
	PRODUCT(mma_few, T, few, few_rows, few_cols, FinishFew)                                                            \
	PRODUCT(mma_tile, T, tile, tile_rows, tile_cols, FinishTile)

ALL(FORMAT)

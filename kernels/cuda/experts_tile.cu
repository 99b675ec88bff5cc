// The products of experts in f32: of few tokens, of which every weight is read once, and of many.
// FORMAT is the weights'.
// Formats: f32 f16 bf16 BLOCKS
#include "experts.h"
#include "gemv.h"
#include "tile.h"

// What comes behind the sums of a tile: they pass through shared memory, half of the rows at a
// time.
template <class T> DEVICE void matmul(const Mixture<T> &arg) {
	const int stride = tile_cols + 4;
	int expert = block_z(), from = block_x() * tile_rows, col = block_y() * (arg.of.both ? tile_cols / 2 : tile_cols);
	Listed rows = arg.of.rows(expert);
	if (from >= rows.count)
		return;
	tile<T>(arg.x, arg.xs, rows, from, Paired<T>(arg, expert, col), arg.k, arg.vec,
			[&](f32x4 (&sums)[8][2], int top, int left, float *shared) ALWAYS_INLINE {
		NO_UNROLL for (int half = 0; half < 2; half++) {
			UNROLL for (int i = 0; i < 8; i++) if (i / 4 == half)
				UNROLL for (int h = 0; h < 2; h++)
					*(f32x4 *)&shared[(top + i % 4) * stride + left + h * (tile_cols / 2)] = sums[i][h];
			sync();
			put_rows<tile_rows / 2, tile_cols, stride>(shared, arg.of, rows, expert, arg.y, arg.ys, col, arg.n, arg.vec,
					[=](int i) ALWAYS_INLINE { return from + half * (tile_rows / 2) + i; });
			sync();
		}
	});
}

// Those of a block's tokens that use an expert, M of them at most: bits of a mask. Slots are by the
// expert: each token has one for all of them.
template <int M> struct Users {
	u32 mask;
	int count, first, by, plus; // token first + i has row by · (first + i) + plus of x

	__attribute__((device)) int token(int i) const {
		u32 left = mask;
		UNROLL for (int m = 0; m < M - 1; m++) if (m < i) left &= left - 1;
		return first + __builtin_ctz(left);
	}
	__attribute__((device)) int in(int i) const { return token(i) * by + plus; }
};

// Calls f for the experts that some of a block's tokens use, in order: which it is, how many came
// before it, and the mask of its users.
template <int M, class F> DEVICE void each_used(const Experts &x, int first, F f) {
	int before = 0;
	for (int base = 0; base < x.experts; base += 32) {
		int own = base + lane();
		u32 users = 0;
		UNROLL for (int m = 0; m < M; m++)
			if (own < x.experts && first + m < x.tokens && x.weights[(first + m) * x.ts + own] != 0)
				users |= 1u << m;
		for (u32 used = ballot(users != 0); used; used &= used - 1, before++) {
			int at = __builtin_ctz(used);
			f(base + at, before, (u32)from_lane((int)users, at));
		}
	}
}

const int gemv_cols = Blocks<FORMAT> ? 2 : 4; // of a block

// The rows of one weight, or two of one and two of another.
template <class T> struct Halves {
	const Mixture<T> &arg;
	int expert, from;

	__attribute__((device)) Row<T> row(int c) const {
		int both = arg.of.both;
		i64 to = both && c >= gemv_cols / 2 ? arg.w1 - arg.w : 0;
		int at = min(from + (both ? c % (gemv_cols / 2) : c), arg.n - 1);
		return row_of(arg.w + expert * arg.of.es + to, at, arg.ws);
	}
};

// What experts have in their hidden units, of few tokens. Blocks are (tokens / M, columns / 2 or 4,
// turns): of the experts that are used, a block takes one in blocks_z().
template <int M, class T> DEVICE void hidden(const Mixture<T> &arg) {
	SHARED static Parts<M, gemv_cols> parts;
	const Experts &of = arg.of;
	int first = block_x() * M, wide = of.both ? gemv_cols / 2 : gemv_cols, col = block_y() * wide, turn = block_z();
	each_used<M>(of, first, [&](int expert, int before, u32 mask) {
		if (before != turn)
			return;
		turn += blocks_z();
		Users<M> rows{mask, __builtin_popcount(mask), first, 1, 0};
		Halves<T> halves{arg, expert, col};
		gemv<T, M, gemv_cols, false>(parts, arg.x, arg.xs, rows, 0, halves, arg.k, arg.vec, nullptr);
		int row = thread() / wide, column = thread() % wide;
		if (row < rows.count && col + column < arg.n) {
			int token = rows.token(row), at = row * gemv_cols + column;
			float up = of.both ? parts.sum(at + wide) : 1;
			arg.y[((i64)token * of.experts + expert) * arg.ys + col + column] = activation(of.act, parts.sum(at)) * up
					* of.weights[token * of.ts + expert];
		}
		sync(); // parts are in use
	});
}

// What they put out, added up in the order of the experts, and to what there is. Blocks are (tokens
// / M, columns / 4).
template <int M, class T> DEVICE void output(const Mixture<T> &arg) {
	SHARED static Parts<M, gemv_cols> parts;
	const Experts &of = arg.of;
	int first = block_x() * M, col = block_y() * gemv_cols, row = thread() / gemv_cols, column = thread() % gemv_cols;
	float total = 0;
	each_used<M>(of, first, [&](int expert, int, u32 mask) {
		Users<M> rows{mask, __builtin_popcount(mask), first, of.experts, expert};
		gemv<T, M, gemv_cols, false>(parts, arg.x, arg.xs, rows, 0,
				Columns<T>{arg.w + expert * of.es, arg.ws, col, arg.n}, arg.k, arg.vec, nullptr);
		if (row < M && mask >> row & 1)
			total += parts.sum(__builtin_popcount(mask & ((1u << row) - 1)) * gemv_cols + column);
		sync(); // parts are in use
	});
	int token = first + row;
	if (row < M && token < of.tokens && col + column < arg.n)
		arg.y[token * arg.ys + col + column] = arg.add.to(total, token, col + column);
}

#define GEMV(T, m, threads) \
	KERNEL threads expert_hidden_##T##_##m(Mixture<T> arg) { hidden<m>(arg); } \
	KERNEL threads expert_output_##T##_##m(Mixture<T> arg) { output<m>(arg); }

// Blocks of expert_matmul are (rows / 128, columns / 64, experts).
#define MATMUL(T) \
	KERNEL THREADS(128) expert_matmul_##T(Mixture<T> arg) { matmul(arg); }

#define ALL(T) \
	MATMUL(T)                                                                                                          \
	GEMV(T, 8, THREADS_BLOCKS(256, 1))

ALL(FORMAT)
// What takes other registers in blocks.
#ifdef IN_BLOCKS
#define OTHERS(T) GEMV(T, 1, THREADS_BLOCKS(256, 2))
#else
#define OTHERS(T) GEMV(T, 1, THREADS(256)) GEMV(T, 4, THREADS_BLOCKS(256, 1))
#endif

OTHERS(FORMAT)

// Matrix products y = x wᵀ on tensor cores, of more rows than matmul_few.cu has. With split, x is
// the sum of three bf16 and w of one, from f16 of two and from f32 of three, and products of pieces
// are summed in f32: the result of f32 arithmetic but for the last bits. With round, both are
// rounded to bf16. Up to 128 rows, a row of y does not depend on which come with it. The
// operands' rows are aligned, and k is a multiple of 8. FORMAT is the weights'. Where a weight is
// infinite, or x by f16 or f32, a split product may be NaN that would be infinite: a piece of the
// other may be 0.
// Formats: f16 bf16 f32
#include "product.h"

// How deep a stage is along k: deeper where it fits, since a block waits for its slowest warp twice
// in each. And how many a block has in shared memory, all but one on their way while it multiplies.
template <class T, int rows> const int depth_of = rows == 32 && sizeof(T) == 2 ? 64 : 32;
template <class T, int rows> const int stages_of = rows == 32 || sizeof(T) == 4 ? 3 : 4;

// A stage as it is in memory, the norm's weight behind the rows of x. Rows of w are 16 or 32 bytes
// longer than their depth, so that 8 of them lie in all banks.
template <class T, int rows, int cols> struct alignas(16) Stage {
	static const int depth = depth_of<T, rows>;
	float x[rows + 1][depth];
	T w[cols][depth + 8];
};

// What x of a stage is taken apart into, or rounded.
template <int parts, int rows, int depth> struct alignas(16) Parts {
	u16 x[parts][rows][depth + 8];
};

DEVICE void take_apart(f32x4 v, u32x2 (&p)[1]) { p[0] = u32x2{bf16x2(v[0], v[1]), bf16x2(v[2], v[3])}; }

// The pieces of what a lane has of b in mma, of 8 columns and 16 deep from d on.
template <class T, int n, int width> DEVICE void fragments(u32x2 (&q)[n], const T (*w)[width], int d) {
	if constexpr (sizeof(T) == 2)
		q[0] = load_two_matrices((const u16 *)&w[lane() % 8][d + lane() / 8 % 2 * 8]);
	if constexpr (weight_pieces<T> > 1)
		UNROLL for (int i = 0; i < 2; i++) {
			f32x2 v;
			if constexpr (sizeof(T) == 2)
				v = f32x2{widen(T{(u16)q[0][i]}), widen(T{(u16)(q[0][i] >> 16)})};
			else
				v = load_pair(&w[lane() / 4][d + 8 * i + lane() % 4 * 2]);
			UNROLL for (int e = 0; e < n; e++) {
				q[e][i] = n == 1 ? bf16x2(v[0], v[1]) : upper_halves(v[0], v[1]);
				UNROLL for (int h = 0; h < 2; h++) v[h] = e == 0 ? rest_of(v[h]) : v[h] - cut_off(v[h]);
			}
		}
}

template <class T, bool split, int rows, int cols> struct Tile {
	static const int parts = split ? pieces : 1, weights = split ? weight_pieces<T> : 1;
	// A warp has a few rows and columns of the tile, in squares of 16 rows and 8 columns. Of few rows,
	// it has half of a stage's depth: the fewer warps read the same of x, the sooner shared memory
	// has answered.
	static const int depth = depth_of<T, rows>, stages = stages_of<T, rows>, halves = rows == 32 ? 2 : 1;
	static const int warps_down = halves == 2 ? 1 : rows / (cols == 32 ? 16 : 32);
	static const int warps_across = 8 / halves / warps_down;
	static const int tall = rows / warps_down / 16, wide = cols / warps_across / 8, own = tall / halves;
	static const int w_each = 16 / sizeof(T), w_chunks = cols * depth / w_each; // of 16 bytes
	static const int x_lanes = depth / 4, x_loads = rows * x_lanes / 256, w_loads = (w_chunks + 255) / 256;
	using Ring = Stage<T, rows, cols>;
	using Apart = Parts<parts, rows, depth>;

	const Product<T> &p;
	int from, col, x_row, x_part;
	Ring *ring;
	Apart *apart;
	const float *in_x[x_loads];
	const T *in_w[w_loads];
	float square[x_loads];
	f32x4 sums[tall][wide];

	__attribute__((device, always_inline)) int w_row(int i) const { return (256 * i + thread()) / (depth / w_each); }
	__attribute__((device, always_inline)) int w_part() const { return thread() % (depth / w_each) * w_each; }
	__attribute__((device, always_inline)) int x_row_of(int i) const { return x_row + 256 / x_lanes * i; }
	__attribute__((device, always_inline)) int half() const { return warp() / (8 / halves); }

	// Finds what the thread loads: of two weights, eight columns of the tile are of one and
	// eight of the other.
	__attribute__((device, always_inline)) void find() {
		UNROLL for (int i = 0; i < x_loads; i++) in_x[i] = p.x + min(from + x_row_of(i), p.t - 1) * p.xs + x_part;
		UNROLL for (int i = 0; i < w_loads; i++) {
			int column = w_row(i), at = p.other ? col / 2 + column / 16 * 8 + column % 8 : col + column;
			in_w[i] = (p.other && column / 8 % 2 ? p.other : p.w) + min(at, p.n - 1) * p.ws + w_part();
		}
	}

	// Lets w of a stage come, of k from j on and up to end.
	__attribute__((device, always_inline)) void load_w(Ring &to, int j, int end) const {
		int bytes = j + w_part() < end ? 16 : 0;
		UNROLL for (int i = 0; i < w_loads; i++)
			if (w_chunks % 256 == 0 || thread() < w_chunks)
				copy_async_16(shared_address(&to.w[w_row(i)][w_part()]), in_w[i] + j, bytes);
	}

	// Likewise x, and the norm's weight.
	__attribute__((device, always_inline)) void load_x(Ring &to, int j, int end) const {
		int bytes = j + x_part < end ? 16 : 0;
		// All blocks would wait for the one row that is read for those that are not there.
		UNROLL for (int i = 0; i < x_loads; i++)
			copy_async_16(shared_address(&to.x[x_row_of(i)][x_part]), in_x[i] + j,
					from + x_row_of(i) < p.t ? bytes : 0);
		if (p.norm && thread() < x_lanes)
			copy_async_16(shared_address(&to.x[rows][x_part]), p.norm + j + x_part, bytes);
	}

	__attribute__((device, always_inline)) void load(Ring &to, int j, int end) const {
		load_w(to, j, end);
		load_x(to, j, end);
	}

	__attribute__((device, always_inline)) void take_apart_x(const Ring &now) {
		UNROLL for (int i = 0; i < x_loads; i++) {
			f32x4 v = whole4(&now.x[x_row_of(i)][x_part]);
			if (p.norm) {
				UNROLL for (int e = 0; e < 4; e++) square[i] = fma(v[e], v[e], square[i]);
				v *= whole4(&now.x[rows][x_part]);
			}
			u32x2 cut[parts];
			take_apart(v, cut);
			UNROLL for (int e = 0; e < parts; e++) put_pairs(&apart->x[e][x_row_of(i)][x_part], cut[e]);
		}
	}

	// Tensor cores truncate their accumulator. Split products of each 16 along k therefore are
	// summed from zero there, the smallest first, and added to the sums outside. What is left
	// out is 2^-24 of a product.
	__attribute__((device, always_inline)) void multiply(const Ring &now, int top, int left) {
		UNROLL for (int at = 0; at < depth / halves; at += 16) {
			int deep = half() * (depth / halves) + at;
			u32x4 x_parts[tall][parts];
			UNROLL for (int i = 0; i < tall; i++)
				UNROLL for (int e = 0; e < parts; e++)
					x_parts[i][e] = load_matrices(&apart->x[e][top + 16 * i + lane() % 16][deep + lane() / 16 * 8]);
			UNROLL for (int j = 0; j < wide; j++) {
				u32x2 w_parts[weights];
				fragments(w_parts, &now.w[left + 8 * j], deep);
				UNROLL for (int i = 0; i < tall; i++) {
					if constexpr (split) {
						f32x4 step;
						mma_from_zero(step, x_parts[i][pieces - weights], w_parts[weights - 1]);
						UNROLL for (int of_w = weights - 1; of_w >= 0; of_w--)
							UNROLL for (int e = pieces - 1 - of_w; e >= 0; e--)
								if (of_w < weights - 1 || e < pieces - weights)
									mma(step, x_parts[i][e], w_parts[of_w]);
						sums[i][j] += step;
					} else {
						mma(sums[i][j], x_parts[i][0], w_parts[0]);
					}
				}
			}
		}
	}

	// Adds up what two warps have of the same rows and columns: each gets half of the rows.
	__attribute__((device, always_inline)) void join() {
		auto *other = (f32x4 *)ring;
		int at = warp() % 4 * wide * 32 + lane();
		sync(); // the stages make room
		UNROLL for (int j = 0; j < wide; j++)
			put4((float *)(other + half() * 4 * wide * 32 + at + 32 * j), half() ? sums[0][j] : sums[tall - 1][j]);
		sync();
		UNROLL for (int j = 0; j < wide; j++) {
			f32x4 v = whole4((float *)(other + (1 - half()) * 4 * wide * 32 + at + 32 * j));
			UNROLL for (int e = 0; e < 4; e++)
				sums[0][j][e] = pick(half(), v[e] + sums[tall - 1][j][e], sums[0][j][e] + v[e]);
		}
	}

	// Leaves the sums of a slice where the last block finds them, and reports whether this is
	// the last. That one has the sums of all slices then.
	__attribute__((device, always_inline)) bool gather(float *squares) {
		SHARED static u32 before;
		const int size = rows * cols + rows;
		int tile = block_y() * blocks_x() + block_x(), last = blocks_z() - 1;
		float *all = p.partial + (i64)tile * blocks_z() * size, *mine = all + block_z() * size;
		UNROLL for (int i = 0; i < own * wide; i++) put4(mine + 4 * (256 * i + thread()), sums[i / wide][i % wide]);
		if (thread() < rows)
			mine[rows * cols + thread()] = squares[thread()];
		fence();
		sync();
		if (thread() == 0)
			before = atomic_inc(p.arrived + tile, last);
		sync();
		if (before != last)
			return false;
		fence();
		UNROLL for (int i = 0; i < own * wide; i++) sums[i / wide][i % wide] = 0;
		float square = 0;
		for (int z = 0; z <= last; z++, all += size) {
			UNROLL for (int i = 0; i < own * wide; i++)
				sums[i / wide][i % wide] += whole4(all + 4 * (256 * i + thread()));
			if (thread() < rows)
				square += all[rows * cols + thread()];
		}
		if (thread() < rows)
			squares[thread()] = square;
		sync();
		return true;
	}

	__attribute__((device, always_inline)) void run() {
		SHARED static float squares[rows];
		int begin = block_z() * p.slice, end = min(p.k, begin + p.slice), steps = ceil_div(end - begin, depth);
		int top = warp() / warps_across % warps_down * (rows / warps_down);
		int left = warp() % warps_across * (cols / warps_across);
		find();
		UNROLL for (int i = 0; i < x_loads; i++) square[i] = 0;
		UNROLL for (int i = 0; i < tall * wide; i++) sums[i / wide][i % wide] = 0;
		// Weights that no launch writes come before the launch before has ended. Those of all first
		// stages are in the first group then, which the first step waits for.
		auto first = [&](auto load) ALWAYS_INLINE {
			UNROLL for (int s = 0; s < stages - 1; s++) if (s < steps) load(s);
		};
		auto first_w = [&](int s) ALWAYS_INLINE { load_w(ring[s], begin + s * depth, end); };
		if (p.fixed)
			first(first_w);
		await();
		if (!p.fixed)
			first(first_w);
		UNROLL for (int s = 0; s < stages - 1; s++) {
			if (s < steps)
				load_x(ring[s], begin + s * depth, end);
			end_group();
		}
		int now = 0, next = stages - 1;
		for (int s = 0; s < steps; s++) {
			wait_groups<stages - 2>();
			sync();
			if (s + stages - 1 < steps)
				load(ring[next], begin + (s + stages - 1) * depth, end);
			end_group();
			take_apart_x(ring[now]);
			sync();
			multiply(ring[now], top, left);
			next = now;
			now = now == stages - 1 ? 0 : now + 1;
		}
		UNROLL for (int i = 0; i < x_loads; i++) {
			UNROLL for (int o = 1; o < x_lanes; o *= 2) square[i] += from_lane_xor(square[i], o);
			if (x_part == 0)
				squares[x_row_of(i)] = square[i];
		}
		if constexpr (halves == 2) {
			join();
			top += 16 * half();
		}
		sync();
		if (blocks_z() > 1 && !gather(squares))
			return;
		UNROLL for (int i = 0; i < own; i++)
			UNROLL for (int h = 0; h < 2; h++) {
				int row = top + 16 * i + 8 * h + lane() / 4, m = from + row;
				if (m >= p.t)
					continue;
				float factor = p.norm ? inverse_rms(squares[row], p.k, p.eps) : 1;
				UNROLL for (int j = 0; j < wide; j++)
					UNROLL for (int e = 0; e < 2; e++)
						put(m, left + 8 * j + lane() % 4 * 2 + e, i, j, 2 * h + e, factor);
			}
	}

	// Stores a sum, or what two make that one thread has.
	__attribute__((device, always_inline)) void put(int m, int column, int i, int j, int e, float factor) const {
		float v = sums[i][j][e] * factor;
		int at = col + column;
		if (p.other) {
			if (wide == 1 || j % 2)
				return;
			v = math::silu(v) * (sums[i][(j + 1) % wide][e] * factor);
			at = (col + column - column % 8) / 2 + column % 8;
		}
		if (at < p.n)
			p.y[m * p.ys + at] = Sum{p.add, p.as}.to(v, m, at);
	}
};

template <class T, bool split, int rows, int cols> DEVICE void product(const Product<T> &p) {
	using Of = Tile<T, split, rows, cols>;
	auto *ring = (typename Of::Ring *)shared_memory;
	Of tile{p, block_x() * rows, block_y() * cols, thread() / Of::x_lanes, thread() % Of::x_lanes * 4, ring,
			(typename Of::Apart *)(ring + Of::stages)};
	tile.run();
}

#define PRODUCT(T, rows, cols) \
	KERNEL THREADS_BLOCKS(256, 2) mma_split_##T##_##rows##_##cols(Product<T> p) { product<T, true, rows, cols>(p); } \
	KERNEL THREADS_BLOCKS(256, 2) mma_round_##T##_##rows##_##cols(Product<T> p) { product<T, false, rows, cols>(p); }

#define ALL(T) PRODUCT(T, 32, 32) PRODUCT(T, 32, 128) PRODUCT(T, 64, 32) PRODUCT(T, 64, 128)
ALL(FORMAT)

// What products of experts share: whose rows they are, and what comes behind the sums.
#pragma once
#include "matmul.h"

// A token has a slot for each expert that it uses.
//
// Those rows of x that an expert has: a list of slots, of which each share rows of x.
struct Listed {
	static const bool ragged = true;
	int count, share;
	const int *slots;

	__attribute__((device)) int in(int i) const { return slots[i] / share; }
};

// A product of the experts with the rows that they have. Their weights are es apart. Both says that
// w1 is multiplied, too: of each row comes act(x wᵀ) · x w1ᵀ, and otherwise act(x wᵀ). Where there
// is a function, what comes is times the weight of the token's expert.
struct Experts {
	const int *counts, *lists; // of the slots of each, of lists of tokens slots
	const float *weights;      // of tokens, ts apart
	i64 ts, es;
	int experts, tokens, room, share, act, both;

	__attribute__((device)) Listed rows(int e) const { return Listed{counts[e], share, lists + (i64)e * tokens}; }
};

// What the kernels of experts' products are given: x and y in V, weights in T.
template <class T, class V = float> struct Mixture {
	V *y;
	i64 ys;
	const V *x;
	i64 xs;
	const T *w, *w1;
	i64 ws;
	int n, k, vec;
	Sum add;
	Experts of;
};

template <class F> DEVICE f32x4 each(f32x4 v, F f) { return f32x4{f(v[0]), f(v[1]), f(v[2]), f(v[3])}; }
template <class F> DEVICE float each(float v, F f) { return f(v); }

// The functions that experts may have, in the order of expertActs (experts.go); 0 is none.
template <class V> DEVICE V activation(int act, V v) {
	switch (act) {
	case 1: return each(v, [](float x) { return math::silu(x); });
	case 2: return each(v, [](float x) { return math::gelu(x); });
	case 3: return each(v, [](float x) { return math::gelu_tanh(x); });
	case 4: return each(v, [](float x) { return math::relu(x); });
	case 5: return each(v, [](float x) { return math::relu2(x); });
	}
	return v;
}

// The rows of one weight, or of two by eights: of a tile half of the columns are the gate's then,
// from one on, and beside each eight of them are the same of up, which lie up elements behind. (A
// choice between pointers would put them into local memory.)
template <class T> struct Paired {
	const T *w;
	i64 up, stride;
	int from, n, both;

	template <class V>
	__attribute__((device)) Paired(const Mixture<T, V> &arg, int expert, int from)
		: w(arg.w + expert * arg.of.es), up(arg.w1 - arg.w), stride(arg.ws), from(from), n(arg.n), both(arg.of.both) {}

	__attribute__((device)) Row<T> row(int c) const {
		i64 to = both && c / 8 % 2 ? up : 0;
		return row_of(w + to, min(from + (both ? c / 16 * 8 + c % 8 : c), n - 1), stride);
	}
};

// Stores some rows of a tile, whose sums lie in shared memory, Stride apart: row(i) is which of the
// expert's the i-th is. By all threads of the block, which have waited for each other.
template <int Rows, int Cols, int Stride, class Y, class Row>
DEVICE void put_rows(float *sums, const Experts &x, const Listed &rows, int expert, Y *y, i64 ys, int col, int n,
		int vec, Row row) {
	int fours = x.both ? Cols / 8 : Cols / 4;
	NO_UNROLL for (int i = thread(); i < Rows * fours; i += threads()) {
		int own = i / fours, j = 4 * (i % fours), m = row(own), at = col + j;
		if (m >= rows.count || at >= n)
			continue;
		float *from = sums + own * Stride + (x.both ? j / 8 * 16 + j % 8 : j);
		int slot = rows.slots[m];
		if (x.act) { // one by one, in place: four times all functions would be most of the kernel
			float weight = x.weights[slot / x.room * x.ts + expert];
			NO_UNROLL for (int e = 0; e < 4; e++)
				from[e] = activation(x.act, from[e]) * (x.both ? from[8 + e] : 1) * weight;
		}
		store4(y + slot * ys + at, whole4(from), n - at, vec & stores);
	}
}

// What comes behind the sums of a tile on tensor cores, of Tall times 32 rows and Cols columns,
// which pass through the shared memory of the operands, 32 rows at a time.
template <int Tall, int Cols, class Y> struct Finish {
	Experts x;
	Listed rows;
	int expert;
	Y *y;
	i64 ys;
	int from, col, n, vec;

	__attribute__((device, always_inline)) void operator()(f32x4 (&sums)[Tall][Cols / 32], int top, int left,
			float *shared) const {
		const int stride = Cols + 8; // so that pairs of a half of a warp lie in all banks
		NO_UNROLL for (int now = 0; now < Tall; now++) {
			UNROLL for (int i = 0; i < Tall; i++) if (i == now)
				UNROLL for (int e = 0; e < Cols / 32; e++)
					UNROLL for (int h = 0; h < 2; h++) {
						int own = top / Tall + 8 * h + lane() / 4, at = left + 8 * e + lane() % 4 * 2;
						*(f32x2 *)&shared[own * stride + at] = f32x2{sums[i][e][2 * h], sums[i][e][2 * h + 1]};
					}
			sync();
			auto row = [=, this](int i) ALWAYS_INLINE { return from + i / 16 * 16 * Tall + 16 * now + i % 16; };
			put_rows<32, Cols, stride>(shared, x, rows, expert, y, ys, col, n, vec, row);
			sync();
		}
	}
};

// Mixtures of experts: which experts a token uses, and what comes around the matrix
// products of matmul.cu. A token with some weights that are not 0
// has a slot for each of them, in the order of the experts: token · room + i.
#include "router.h"

// What chooses between experts, by their scores. Blocks of 128 threads are (tokens).
KERNEL THREADS(128) router(float *y, i64 ys, const float *__restrict__ x, i64 xs, int experts, int top, int norm) {
	route(y + block_x() * ys, x + block_x() * xs, experts, top, norm);
}

// The key that sigmoid_router chooses by. A NaN comes first, to be seen.
DEVICE float choice_key(float x, float bias) {
	float key = 1 / (1 + math::exp(-x)) + bias;
	return key == key ? key : __builtin_inff();
}

// The bits of the kept groups of experts, which have the largest sums of two keys. By all threads
// of a block, of a token.
DEVICE u64 open_groups(const float *__restrict__ x, const float *__restrict__ bias, int size, int groups, int kept) {
	SHARED static float sums[64];
	if (groups == kept)
		return ~0ull;
	for (int g = thread(); g < groups; g += threads()) {
		float first = -__builtin_inff(), second = first;
		for (int j = g * size; j < (g + 1) * size; j++) {
			float key = choice_key(x[j], bias[j]);
			second = key > first ? first : max(second, key);
			first = max(first, key);
		}
		sums[g] = size > 1 ? first + second : first;
	}
	sync();
	u64 open = 0;
	for (int g = 0; g < groups; g++) {
		int before = 0;
		for (int i = 0; i < groups; i++)
			before += sums[i] > sums[g] || (sums[i] == sums[g] && i < g);
		open |= (u64)(before < kept) << g;
	}
	return open;
}

// The sigmoid of the scores, for those experts that have the top with the bias added in the kept
// groups, of equal ones the first; others are 0. Norm divides by the sum of those that stay plus
// eps. Blocks of 128 threads are (tokens).
struct SigmoidRouter {
	float *y;
	i64 ys;
	const float *x;
	i64 xs;
	const float *bias;
	int experts, top, norm, groups, kept;
	float eps;
};

KERNEL THREADS(128) sigmoid_router(SigmoidRouter arg) {
	const float *x = arg.x + block_x() * arg.xs, *bias = arg.bias;
	float *y = arg.y + block_x() * arg.ys;
	int experts = arg.experts, size = experts / arg.groups;
	u64 open = open_groups(x, bias, size, arg.groups, arg.kept);
	float total = 0;
	for (int j = thread(); j < experts; j += 128) {
		int before = open >> j / size & 1 ? 0 : arg.top;
		float key = choice_key(x[j], bias[j]);
		for (int i = 0; i < experts; i++) {
			float other = choice_key(x[i], bias[i]);
			before += open >> i / size & 1 && (other > key || (other == key && i < j));
		}
		float p = before < arg.top ? 1 / (1 + math::exp(-x[j])) : 0;
		y[j] = p;
		total += p;
	}
	if (!arg.norm)
		return;
	total = block_sum(total) + arg.eps;
	for (int j = thread(); j < experts; j += 128)
		y[j] /= total;
}

// Lists the slots that use each expert, in the order of the tokens. A block of
// 256 threads has an expert. That a token uses more experts than there is room
// for is a bug of the caller.
KERNEL THREADS(256) experts_lists(int *__restrict__ counts, int *__restrict__ lists, const float *__restrict__ weights,
		i64 ws, int tokens, int room) {
	SHARED static int totals[8];
	int expert = block_x(), count = 0;
	lists += (i64)expert * tokens;
	for (int base = 0; base < tokens; base += 256) {
		int t = base + thread();
		bool uses = t < tokens && weights[t * ws + expert] != 0;
		u32 users = ballot(uses);
		sync(); // totals may be in use
		if (lane() == 0)
			totals[warp()] = __builtin_popcount(users);
		sync();
		int at = count + __builtin_popcount(users & ((1u << lane()) - 1));
		for (int w = 0; w < 8; w++) {
			at += w < warp() ? totals[w] : 0;
			count += totals[w];
		}
		if (uses) {
			int before = 0;
			for (int e = 0; e < expert; e++)
				before += weights[t * ws + e] != 0;
			if (before >= room)
				__builtin_trap();
			lists[at] = t * room + before;
		}
	}
	if (thread() == 0)
		counts[expert] = count;
}

// Adds what the experts of a token put out, and to what there is, where that is not null: it may
// lie where the sum does. Blocks are (tokens, columns / 1024).
template <class X> struct ExpertsSum {
	float *y;
	i64 ys;
	const X *outputs;
	const float *weights;
	i64 ws;
	int experts, room, cols, vec;
	const float *add;
	i64 as;
};

template <class X> DEVICE void sum_experts(const ExpertsSum<X> &arg) {
	each4(arg.cols, [=](i64 t, int j, int n) {
		f32x4 sum = 0;
		int i = 0;
		for (int e = 0; e < arg.experts; e++)
			if (arg.weights[t * arg.ws + e] != 0)
				sum += load4(arg.outputs + (t * arg.room + i++) * arg.cols + j, n, arg.vec);
		if (arg.add)
			sum += load4(arg.add + t * arg.as + j, n, arg.vec);
		store4(arg.y + t * arg.ys + j, sum, n, arg.vec);
	});
}

KERNEL THREADS(256) experts_sum(ExpertsSum<float> arg) { sum_experts(arg); }
KERNEL THREADS(256) experts_sum_bf16(ExpertsSum<bf16> arg) { sum_experts(arg); }

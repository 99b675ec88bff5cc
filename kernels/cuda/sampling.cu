// Choosing tokens from logits: the highest, or at random from those that top-k
// and top-p keep. A row is a block of 1024 threads. Instead of a token the result
// is broken_logits where a logit is NaN or +Inf, no_token where all are -Inf, and
// bad_choice where the row of choices is not what its columns may be.
#include "krait.h"

const int broken_logits = -1, no_token = -2, bad_choice = -3;

const float infinity = __builtin_inff(), largest = 3.4028234e38f;

struct Best {
	float score;
	int id;
};

DEVICE Best better(Best a, Best b) { return b.score > a.score || (b.score == a.score && b.id < a.id) ? b : a; }

DEVICE Best warp_best(Best b) {
	UNROLL for (int o = 16; o > 0; o /= 2)
		b = better(b, Best{from_lane_xor(b.score, o), __nvvm_shfl_sync_bfly_i32(all_lanes, b.id, o, 31)});
	return b;
}

// The scores of a row: its logits, with the penalty on the tokens whose bit is set.
// They stay finite, so that an extreme penalty neither excludes a token nor breaks
// the logits.
struct Scores {
	const float *logits;
	const int *seen;
	float penalty; // 0: none
};

DEVICE float score(const Scores &of, int i) {
	float x = of.logits[i];
	if (of.penalty == 0 || !(of.seen[i >> 5] >> (i & 31) & 1) || x < -largest)
		return x;
	x = x > 0 ? x / of.penalty : x * of.penalty;
	return x > largest ? largest : x < -largest ? -largest : x;
}

// The first of the highest scores, on all threads; its id may be one of the above.
DEVICE Best argmax(Scores x, int n) {
	SHARED static Best bests[32];
	Best best = {-infinity, no_token};
	for (int i = thread(); i < n; i += 1024) {
		float s = score(x, i);
		if (!(x.logits[i] < infinity))
			best = Best{infinity, broken_logits};
		else if (s > best.score)
			best = Best{s, i};
	}
	best = warp_best(best);
	if (lane() == 0)
		bests[warp()] = best;
	sync();
	return warp_best(bests[lane()]);
}

// How a row's token is chosen: see kernels.Choice, and for the columns package graph.
struct Choice {
	float temperature, top_k, top_p, penalty, uniform, uniform_rest;
};

DEVICE bool from_0(float x, float to) { return x >= 0 && x <= to; }

DEVICE bool legal(const Choice &c) {
	double uniform = (double)c.uniform + c.uniform_rest;
	return from_0(c.temperature, largest) && c.top_k >= 0 && from_0(c.top_p, 1) && from_0(c.penalty, largest) && uniform >= 0 && uniform < 1;
}

// Maps scores to integers in the same order.
DEVICE u32 order_key(float score) {
	u32 bits = bits_of(score == 0 ? 0.f : score); // -0 equals 0
	return bits >> 31 ? ~bits : bits | 1u << 31;
}

DEVICE float score_of(u32 key) { return float_of(key >> 31 ? key & 0x7fffffff : ~key); }

// Weights are integers, so that sums are exact in any order: the best token has 2^40.
DEVICE u64 weight_of(float score, float best, float rate) {
	if (score == best)
		return 1ull << 40;
	return score < -largest ? 0 : (u64)(math::exp2((score - best) * rate) * 0x1p40f);
}

// The sum over the threads of those before, and of all.
struct Prefix {
	u64 before, all;
};

DEVICE u64 warp_prefix(u64 v) {
	UNROLL for (int o = 1; o < 32; o *= 2) {
		u64 below = from_lane_below(v, o);
		v += lane() >= o ? below : 0;
	}
	return v;
}

DEVICE u64 from_lane(u64 v, int at) { return (u64)(u32)from_lane((int)(v >> 32), at) << 32 | (u32)from_lane((int)v, at); }

DEVICE Prefix block_prefix(u64 v) {
	SHARED static u64 totals[32];
	u64 upto = warp_prefix(v);
	sync(); // totals may be in use
	if (lane() == 31)
		totals[warp()] = upto;
	sync();
	u64 warps = warp_prefix(totals[lane()]);
	u64 all = from_lane(warps, 31), before = from_lane(warps, max(warp() - 1, 0));
	return Prefix{upto - v + (warp() > 0 ? before : 0), all};
}

// The sum of weigh(i) over the elements whose key is at least the key given.
template <class F> DEVICE u64 sum_from(u32 key, Scores x, int n, F weigh) {
	u64 sum = 0;
	for (int i = thread(); i < n; i += 1024)
		if (float s = score(x, i); order_key(s) >= key)
			sum += weigh(s);
	return block_prefix(sum).all;
}

// The highest key such that the weights of all keys at or above it sum to at
// least goal, by its bits, two at a time: three sums are taken in one go over the
// row, which lies in a cache.
template <class F> DEVICE u32 threshold(u64 goal, Scores x, int n, F weigh) {
	u32 key = 0;
	NO_UNROLL for (int shift = 30; shift >= 0; shift -= 2) {
		u64 sums[3] = {};
		for (int i = thread(); i < n; i += 1024) {
			float s = score(x, i);
			u32 k = order_key(s);
			if (k < (key | 1u << shift))
				continue;
			u64 w = weigh(s);
			UNROLL for (u32 d = 1; d < 4; d++) sums[d - 1] += k >= (key | d << shift) ? w : 0;
		}
		u32 digit = 0;
		UNROLL for (u32 d = 1; d < 4; d++) if (block_prefix(sums[d - 1]).all >= goal) digit = d;
		key |= digit << shift;
	}
	return key;
}

// Adds up tokens in rising order, 4 per thread at a time, until the sum passes what
// was drawn: those whose key is above least, and of those that tie with it as many
// as ties says.
DEVICE void take(int *id, Scores x, int n, u32 least, u64 ties, float best, float rate, u64 drawn) {
	for (int base = 0; base < n; base += 4096) {
		int first = base + 4 * thread();
		u32 keys[4];
		float scores[4];
		int equal = 0;
		UNROLL for (int k = 0; k < 4; k++) {
			scores[k] = first + k < n ? score(x, first + k) : -infinity;
			keys[k] = order_key(scores[k]);
			equal += first + k < n && keys[k] == least;
		}
		Prefix tie = block_prefix(equal);
		u64 rank = tie.before, sum = 0;
		u64 weights[4];
		UNROLL for (int k = 0; k < 4; k++) {
			bool kept = keys[k] > least || (keys[k] == least && rank++ < ties);
			weights[k] = kept ? weight_of(scores[k], best, rate) : 0;
			sum += weights[k];
		}
		Prefix part = block_prefix(sum);
		ties -= min((int)tie.all, (int)ties);
		if (drawn >= part.all) {
			drawn -= part.all;
			continue;
		}
		u64 at = part.before;
		if (at <= drawn && drawn < at + sum)
			UNROLL for (int k = 0; k < 4; k++) {
				if (at <= drawn && drawn < at + weights[k])
					*id = first + k;
				at += weights[k];
			}
		return;
	}
}

KERNEL THREADS(1024) choose(int *__restrict__ ids, const float *__restrict__ logits, i64 xs, int n, const float *__restrict__ choices, i64 cs,
	const int *__restrict__ seen, i64 ss) {
	int *id = ids + block_x();
	const float *how = choices + block_x() * cs;
	Choice choice = {how[0], how[1], how[2], how[3], how[4], how[5]};
	if (!legal(choice)) {
		if (thread() == 0)
			*id = bad_choice;
		return;
	}
	Scores x = {logits + block_x() * xs, seen + block_x() * ss, choice.penalty == 1 ? 0 : choice.penalty};
	Best best = argmax(x, n);
	if (best.id < 0 || choice.temperature == 0) {
		if (thread() == 0)
			*id = best.id;
		return;
	}
	float rate = 1.4426950408889634 / choice.temperature;
	u32 least = 0; // key of what top-k keeps
	if (choice.top_k >= 1 && choice.top_k < n)
		least = threshold((u64)choice.top_k, x, n, [](float) { return 1ull; });
	auto weigh = [=](float score) { return order_key(score) >= least ? weight_of(score, best.score, rate) : 0ull; };
	u64 mass = sum_from(least, x, n, weigh);
	u64 ties = n; // how many of those with the least key stay
	if (choice.top_p > 0 && choice.top_p < 1) {
		u64 goal = __builtin_ceil((double)choice.top_p * mass);
		least = threshold(goal, x, n, weigh);
		u64 above = sum_from(least + 1, x, n, weigh);
		u64 each = weight_of(score_of(least), best.score, rate);
		ties = (goal - above + each - 1) / each;
		mass = above + ties * each;
	}
	u64 drawn = ((double)choice.uniform + choice.uniform_rest) * mass;
	take(id, x, n, least, ties, best.score, rate, drawn < mass ? drawn : mass - 1);
}

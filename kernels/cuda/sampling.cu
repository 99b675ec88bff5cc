// Choosing tokens from logits: the highest, or at random from those that top-k
// and top-p keep. Instead of a token the result is broken_logits where a logit is NaN
// or +Inf, no_token where all are -Inf, and bad_choice where the row of choices is not
// what its columns may be.
//
// A row is cut into pieces, and blocks are (rows, pieces). Three launches read it
// once each: choose_best finds the highest score; choose_bins counts the tokens of
// each of 512 bins of scores, and sums their weights; from these choose_token knows in
// which few bins top-k and top-p end, lists the tokens in them, and its last block
// finds among those alone where they do. Sums are of integers: exact in any order.
#include "krait.h"

const int broken_logits = -1, no_token = -2, bad_choice = -3;
const int block = 256, warps = block / 32; // threads
const int bins = 2 * block;                // and the most pieces of a row: a thread has two
const int bin_bits = 9;
const int chunk = 2048; // tokens whose weights, in halves, add up in 32 bits
const int listable = 4096;

const float infinity = __builtin_inff(), largest = 3.4028234e38f;

// The scores of a row: its logits, with the penalty on the tokens whose bit is set.
// They stay finite, so that an extreme penalty neither excludes a token nor breaks
// the logits.
struct Scores {
	const float *logits;
	const int *seen;
	float penalty; // 0: none
};

DEVICE float penalised(const Scores &of, int i, float x) {
	if (of.penalty == 0 || !(of.seen[i >> 5] >> (i & 31) & 1) || x < -largest)
		return x;
	x = x > 0 ? x / of.penalty : x * of.penalty;
	return x > largest ? largest : x < -largest ? -largest : x;
}

DEVICE float score(const Scores &of, int i) { return penalised(of, i, of.logits[i]); }

// Calls f for tokens from first to end, of which each thread has one of 256, with logit
// and score; of those beyond the end both are -Inf. The next logit is on its way meanwhile.
template <class F> DEVICE void each_score(const Scores &of, int first, int end, F f) {
	int i = first + thread();
	float next = i < end ? of.logits[i] : -infinity;
	NO_UNROLL for (; i - thread() < end; i += block) {
		float x = next;
		next = i + block < end ? of.logits[i + block] : -infinity;
		f(i, x, i < end ? penalised(of, i, x) : x);
	}
}

// How a row's token is chosen: see kernels.Choice, and for the columns package graph.
struct Choice {
	float temperature, top_k, top_p, penalty, uniform, uniform_rest;
};

DEVICE bool from_0(float x, float to) { return x >= 0 && x <= to; }

DEVICE Choice choice_of(const float *how) { return Choice{how[0], how[1], how[2], how[3], how[4], how[5]}; }

DEVICE bool legal(const Choice &c) {
	double uniform = (double)c.uniform + c.uniform_rest;
	return from_0(c.temperature, largest) && c.top_k >= 0 && from_0(c.top_p, 1) && from_0(c.penalty, largest)
			&& uniform >= 0 && uniform < 1;
}

// Maps scores to integers in the same order.
DEVICE u32 order_key(float score) {
	u32 bits = bits_of(score == 0 ? 0.f : score); // -0 equals 0
	return bits >> 31 ? ~bits : bits | 1u << 31;
}

DEVICE float score_of(u32 key) { return float_of(key >> 31 ? key & 0x7fffffff : ~key); }

// The first of the highest scores of some tokens, and the lowest finite one, as keys.
struct Range {
	u32 best;
	int id;
	u32 low;
};

const Range no_range = {0, no_token, ~0u};
const u32 broken = ~0u; // the key of NaN and +Inf; that of -Inf is 0 here

DEVICE void join(Range &r, u32 key, int id, u32 low) {
	r.id = key > r.best ? id : r.id;
	r.best = key > r.best ? key : r.best;
	r.low = low < r.low ? low : r.low;
}

DEVICE Range warp_range(Range r) {
	u32 best = __nvvm_redux_sync_umax(r.best, all_lanes);
	int id = __nvvm_redux_sync_min(r.best == best ? r.id : 0x7fffffff, all_lanes);
	return Range{best, id, (u32)__nvvm_redux_sync_umin(r.low, all_lanes)};
}

// What all threads have, on each of them.
DEVICE Range block_range(Range r) {
	SHARED static Range ranges[warps];
	r = warp_range(r);
	if (lane() == 0)
		ranges[warp()] = r;
	sync();
	return warp_range(ranges[lane() % warps]);
}

// Weights are integers, so that sums are exact in any order: the best token has 2^40.
DEVICE u64 weight_of(float score, float best, float rate) {
	u64 weight = math::exp2((score - best) * rate) * 0x1p40f;
	return score == best ? 1ull << 40 : weight;
}

// The sum over the threads of those before, and of all.
template <class T> struct Prefix {
	T before, all;
};

DEVICE u32 from_lane_below(u32 v, int by) { return from_lane_below((int)v, by); }
DEVICE u32 from_lane(u32 v, int at) { return from_lane((int)v, at); }
DEVICE u64 from_lane(u64 v, int at) { return (u64)from_lane((u32)(v >> 32), at) << 32 | from_lane((u32)v, at); }

template <int lanes, class T> DEVICE T warp_prefix(T v) {
	UNROLL for (int o = 1; o < lanes; o *= 2) {
		T below = from_lane_below(v, o);
		v += lane() >= o ? below : 0;
	}
	return v;
}

template <class T> DEVICE Prefix<T> block_prefix(T v) {
	SHARED static T totals[warps];
	T upto = warp_prefix<32>(v);
	sync(); // totals may be in use
	if (lane() == 31)
		totals[warp()] = upto;
	sync();
	T sums = warp_prefix<warps>(totals[lane() % warps]);
	T all = from_lane(sums, warps - 1), before = from_lane(sums, max(warp() - 1, 0));
	return Prefix<T>{upto - v + (warp() > 0 ? before : 0), all};
}

DEVICE u32 from_lane_xor(u32 v, int mask) { return __nvvm_shfl_sync_bfly_i32(all_lanes, v, mask, 31); }

// The sum over the threads alone.
DEVICE u64 block_total(u64 v) {
	SHARED static u64 totals[warps];
	auto add = [](u64 v, int lanes) {
		NO_UNROLL for (int o = lanes / 2; o > 0; o /= 2)
			v += (u64)from_lane_xor((u32)(v >> 32), o) << 32 | from_lane_xor((u32)v, o);
		return v;
	};
	v = add(v, 32);
	sync(); // totals may be in use
	if (lane() == 0)
		totals[warp()] = v;
	sync();
	return add(totals[lane() % warps], warps);
}

// What is in the scratch of a row, as long as sampling.go has it; choose_best clears what is
// added to: its first parts, up to done.
struct Row {
	u64 weights[bins];
	u32 counts[bins];
	u32 listed, done, unused[2]; // tokens in bins that are listed; blocks that have ended
	u32x4 list[listable];        // see Token
	u64 sums[bins];              // of the weights in each piece that are kept for sure
	Range ranges[bins];          // of pieces
};

// A row, and the block's piece of it.
struct Job {
	Scores x;
	Choice how;
	Row *row;
	int n, piece, pieces; // tokens, those of a piece, pieces
	int first, end;       // of the block's piece
};

// What all three launches take.
struct Params {
	const float *logits, *choices;
	const int *seen;
	Row *rows;
	int *ids;
	i64 logits_stride, choices_stride, seen_stride;
	int n, piece;
};

DEVICE Job job_of(const Params &p) {
	Choice how = choice_of(p.choices + block_x() * p.choices_stride);
	Scores x = {p.logits + block_x() * p.logits_stride, p.seen + block_x() * p.seen_stride,
			how.penalty == 1 ? 0 : how.penalty};
	int first = block_y() * p.piece;
	return Job{x, how, p.rows + block_x(), p.n, p.piece, ceil_div(p.n, p.piece), first, min(p.n, first + p.piece)};
}

KERNEL THREADS(block) choose_best(Params p) {
	Job job = job_of(p);
	if (!legal(job.how))
		return;
	if (job.how.temperature > 0)
		for (int i = block_y() * block + thread(); i < 3 * bins + 2; i += job.pieces * block)
			((u32 *)job.row)[i] = 0;
	Range r = no_range;
	each_score(job.x, job.first, job.end, [&](int i, float x, float s) {
		u32 key = order_key(s);
		join(r, x < -largest ? 0 : x < infinity ? key : broken, i, x < -largest ? ~0u : key);
	});
	r = block_range(r);
	if (thread() == 0)
		job.row->ranges[block_y()] = r;
}

// The range of the row.
DEVICE Range range_of(const Job &job) {
	Range r = no_range;
	NO_UNROLL for (int i = thread(); i < job.pieces; i += block) {
		Range piece = job.row->ranges[i];
		join(r, piece.best, piece.id, piece.low);
	}
	r = block_range(r);
	r.id = r.best == broken ? broken_logits : r.id;
	return r;
}

// Bins are of equal width in score, from the best one down to the lowest, or to where
// weights are 0 for sure: they fit rows and temperatures of all kinds, and a bin that
// top-k or top-p ends in has few tokens.
struct Bins {
	float best, rate, scale;
};

const float weightless = -42; // 2^-42 of 2^40 is 0, and so is what 2^x is taken for there

DEVICE Bins bins_of(const Range &r, float temperature) {
	Bins b;
	b.best = score_of(r.best);
	b.rate = 1.4426950408889634 / temperature;
	float lowest = b.best - score_of(r.low), down_to = -weightless / b.rate;
	b.scale = bins / (lowest < down_to ? lowest : down_to);
	return b;
}

// The bin of a score, or bins if its weight is 0 for sure. It falls as scores rise, also
// where scale is 0 or infinite: what is not a number is in the last.
DEVICE int bin_of(const Bins &b, float score) {
	float bin = (b.best - score) * b.scale;
	return (score - b.best) * b.rate < weightless ? bins : (int)(bin < bins - 1 ? bin : bins - 1);
}

DEVICE u64 weight_of(const Bins &b, float score) { return weight_of(score, b.best, b.rate); }

DEVICE u32 atomic_add(u32 *p, u32 v) { return __nvvm_atom_add_gen_i((int *)p, v); }
DEVICE void atomic_add(u64 *p, u64 v) { __nvvm_atom_add_gen_ll((i64 *)p, v); }

KERNEL THREADS(block) choose_bins(Params p) {
	SHARED static u32 counts[bins], lower[bins], upper[bins]; // 20 bits of weights, and the others
	Job job = job_of(p);
	bool ok = legal(job.how), drawn = ok && job.how.temperature > 0;
	if (block_y() > 0 && !drawn)
		return;
	Range r = {0, bad_choice};
	if (ok)
		r = range_of(job);
	if (r.id < 0 || !drawn) {
		if (block_y() == 0 && thread() == 0)
			p.ids[block_x()] = r.id;
		return;
	}
	Bins of = bins_of(r, job.how.temperature);
	for (int from = job.first; from < job.end; from += chunk) {
		for (int bin = thread(); bin < bins; bin += block)
			counts[bin] = lower[bin] = upper[bin] = 0;
		sync();
		each_score(job.x, from, min(from + chunk, job.end), [=](int, float, float score) {
			int bin = bin_of(of, score);
			if (bin == bins)
				return;
			u64 w = weight_of(of, score);
			atomic_add(&counts[bin], 1);
			atomic_add(&lower[bin], w & 0xfffff);
			atomic_add(&upper[bin], w >> 20);
		});
		sync();
		for (int b = thread(); b < bins; b += block)
			if (counts[b] > 0) {
				atomic_add(&job.row->counts[b], counts[b]);
				atomic_add(&job.row->weights[b], ((u64)upper[b] << 20) + lower[b]);
			}
	}
}

// Two numbers of a thread, of 512 in a row, and the sums over those of the threads before and of
// all.
struct Two {
	u64 first, second;
	Prefix<u64> sum;
};

template <class T> DEVICE Two two_of(T first, T second) {
	Prefix<T> sum = block_prefix(first + second);
	return Two{first, second, {sum.before, sum.all}};
}

// Where a sum reaches a goal, and what is summed up before that.
struct Reached {
	int at;                  // bins: nowhere
	u64 before, other, upto; // of the numbers; of others, before and with that place
};

// The first place up to which the numbers sum to at least goal, which is not 0.
DEVICE Reached reach(u64 goal, const Two &of, const Two &others) {
	SHARED static Reached reached;
	if (goal > of.sum.all)
		return Reached{bins, of.sum.all, others.sum.all, others.sum.all};
	sync(); // it may be in use
	if (of.sum.before < goal && goal <= of.sum.before + of.first + of.second) {
		bool second = goal > of.sum.before + of.first;
		u64 other = others.sum.before + (second ? others.first : 0);
		reached = Reached{2 * thread() + second, of.sum.before + (second ? of.first : 0), other,
				other + (second ? others.second : others.first)};
	}
	sync();
	return reached;
}

DEVICE u64 goal_of(float top_p, u64 mass) { return __builtin_ceil((double)top_p * mass); }

// What the bins say of a row. Where top-p ends depends on all weights that top-k
// keeps, of which the bins tell a range: it ends in one of those from first to last.
struct Cut {
	int kept;        // bins before are kept for sure
	int first, last; // where top-p ends; none where it keeps all
	int k_bin;       // where top-k ends; -1: it keeps all that have a weight
	u64 k_left;      // tokens that top-k keeps of that bin
	u64 mass;        // weights of the tokens that top-k keeps: of bins before it
	u64 before;      // weights of the bins before first
};

DEVICE Cut cut_of(const Job &job) {
	const Row *row = job.row;
	const Choice &how = job.how;
	int t = 2 * thread();
	Two counts = two_of(row->counts[t], row->counts[t + 1]), weights = two_of(row->weights[t], row->weights[t + 1]);
	Cut cut = {bins, 0, -1, -1, 0, weights.sum.all, 0};
	u64 most = cut.mass;
	if (how.top_k >= 1 && how.top_k < job.n) {
		Reached k = reach(how.top_k, counts, weights);
		if (k.at < bins)
			cut.kept = cut.k_bin = k.at;
		cut.k_left = (u64)how.top_k - k.before;
		cut.mass = k.other;
		most = k.upto;
	}
	if (how.top_p > 0 && how.top_p < 1) {
		u64 least = cut.mass > 1ull << 40 ? cut.mass : 1ull << 40; // the best token is kept
		Reached first = reach(goal_of(how.top_p, least), weights, weights);
		cut.kept = cut.first = first.at;
		cut.before = first.before;
		cut.last = reach(goal_of(how.top_p, most), weights, weights).at;
	}
	return cut;
}

DEVICE bool listed(const Cut &cut, int bin) { return bin == cut.k_bin || (bin >= cut.first && bin <= cut.last); }

// A token in a bin that is listed.
struct Token {
	u32 key, piece;
	bool in_k; // in the bin where top-k ends
	u64 weight;
};

DEVICE Token token_of(const Bins &of, const Cut &cut, float s, int bin, int piece) {
	return Token{order_key(s), (u32)piece, bin == cut.k_bin, weight_of(of, s)};
}

DEVICE u32x4 packed(const Token &t) {
	return u32x4{t.key, t.piece << 1 | t.in_k, (u32)t.weight, (u32)(t.weight >> 32)};
}
DEVICE Token token_of(u32x4 v) { return Token{v[0], v[1] >> 1, (bool)(v[1] & 1), (u64)v[3] << 32 | v[2]}; }

// The block's piece: the tokens in bins that are listed are, and the weights of those
// that are kept for sure summed up.
DEVICE void list_piece(const Job &job, const Bins &of, const Cut &cut) {
	u64 sum = 0;
	each_score(job.x, job.first, job.end, [&](int, float, float s) {
		int bin = bin_of(of, s);
		bool mine = listed(cut, bin);
		Token t = token_of(of, cut, s, bin, block_y());
		if (bin < cut.kept)
			sum += t.weight;
		u32 who = ballot(mine);
		if (who == 0)
			return;
		u32 at = lane() == 0 ? atomic_add(&job.row->listed, __builtin_popcount(who)) : 0;
		at = from_lane(at, 0) + __builtin_popcount(who & ((1u << lane()) - 1));
		if (mine && at < listable)
			job.row->list[at] = packed(t);
	});
	sum = block_total(sum);
	if (thread() == 0)
		job.row->sums[block_y()] = sum;
}

// The tokens in bins that are listed: those of the list, or where it is too short, of the
// row.
struct Listed {
	const Job &job;
	const Bins &of;
	const Cut &cut;
	u32 count;
};

// Calls f for the thread's share of them.
template <class F> DEVICE void each(const Listed &l, F f) {
	bool whole = l.count <= listable;
	int n = whole ? l.count : l.job.n;
	NO_UNROLL for (int i = thread(); i < n; i += block) {
		Token t;
		if (whole) {
			t = token_of(l.job.row->list[i]);
		} else {
			float own = score(l.job.x, i);
			int bin = bin_of(l.of, own);
			if (!listed(l.cut, bin))
				continue;
			t = token_of(l.of, l.cut, own, bin, i / l.job.piece);
		}
		f(t);
	}
}

SHARED static u64 sums[bins]; // of keys, then of pieces

// A key, and the sum over the keys above it.
struct Selected {
	u32 key;
	u64 above;
};

// The highest key of those listed such that the tokens with it or above it, of the bin
// where top-k ends, or by their weights, sum to at least goal: by 9 bits at a time, from
// the lowest possible key.
DEVICE Selected select(const Listed &l, u64 goal, bool by_weight) {
	SHARED static u32 lowest, highest;
	auto amount = [=](const Token &t) { return by_weight ? t.weight : (u64)t.in_k; };
	sync(); // they may be in use
	if (thread() == 0)
		lowest = ~0u, highest = 0;
	sync();
	each(l, [=](const Token &t) {
		if (amount(t) > 0) {
			__nvvm_atom_min_gen_ui(&lowest, t.key);
			__nvvm_atom_max_gen_ui(&highest, t.key);
		}
	});
	sync();
	u32 key = lowest;
	int width = highest > key ? 32 - __builtin_clz(highest - key) : 0;
	u64 left = goal;
	while (width > 0) {
		u32 range = ~0u >> (32 - width);
		width = max(width - bin_bits, 0);
		for (int i = thread(); i < bins; i += block)
			sums[i] = 0;
		sync();
		each(l, [=](const Token &t) {
			if (t.key >= key && t.key - key <= range)
				atomic_add(&sums[bins - 1 - ((t.key - key) >> width)], amount(t));
		});
		sync();
		Two of = two_of(sums[2 * thread()], sums[2 * thread() + 1]);
		Reached r = reach(left, of, of);
		key += (u32)(bins - 1 - r.at) << width;
		left -= r.before;
	}
	return Selected{key, goal - left};
}

// Adds up tokens in rising order until the sum passes what was drawn: those whose key is
// above least, and of those that tie with it as many as ties says. Threads have neighbours.
DEVICE void take(int *id, const Listed &l, int first, int end, u32 least, u64 ties, u64 drawn) {
	int share = ceil_div(end - first, block), from = first + thread() * share, to = min(end, from + share);
	u32 equal = 0;
	NO_UNROLL for (int i = from; i < to; i++) equal += order_key(score(l.job.x, i)) == least;
	equal = block_prefix(equal).before;
	u32 rank = equal;
	auto weight = [&](int i) {
		float own = score(l.job.x, i);
		u32 key = order_key(own);
		return key > least || (key == least && rank++ < ties) ? weight_of(l.of, own) : 0;
	};
	u64 sum = 0;
	NO_UNROLL for (int i = from; i < to; i++) sum += weight(i);
	u64 before = block_prefix(sum).before;
	if (drawn < before || drawn >= before + sum)
		return;
	rank = equal;
	for (int i = from; i < to; i++)
		if (before += weight(i); drawn < before) {
			*id = i;
			return;
		}
}

// What the filters leave: tokens with keys above least, and as many as ties says of those
// that have that key, of the lowest ids.
struct Kept {
	u32 least;
	u64 ties, mass;
};

// By top-k first, whose tokens have the weights that top-p is of.
DEVICE Kept keep(const Listed &l) {
	const Cut &cut = l.cut;
	Kept kept = {0, (u64)l.job.n, cut.mass};
	NO_UNROLL for (int by_weight = cut.k_bin < 0; by_weight < (cut.last >= 0 ? 2 : 1); by_weight++) {
		u64 goal = by_weight ? goal_of(l.job.how.top_p, kept.mass) - cut.before : cut.k_left;
		Selected s = select(l, goal, by_weight);
		u32 least = kept.least = s.key;
		if (by_weight) {
			u64 each = weight_of(l.of, score_of(least));
			kept.ties = (goal - s.above + each - 1) / each;
			kept.mass = cut.before + s.above + kept.ties * each;
			break;
		}
		u64 mass = 0;
		each(l, [=, &mass](const Token &t) { mass += t.in_k && t.key >= least ? t.weight : 0; });
		kept.mass += block_total(mass);
	}
	return kept;
}

// The token that was drawn: first the piece in which it is.
DEVICE void draw(int *id, const Listed &l) {
	SHARED static u32 equal[bins]; // tokens of a piece that have the least key
	const Job &job = l.job;
	Kept kept = keep(l);
	for (int i = thread(); i < bins; i += block) {
		sums[i] = i < job.pieces ? job.row->sums[i] : 0;
		equal[i] = 0;
	}
	sync();
	u32 least = kept.least;
	each(l, [=](const Token &t) {
		if (t.key > least)
			atomic_add(&sums[t.piece], t.weight);
		if (t.key == least)
			atomic_add(&equal[t.piece], 1);
	});
	sync();
	int t = 2 * thread();
	Two ties = two_of(equal[t], equal[t + 1]);
	u64 each = weight_of(l.of, score_of(least)), left = kept.ties > ties.sum.before ? kept.ties - ties.sum.before : 0;
	u64 first = left < ties.first ? left : ties.first;
	u64 second = left - first < ties.second ? left - first : ties.second;
	Two all = two_of(sums[t] + first * each, sums[t + 1] + second * each);
	u64 drawn = ((double)job.how.uniform + job.how.uniform_rest) * kept.mass;
	drawn = drawn < kept.mass ? drawn : kept.mass - 1;
	Reached in = reach(drawn + 1, all, ties);
	left = kept.ties > in.other ? kept.ties - in.other : 0;
	take(id, l, in.at * job.piece, min(job.n, (in.at + 1) * job.piece), least, left, drawn - in.before);
}

KERNEL THREADS_BLOCKS(block, 1) choose_token(Params p) {
	SHARED static u32 last, count;
	Job job = job_of(p);
	if (!legal(job.how) || job.how.temperature == 0)
		return;
	Range r = range_of(job);
	if (r.id < 0)
		return;
	Bins of = bins_of(r, job.how.temperature);
	Cut cut = cut_of(job);
	list_piece(job, of, cut);
	fence();
	sync();
	if (thread() == 0) {
		last = atomic_add(&job.row->done, 1) == job.pieces - 1;
		count = atomic_add(&job.row->listed, 0);
	}
	sync();
	if (!last)
		return;
	fence();
	draw(p.ids + block_x(), Listed{job, of, cut, count});
}

// The gated delta rule (Yang et al. 2024): S = exp(g) S, S = S + k · beta (v - Sᵀk),
// y = scale · Sᵀq, for heads with a state of n rows of size columns. FORMAT is the state's.
// Formats: f32 bf16
#include "krait.h"

// Rows of operands: y and v [t, head · size], q and k [t, group · n], g [t, head · per], beta
// [t, head], state [slot, head, n, size], in the format in which it is kept: it is rounded when
// it is stored, at the end of a segment.
typedef FORMAT kept;

struct Delta {
	float *y;
	const float *q, *k, *v, *g, *beta;
	kept *state;
	const int *seg;
	i64 ys, qs, ks, vs, gs, bs, hs;
	int n, size, per;
	Groups groups;
	float scale;
};

const int warp_rows = 32;

// What a warp has of a token: keys, queries and decays of its rows, and its part of Sᵀk and Sᵀq
// of 32 columns, and of k·q.
struct Part {
	float k[warp_rows], q[warp_rows], decay[warp_rows];
	float known[32], out[32], fresh;
};

extern SHARED Part parts[];

static_assert(sizeof(Part) == 644, "the host knows this size");

// The sequence's tokens one by one, with the state in registers: a warp has 32 rows of it, a lane
// a column, so that the state is read and written once. Blocks are (sequences, heads, size / 32),
// of a warp for each 32 rows. Parts of two tokens are there: a warp may be one ahead.
KERNEL THREADS(256) delta_scan_steps(Delta d) {
	int head = block_y(), column = block_z() * 32 + lane(), row = warp() * warp_rows, warps = threads() / 32;
	const int *seg = d.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	i64 group = (i64)group_of(d.groups, head) * d.n;
	kept *state = d.state + slot * d.hs + ((i64)head * d.n + row) * d.size + column;
	bool here = column < d.size;
	float s[warp_rows];
	UNROLL for (int i = 0; i < warp_rows; i++) s[i] = here && row + i < d.n ? widen(state[(i64)i * d.size]) : 0;
	for (int i = 0; i < tokens; i++) {
		i64 t = first + i;
		Part *all = parts + i % 2 * warps, &own = all[warp()];
		int at = row + lane();
		float k = at < d.n ? d.k[t * d.ks + group + at] : 0, q = at < d.n ? d.q[t * d.qs + group + at] : 0;
		own.k[lane()] = k, own.q[lane()] = q;
		own.decay[lane()] = at < d.n ? math::exp(d.g[t * d.gs + head * d.per + (d.per > 1 ? at : 0)]) : 0;
		float fresh = warp_sum(k * q);
		__nvvm_bar_warp_sync(all_lanes);
		float known = 0, out = 0;
		UNROLL for (int r = 0; r < warp_rows; r++) {
			s[r] *= own.decay[r];
			known = fma(s[r], own.k[r], known);
			out = fma(s[r], own.q[r], out);
		}
		own.known[lane()] = known, own.out[lane()] = out;
		if (lane() == 0)
			own.fresh = fresh;
		sync();
		known = 0, out = 0, fresh = 0;
		for (int w = 0; w < warps; w++)
			known += all[w].known[lane()], out += all[w].out[lane()], fresh += all[w].fresh;
		float value = here ? d.beta[t * d.bs + head] * (d.v[t * d.vs + (i64)head * d.size + column] - known) : 0;
		UNROLL for (int r = 0; r < warp_rows; r++) s[r] = fma(own.k[r], value, s[r]);
		if (here && warp() == 0)
			d.y[t * d.ys + (i64)head * d.size + column] = d.scale * fma(fresh, value, out);
	}
	UNROLL for (int i = 0; i < warp_rows; i++)
		if (here && row + i < d.n)
			narrow(state[(i64)i * d.size], s[i]);
}

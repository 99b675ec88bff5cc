// Causal depthwise convolution over time: y[t, c] = Σ_j w[c, j] x[t-width+1+j, c].
// What is before the segment comes from the state, which has width-1 inputs per
// channel, oldest first, in FORMAT. With silu, what is put out is silu(y + bias), or silu(y) where
// the bias is null.
// x and y may both be in bf16; a state in f32 then has what was rounded.
// Formats: f32 f16 bf16 e4m3
#include "parts.h"

typedef FORMAT kept;

// A channel's bias; 0 without one.
DEVICE float bias_of(const float *bias, int c) { return bias ? bias[c] : 0; }

DEVICE float finish(float sum, int silu, float b) { return silu ? math::silu(sum + b) : sum; }

// One thread per channel does a piece of piece_tokens tokens of a sequence;
// blocks are (pieces, channels / 128). The state is read only.
const int piece_tokens = 32;

KERNEL THREADS(128) conv1d_pieces(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs,
		const float *__restrict__ w, i64 ws, const kept *__restrict__ state, i64 hs, const int *__restrict__ seg,
		int seqs, int cols, int width, const float *__restrict__ bias, int silu) {
	Piece p;
	int c = block_y() * 128 + thread();
	if (!find_piece(seg, seqs, piece_tokens, block_x(), p) || c >= cols)
		return;
	x += p.first * xs + c;
	y += p.first * ys + c;
	w += c * ws;
	const kept *history = state + p.slot * hs + (i64)c * (width - 1);
	float b = bias_of(bias, c);
	for (int t = 0; t < p.tokens; t++) {
		float sum = 0;
		for (int j = 0; j < width; j++) {
			int back = t - (width - 1) + j; // in the piece
			float in = p.at + back >= 0 ? x[back * xs] : widen(history[p.at + back + width - 1]);
			sum = fma(w[j], in, sum);
		}
		y[t * ys] = finish(sum, silu, b);
	}
}

// The same where the filter is 4 wide, as it mostly is: the inputs that are
// needed again stay in registers, and loads run ahead.
template <class V> DEVICE void pieces_4(V *__restrict__ y, i64 ys, const V *__restrict__ x, i64 xs,
		const float *__restrict__ w, i64 ws, const kept *__restrict__ state, i64 hs, const int *__restrict__ seg,
		int seqs, int cols, const float *__restrict__ bias, int silu) {
	Piece p;
	int c = block_y() * 128 + thread();
	if (!find_piece(seg, seqs, piece_tokens, block_x(), p) || c >= cols)
		return;
	x += p.first * xs + c;
	y += p.first * ys + c;
	w += c * ws;
	const kept *history = state + p.slot * hs + (i64)c * 3;
	float w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3], added = bias_of(bias, c);
	float a = p.at ? widen(x[-3 * xs]) : widen(history[0]);
	float b = p.at ? widen(x[-2 * xs]) : widen(history[1]);
	float d = p.at ? widen(x[-1 * xs]) : widen(history[2]);
	_Pragma("unroll 4") for (int t = 0; t < p.tokens; t++) {
		float e = widen(x[t * xs]);
		narrow(y[t * ys], finish(fma(w3, e, fma(w2, d, fma(w1, b, w0 * a))), silu, added));
		a = b, b = d, d = e;
	}
}

#define PIECES(name, V) \
	KERNEL THREADS(128) name(V *__restrict__ y, i64 ys, const V *__restrict__ x, i64 xs, const float *__restrict__ w, \
			i64 ws, const kept *__restrict__ state, i64 hs, const int *__restrict__ seg, int seqs, int cols, int, \
			const float *__restrict__ bias, int silu) { \
		pieces_4(y, ys, x, xs, w, ws, state, hs, seg, seqs, cols, bias, silu); \
	}

PIECES(conv1d_pieces_4, float)
PIECES(conv1d_pieces_4_bf16, bf16)

// Moves the last inputs of each sequence into its state, after the pieces are
// done. Blocks are (sequences, channels / 128).
template <class V> DEVICE void keep_last(const V *__restrict__ x, i64 xs, kept *state, i64 hs,
		const int *__restrict__ seg, int cols, int width) {
	int c = block_y() * 128 + thread(), keep = width - 1;
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	if (c >= cols)
		return;
	kept *history = state + slot * hs + (i64)c * keep;
	x += first * xs + c;
	for (int i = 0; i < keep; i++) {
		int from = tokens - keep + i; // token of the segment
		narrow(history[i], from >= 0 ? widen(x[from * xs]) : widen(history[from + keep]));
	}
}

#define STATE(name, V) \
	KERNEL THREADS(128) name(const V *__restrict__ x, i64 xs, kept *state, i64 hs, const int *__restrict__ seg, \
			int cols, int width) { \
		keep_last(x, xs, state, hs, seg, cols, width);                                                             \
	}

STATE(conv1d_state, float)
STATE(conv1d_state_bf16, bf16)

// One token per sequence. Blocks are (sequences, channels / 128).
KERNEL THREADS(128) conv1d_update(float *__restrict__ y, i64 ys, const float *__restrict__ x, i64 xs,
		const float *__restrict__ w, i64 ws, kept *state, i64 hs, const int *__restrict__ seg, int cols, int width,
		const float *__restrict__ bias, int silu) {
	int c = block_y() * 128 + thread();
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	if (c >= cols || tokens < 1)
		return;
	kept *history = state + slot * hs + (i64)c * (width - 1);
	w += c * ws;
	float sum = 0, in = x[first * xs + c];
	for (int j = 0; j < width - 1; j++) {
		float old = widen(history[j]);
		sum = fma(w[j], old, sum);
		if (j > 0)
			narrow(history[j - 1], old);
	}
	if (width > 1)
		narrow(history[width - 2], in);
	y[first * ys + c] = finish(fma(w[width - 1], in, sum), silu, bias_of(bias, c));
}

// Input at of a channel's last ones before a part, or after all parts, of which u has those after
// each from zero: a part of fewer tokens than that keeps inputs of the part before it.
DEVICE float input_before(Passing p, int part, int at, int keep, const float *u, i64 us, const kept *history) {
	for (int back = keep - at % keep; part-- > 0;) {
		int tokens = tokens_of(p, part);
		if (back <= tokens)
			return u[row_of(p, part) * us + at];
		back -= tokens, at += tokens;
	}
	return widen(history[at]);
}

// The last inputs before each part, and the state after all. Blocks are (sequences,
// channels / 128).
KERNEL THREADS(128) conv1d_states(float *__restrict__ before, i64 bs, const float *__restrict__ u, i64 us, kept *state,
		i64 hs, const int *__restrict__ seg, int seqs, int parts, int cols, int keep) {
	Passing p = passing(seg, seqs, parts);
	kept *history = state + p.slot * hs;
	int first = block_y() * 128 * keep, last = min(first + 128 * keep, cols * keep);
	for (int part = 0; part < parts; part++)
		for (int at = first + thread(); at < last; at += 128)
			before[row_of(p, part) * bs + at] = input_before(p, part, at, keep, u, us, history);
	for (int from = first; from < last; from += 128) {
		int at = from + thread();
		float in = at < last ? input_before(p, parts, at, keep, u, us, history) : 0;
		sync(); // no thread reads what others overwrite
		if (at < last)
			narrow(history[at], in);
	}
}

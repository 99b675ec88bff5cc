// Causal depthwise convolution over time: y[t, c] = Σ_j w[c, j] x[t-width+1+j, c].
// What is before the segment comes from the state, which has width-1 inputs per
// channel, oldest first, in FORMAT. With silu, what is put out is silu(y + bias), or silu(y) where
// the bias is null.
// x and y may both be in bf16; a state in f32 then has what was rounded.
// Formats: f32 f16 bf16 e4m3
#include "conv.h"
#include "parts.h"

// A channel's bias; 0 without one.
DEVICE float bias_of(const float *bias, int channel) { return bias ? bias[channel] : 0; }

DEVICE float finish(float sum, int silu, float bias) { return silu ? math::silu(sum + bias) : sum; }

// One thread per channel does a piece of piece_tokens tokens of a sequence;
// blocks are (pieces, channels / 128). The state is read only.
const int piece_tokens = 32;

DEVICE void pieces(float *__restrict__ y, const float *__restrict__ x, const float *__restrict__ w,
		const kept *__restrict__ state, const Conv<float> &arg) {
	Piece p;
	int channel = block_y() * 128 + thread(), keep = arg.width - 1;
	if (!find_piece(arg.seg, arg.seqs, piece_tokens, block_x(), p) || channel >= arg.cols)
		return;
	x += p.first * arg.xs + channel;
	y += p.first * arg.ys + channel;
	w += channel * arg.ws;
	const kept *history = state + p.slot * arg.hs + (i64)channel * keep;
	float bias = bias_of(arg.bias, channel);
	for (int t = 0; t < p.tokens; t++) {
		float sum = 0;
		for (int j = 0; j <= keep; j++) {
			int back = t - keep + j; // in the piece
			float in = p.at + back >= 0 ? x[back * arg.xs] : widen(history[p.at + back + keep]);
			sum = fma(w[j], in, sum);
		}
		y[t * arg.ys] = finish(sum, arg.silu, bias);
	}
}

KERNEL THREADS(128) conv1d_pieces(Conv<float> arg) { pieces(arg.y, arg.x, arg.w, arg.state, arg); }

// The same where the filter is 4 wide, as it mostly is: the inputs that are
// needed again stay in registers, and loads run ahead.
template <class V> DEVICE void pieces_4(V *__restrict__ y, const V *__restrict__ x, const Conv<V> &arg) {
	Piece p;
	int channel = block_y() * 128 + thread();
	if (!find_piece(arg.seg, arg.seqs, piece_tokens, block_x(), p) || channel >= arg.cols)
		return;
	i64 xs = arg.xs;
	x += p.first * xs + channel;
	y += p.first * arg.ys + channel;
	const float *w = arg.w + channel * arg.ws;
	const kept *history = arg.state + p.slot * arg.hs + (i64)channel * 3;
	float w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3], bias = bias_of(arg.bias, channel);
	float in0 = p.at ? widen(x[-3 * xs]) : widen(history[0]); // oldest first
	float in1 = p.at ? widen(x[-2 * xs]) : widen(history[1]);
	float in2 = p.at ? widen(x[-1 * xs]) : widen(history[2]);
	_Pragma("unroll 4") for (int t = 0; t < p.tokens; t++) {
		float in3 = widen(x[t * xs]);
		narrow(y[t * arg.ys], finish(fma(w3, in3, fma(w2, in2, fma(w1, in1, w0 * in0))), arg.silu, bias));
		in0 = in1, in1 = in2, in2 = in3;
	}
}

KERNEL THREADS(128) conv1d_pieces_4(Conv<float> arg) { pieces_4(arg.y, arg.x, arg); }
KERNEL THREADS(128) conv1d_pieces_4_bf16(Conv<bf16> arg) { pieces_4(arg.y, arg.x, arg); }

// Moves the last inputs of each sequence into its state, after the pieces are
// done. Blocks are (sequences, channels / 128).
template <class V> DEVICE void keep_last(const V *__restrict__ x, i64 xs, kept *state, i64 hs,
		const int *__restrict__ seg, int cols, int width) {
	int channel = block_y() * 128 + thread(), keep = width - 1;
	int first = seg[3 * block_x()], tokens = seg[3 * block_x() + 1], slot = seg[3 * block_x() + 2];
	if (channel >= cols)
		return;
	kept *history = state + slot * hs + (i64)channel * keep;
	x += first * xs + channel;
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
DEVICE void update(const float *__restrict__ w, const float *__restrict__ bias, const Conv<float> &arg) {
	int channel = block_y() * 128 + thread(), keep = arg.width - 1;
	const int *seg = arg.seg + 3 * block_x();
	int first = seg[0], tokens = seg[1], slot = seg[2];
	if (channel >= arg.cols || tokens < 1)
		return;
	kept *history = arg.state + slot * arg.hs + (i64)channel * keep;
	w += channel * arg.ws;
	float sum = 0, in = arg.x[first * arg.xs + channel];
	for (int j = 0; j < keep; j++) {
		float old = widen(history[j]);
		sum = fma(w[j], old, sum);
		if (j > 0)
			narrow(history[j - 1], old);
	}
	if (keep > 0)
		narrow(history[keep - 1], in);
	arg.y[first * arg.ys + channel] = finish(fma(w[keep], in, sum), arg.silu, bias_of(bias, channel));
}

KERNEL THREADS(128) conv1d_update(Conv<float> arg) { update(arg.w, arg.bias, arg); }

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

struct ConvStates {
	float *before;
	i64 bs;
	const float *u;
	i64 us;
	kept *state;
	i64 hs;
	const int *seg;
	int seqs, parts, cols, keep;
};

// The last inputs before each part, and the state after all. Blocks are (sequences,
// channels / 128).
KERNEL THREADS(128) conv1d_states(ConvStates arg) {
	Passing p = passing(arg.seg, arg.seqs, arg.parts);
	kept *history = arg.state + p.slot * arg.hs;
	int first = block_y() * 128 * arg.keep, last = min(first + 128 * arg.keep, arg.cols * arg.keep);
	auto before = [&](int part, int at) { return input_before(p, part, at, arg.keep, arg.u, arg.us, history); };
	for (int part = 0; part < arg.parts; part++)
		for (int at = first + thread(); at < last; at += 128)
			arg.before[row_of(p, part) * arg.bs + at] = before(part, at);
	for (int from = first; from < last; from += 128) {
		int at = from + thread();
		float in = at < last ? before(arg.parts, at) : 0;
		sync(); // no thread reads what others overwrite
		if (at < last)
			narrow(history[at], in);
	}
}

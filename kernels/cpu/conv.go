package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, (&convolver{addSilu: plainLanes.addSilu, states: oneByOne{}}).kernels())

// convolver has the convolutions of width convWidth of an instruction set, for channels
// that fill vectors of a number of lanes; see the generator in gen. Without lanes it is plain.
type convolver struct {
	lanes     int
	sum, silu func(y, x, w, h, b *float32, tokens, channels, ys, xs, ws int)
	addSilu   lanewise
	states    stateFormat
}

// convWidth is the width of the convolutions of all models that are known.
const convWidth = 4

func (v *convolver) kernels() kernels.Set {
	units := func(seg int) func(c *kernels.Call) int {
		return func(c *kernels.Call) int { return c.Args[seg].Rows() * blocks(c.Results[0].Cols) }
	}
	return kernels.Set{
		"conv1d": {Units: units(3), Run: func(c *kernels.Call, lo, hi int) {
			v.convolve(&c.Results[0], &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], lo, hi, false, nil)
		}},
		"conv1d_silu": {Units: units(4), Run: func(c *kernels.Call, lo, hi int) {
			v.convolve(&c.Results[0], &c.Args[0], &c.Args[1], &c.Args[3], &c.Args[4], lo, hi, true, c.Args[2].Vector())
		}},
		"unbiased_conv1d_silu": {Units: units(3), Run: func(c *kernels.Call, lo, hi int) {
			v.convolve(&c.Results[0], &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], lo, hi, true, nil)
		}},
	}
}

// convolve: y[t, c] = Σ_j w[c, j] x[t-K+1+j, c], where the inputs before the segment come from the
// state, which then takes the segment's last ones; or silu of that and the bias, if there is one.
func (v *convolver) convolve(y, x, w, state, seg *kernels.Tensor, lo, hi int, silu bool, bias []float32) {
	perSeq := blocks(y.Cols)
	for u := lo; u < hi; u++ {
		start, tokens, slot := seg.Segment(u / perSeq)
		if tokens == 0 {
			continue
		}
		from := u % perSeq * channelBlock
		to := min(from+channelBlock, y.Cols)
		whole := from
		if v.lanes > 0 && w.Cols == convWidth {
			whole += (to - from) / v.lanes * v.lanes
		}
		var b []float32
		switch {
		case bias != nil:
			b = bias[from:to]
		case silu:
			b = noBias[:to-from]
		}
		kept := widenBy(v.states, state, slot*state.Stride+from*(w.Cols-1), (to-from)*(w.Cols-1))
		if whole > from {
			v.vectors(y, x, w, kept.h, start, tokens, from, whole, b)
		}
		if whole < to {
			history := kept.h[(whole-from)*(w.Cols-1):]
			convolveBlock(y, x, w, history, start, tokens, whole, to)
			for t := start; t < start+tokens && silu; t++ {
				out := y.Row(t)[whole:to]
				v.addSilu(out, out, b[whole-from:], nil, 0, 0)
			}
		}
		kept.put()
	}
}

// noBias is the bias of channels without one.
var noBias [channelBlock]float32

// vectors are channels from one to before another, with their history and, for silu, their biases.
func (v *convolver) vectors(y, x, w *kernels.Tensor, history []float32, start, tokens, from, to int, bias []float32) {
	at := func(t *kernels.Tensor, first, rows, lo, hi int) *float32 { // the assembly checks no bounds
		return &t.F32[first*t.Stride+lo : (first+rows-1)*t.Stride+hi][0]
	}
	f, b := v.sum, (*float32)(nil)
	if bias != nil {
		f, b = v.silu, &bias[:to-from][0]
	}
	f(at(y, start, tokens, from, to), at(x, start, tokens, from, to), at(w, from, to-from, 0, convWidth),
		&history[:(to-from)*(convWidth-1)][0], b, tokens, to-from, y.Stride, x.Stride, w.Stride)
}

// convolveBlock does channels from one to before another, and leaves the segment's last
// inputs in their history.
func convolveBlock(y, x, w *kernels.Tensor, history []float32, start, tokens, from, to int) {
	width := w.Cols
	for t := range tokens {
		out := y.Row(start + t)[from:to]
		clear(out)
		for j := range width {
			back := t - (width - 1) + j
			if back < 0 {
				for k := range out {
					out[k] += w.F32[(from+k)*w.Stride+j] * history[k*(width-1)+back+width-1]
				}
				continue
			}
			in := x.Row(start + back)[from:to]
			for k := range out {
				out[k] += w.F32[(from+k)*w.Stride+j] * in[k]
			}
		}
	}
	shift(history, x, start, tokens, from, to, width-1)
}

// shift moves the segment's last inputs into the history of channels, keep of each.
func shift(history []float32, x *kernels.Tensor, start, tokens, from, to, keep int) {
	for ch := from; ch < to; ch++ {
		h := history[(ch-from)*keep : (ch-from+1)*keep]
		fresh := min(tokens, keep)
		copy(h, h[fresh:])
		for i := range fresh {
			h[keep-fresh+i] = x.Row(start + tokens - fresh + i)[ch]
		}
	}
}

package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, convAVX2Set.kernels())
	_ = kernels.Register(avx512, convAVX512Set.kernels())
)

// convolver has the convolutions of width convWidth of an instruction set, for channels
// that fill vectors of a number of lanes; see the generator in gen.
type convolver struct {
	lanes     int
	sum, silu func(y, x, w, h, b *float32, tokens, channels, ys, xs, ws int)
	addSilu   lanewise
}

// convWidth is the width of the convolutions of all models that are known.
const convWidth = 4

var (
	convAVX2Set   = convolver{8, convAVX2, convSiluAVX2, addSiluAVX2}
	convAVX512Set = convolver{16, convAVX512, convSiluAVX512, addSiluAVX512}
)

func (v *convolver) kernels() kernels.Set {
	return kernels.Set{
		"conv1d": {Units: convUnits, Run: func(c *kernels.Call, lo, hi int) {
			v.convolve(&c.Results[0], &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], lo, hi, nil)
		}},
		"conv1d_silu": {Units: convSiluUnits, Run: func(c *kernels.Call, lo, hi int) {
			v.convolve(&c.Results[0], &c.Args[0], &c.Args[1], &c.Args[3], &c.Args[4], lo, hi, c.Args[2].Vector())
		}},
	}
}

// convolve is the plain one, but for the channels that fill vectors.
func (v *convolver) convolve(y, x, w, state, seg *kernels.Tensor, lo, hi int, bias []float32) {
	perSeq := blocks(y.Cols)
	for u := lo; u < hi; u++ {
		start, tokens, slot := seg.Segment(u / perSeq)
		if tokens == 0 {
			continue
		}
		from := u % perSeq * channelBlock
		to := min(from+channelBlock, y.Cols)
		whole := from + (to-from)/v.lanes*v.lanes
		if w.Cols != convWidth {
			whole = from
		}
		kept := widen(state, slot*state.Stride+from*(w.Cols-1), (to-from)*(w.Cols-1))
		if whole > from {
			v.vectors(y, x, w, kept.h, start, tokens, from, whole, bias)
		}
		if whole < to {
			history := kept.h[(whole-from)*(w.Cols-1):]
			convolveBlock(y, x, w, history, start, tokens, whole, to)
			for t := start; t < start+tokens && bias != nil; t++ {
				out := y.Row(t)[whole:to]
				v.addSilu.on(out, out, bias[whole:to], nil, 0, 0)
			}
		}
		kept.put()
	}
}

// vectors are channels from one to before another, with their history.
func (v *convolver) vectors(y, x, w *kernels.Tensor, history []float32, start, tokens, from, to int, bias []float32) {
	at := func(t *kernels.Tensor, first, rows, lo, hi int) *float32 { // the assembly checks no bounds
		return &t.F32[first*t.Stride+lo : (first+rows-1)*t.Stride+hi][0]
	}
	f, b := v.sum, (*float32)(nil)
	if bias != nil {
		f, b = v.silu, &bias[from:to][0]
	}
	f(at(y, start, tokens, from, to), at(x, start, tokens, from, to), at(w, from, to-from, 0, convWidth),
		&history[:(to-from)*(convWidth-1)][0], b, tokens, to-from, y.Stride, x.Stride, w.Stride)
}

package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, kernels.Set{"selective_scan": {Units: scanUnits, Run: scanner(scanAVX2).run}})
	_ = kernels.Register(avx512, kernels.Set{"selective_scan": {Units: scanUnits, Run: scanner(scanAVX512).run}})
)

// scanner runs the recurrence of channels; see the generator in gen.
type scanner func(y, u, dt, a, b, c, h *float32, tokens, channels, n, ys, us, dts, as, bs, cs int)

// run is selectiveScan.
func (f scanner) run(c *kernels.Call, lo, hi int) {
	a, state, seg := &c.Args[2], &c.Args[5], &c.Args[6]
	groups, n := kernels.GroupsOf(&c.Args[1], &c.Args[3], a.Cols), a.Cols
	channels := c.Results[0].Cols
	for unit := lo; unit < hi; unit++ {
		start, tokens, slot := seg.Segment(unit / blocks(channels))
		from := unit % blocks(channels) * channelBlock
		to := min(from+channelBlock, channels)
		if tokens == 0 || n == 0 {
			selectiveScan(c, unit, unit+1)
			continue
		}
		kept := widen(state, slot*state.Stride+from*n, (to-from)*n)
		for ch := from; ch < to; {
			g, end := groups.Of(ch), min(to, groups.End(ch))
			f.stretch(c, start, tokens, ch, end, g, kept.h[(ch-from)*n:(end-from)*n])
			ch = end
		}
		kept.put()
	}
}

// stretch runs channels from one to before another, which read group g of B and C, over
// the tokens of a segment.
func (f scanner) stretch(c *kernels.Call, start, tokens, from, to, g int, h []float32) {
	n := c.Args[2].Cols
	at := func(x *kernels.Tensor, first, rows, lo, hi int) *float32 { // the assembly checks no bounds
		return &x.F32[first*x.Stride+lo : (first+rows-1)*x.Stride+hi][0]
	}
	y, u, dt, a, b, cc := &c.Results[0], &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4]
	f(at(y, start, tokens, from, to), at(u, start, tokens, from, to), at(dt, start, tokens, from, to), at(a, from, to-from, 0, n),
		at(b, start, tokens, g*n, (g+1)*n), at(cc, start, tokens, g*n, (g+1)*n), &h[0],
		tokens, to-from, n, y.Stride, u.Stride, dt.Stride, a.Stride, b.Stride, cc.Stride)
}

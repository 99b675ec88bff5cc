package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, kernels.Set{"selective_scan": {Units: scanUnits, Run: scanner(scanAVX2).run}})
	_ = kernels.Register(avx512, kernels.Set{"selective_scan": {Units: scanUnits, Run: scanner(scanAVX512).run}})
)

// scanner runs the recurrence of channels; see the generator in gen.
type scanner func(y, u, dt, a, h, b, c *float32, tokens, channels, n, ys, us, dts, hs, bs, cs int)

// run is selectiveScan.
func (f scanner) run(c *kernels.Call, lo, hi int) {
	a, state, seg := &c.Args[2], &c.Args[5], &c.Args[6]
	groups, n := kernels.GroupsOf(&c.Args[1], &c.Args[3], a.Cols), a.Cols
	channels := c.Results[0].Cols
	buf := borrow(2 * n * channelBlock)
	defer buf.giveBack()
	rates, states := matrix{buf.h, channelBlock, 1}, matrix{buf.h[n*channelBlock:], channelBlock, 1}
	for unit := lo; unit < hi; unit++ {
		start, tokens, slot := seg.Segment(unit / blocks(channels))
		from := unit % blocks(channels) * channelBlock
		to := min(from+channelBlock, channels)
		if tokens == 0 || n == 0 {
			selectiveScan(c, unit, unit+1)
			continue
		}
		kept := widen(state, slot*state.Stride+from*n, (to-from)*n)
		transpose(rates, matrix{a.F32[from*a.Stride:], a.Stride, 1}, to-from, n)
		transpose(states, matrix{kept.h, n, 1}, to-from, n)
		for ch := from; ch < to; {
			g, end := groups.Of(ch), min(to, groups.End(ch))
			f.stretch(c, start, tokens, ch, end, g, rates.at[ch-from:], states.at[ch-from:])
			ch = end
		}
		transpose(matrix{kept.h, n, 1}, states, n, to-from)
		kept.put()
	}
}

// stretch runs channels from one to before another, which read group g of B and C, over the tokens
// of a segment. Rows of their rates and states are channelBlock elements apart.
func (f scanner) stretch(c *kernels.Call, start, tokens, from, to, g int, rates, states []float32) {
	n := c.Args[2].Cols
	at := func(x *kernels.Tensor, lo, hi int) *float32 { // the assembly checks no bounds
		return &x.F32[start*x.Stride+lo : (start+tokens-1)*x.Stride+hi][0]
	}
	y, u, dt, b, cc := &c.Results[0], &c.Args[0], &c.Args[1], &c.Args[3], &c.Args[4]
	last := (n-1)*channelBlock + to - from
	f(at(y, from, to), at(u, from, to), at(dt, from, to), &rates[:last][0], &states[:last][0],
		at(b, g*n, (g+1)*n), at(cc, g*n, (g+1)*n),
		tokens, to-from, n, y.Stride, u.Stride, dt.Stride, channelBlock, b.Stride, cc.Stride)
}

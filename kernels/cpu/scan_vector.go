//go:build amd64 || arm64

package cpu

import "github.com/krait-ml/krait/kernels"

// scanner runs the recurrence of channels; see the generator in gen.
type scanner struct {
	tokens func(y, u, dt, a, h, b, c *float32, tokens, channels, n, ys, us, dts, hs, bs, cs int)
	step   func(h, u, dt, a, b *float32, channels, n, as int) // nil: as tokens
	*tiling
}

// run is selectiveScan. States are transposed for the tokens of a segment, of a single one only for
// its output.
func (f *scanner) run(c *kernels.Call, lo, hi int) {
	a, state, seg := &c.Args[2], &c.Args[5], &c.Args[6]
	groups, n := kernels.GroupsOf(&c.Args[1], &c.Args[3], a.Cols), a.Cols
	channels := c.Results[0].Cols
	buf := borrow(2*n*channelBlock + 2*channelBlock)
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
		kept := widenBy(f.tiling.states, state, slot*state.Stride+from*n, (to-from)*n)
		h := matrix{kept.h, n, 1}
		each := func(run func(ch, end, g int)) {
			for ch := from; ch < to; ch = groups.End(ch) {
				run(ch, min(to, groups.End(ch)), groups.Of(ch))
			}
		}
		if tokens == 1 && f.step != nil {
			each(func(ch, end, g int) { f.past(c, start, ch, end, g, kept.h[(ch-from)*n:(end-from)*n]) })
			transpose(states, h, to-from, n)
			each(func(ch, end, g int) { f.output(c, start, ch, end, g, states.at[ch-from:], buf.h[:channelBlock]) })
		} else {
			transpose(rates, matrix{a.F32[from*a.Stride:], a.Stride, 1}, to-from, n)
			transpose(states, h, to-from, n)
			each(func(ch, end, g int) {
				f.stretch(c, start, tokens, ch, end, g, rates.at[ch-from:], states.at[ch-from:])
			})
			transpose(h, states, n, to-from)
		}
		kept.put()
	}
}

// past takes the states of channels from one to before another past a token.
func (f *scanner) past(c *kernels.Call, token, from, to, g int, h []float32) {
	u, dt, a, b := c.Args[0].Row(token)[from:to], c.Args[1].Row(token)[from:to], &c.Args[2], &c.Args[3]
	rates := a.F32[from*a.Stride : (to-1)*a.Stride+a.Cols] // the assembly checks no bounds
	f.step(&h[0], &u[0], &dt[0], &rates[0], &b.Row(token)[g*a.Cols : (g+1)*a.Cols][0], to-from, a.Cols, a.Stride)
}

// output is what channels put out, with their states transposed and room for a block of channels.
func (f *scanner) output(c *kernels.Call, token, from, to, g int, states, room []float32) {
	n := c.Args[2].Cols
	weights := matrix{c.Args[4].Row(token)[g*n:], 0, 1}
	f.add(matrix{room, 0, 1}, fading{}, weights, matrix{states, channelBlock, 1}, 1, n, 0, padded(to-from))
	copy(c.Results[0].Row(token)[from:to], room)
}

// stretch runs channels from one to before another, which read group g of B and C, over the tokens
// of a segment. Rows of their rates and states are channelBlock elements apart.
func (f *scanner) stretch(c *kernels.Call, start, tokens, from, to, g int, rates, states []float32) {
	n := c.Args[2].Cols
	at := func(x *kernels.Tensor, lo, hi int) *float32 { // the assembly checks no bounds
		return &x.F32[start*x.Stride+lo : (start+tokens-1)*x.Stride+hi][0]
	}
	y, u, dt, b, cc := &c.Results[0], &c.Args[0], &c.Args[1], &c.Args[3], &c.Args[4]
	last := (n-1)*channelBlock + to - from
	f.tokens(at(y, from, to), at(u, from, to), at(dt, from, to), &rates[:last][0], &states[:last][0],
		at(b, g*n, (g+1)*n), at(cc, g*n, (g+1)*n),
		tokens, to-from, n, y.Stride, u.Stride, dt.Stride, channelBlock, b.Stride, cc.Stride)
}

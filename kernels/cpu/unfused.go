package cpu

import "github.com/krait-ml/krait/kernels"

// The selective scan in steps. They are there for what their tensors take of memory, and are plain.
var _ = kernels.Register(Kernels, kernels.Set{
	"scan_terms":  {Units: func(c *kernels.Call) int { return c.Args[0].Rows() }, Run: scanTerms},
	"scan_prefix": {Units: func(c *kernels.Call) int { return c.Args[2].Rows() * blocks(c.Args[0].Cols) }, Run: scanPrefix},
	"scan_output": {Units: func(c *kernels.Call) int { return c.Args[4].Rows() * blocks(c.Results[0].Cols) }, Run: scanOutput},
})

// scanTerms: exp(dt A) and dt u B. A unit is a token.
func scanTerms(c *kernels.Call, lo, hi int) {
	u, dt, a, b := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3]
	n := a.Cols
	groups := kernels.GroupsOf(dt, b, n)
	for t := lo; t < hi; t++ {
		ut, dtt, bt := u.Row(t), dt.Row(t), b.Row(t)
		decay, input := c.Results[0].Row(t), c.Results[1].Row(t)
		for ch, d := range dtt {
			expInto(decay[ch*n:ch*n+n], a.F32[ch*a.Stride:ch*a.Stride+n], d)
			g, x := groups.Of(ch)*n, d*ut[ch]
			for k, v := range bt[g : g+n] {
				input[ch*n+k] = x * v
			}
		}
	}
}

// scanPrefix: the running products of decays, and h from 0. A unit is one sequence and a
// block of columns.
func scanPrefix(c *kernels.Call, lo, hi int) {
	seg, products, sums := &c.Args[2], &c.Results[0], &c.Results[1]
	perSeq := blocks(products.Cols)
	for unit := lo; unit < hi; unit++ {
		start, tokens, _ := seg.Segment(unit / perSeq)
		from := unit % perSeq * channelBlock
		to := min(from+channelBlock, products.Cols)
		for t := start; t < start+tokens; t++ {
			decay, input := c.Args[0].Row(t)[from:to], c.Args[1].Row(t)[from:to]
			product, sum := products.Row(t)[from:to], sums.Row(t)[from:to]
			if t == start {
				copy(product, decay)
				copy(sum, input)
				continue
			}
			before, so := products.Row(t - 1)[from:to], sums.Row(t - 1)[from:to]
			for i, d := range decay {
				product[i] = before[i] * d
				sum[i] = d*so[i] + input[i]
			}
		}
	}
}

// scanOutput: y = Σ_n h C with h = products · state + sums, per channel.
func scanOutput(c *kernels.Call, lo, hi int) {
	products, sums, cc, state, seg := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4]
	y := &c.Results[0]
	n := state.Dims[2]
	groups := kernels.GroupsOf(y, cc, n)
	perSeq := blocks(y.Cols)
	for unit := lo; unit < hi; unit++ {
		start, tokens, slot := seg.Segment(unit / perSeq)
		from := unit % perSeq * channelBlock
		to := min(from+channelBlock, y.Cols)
		if tokens == 0 {
			continue
		}
		kept := widen(state, slot*state.Stride+from*n, (to-from)*n)
		for t := start; t < start+tokens; t++ {
			p, h, ct, yt := products.Row(t), sums.Row(t), cc.Row(t), y.Row(t)
			for ch := from; ch < to; ch++ {
				g, at := groups.Of(ch)*n, (ch-from)*n
				var sum float32
				for k, v := range ct[g : g+n] {
					sum += (p[ch*n+k]*kept.h[at+k] + h[ch*n+k]) * v
				}
				yt[ch] = sum
			}
		}
		last := start + tokens - 1
		p, h := products.Row(last)[from*n:to*n], sums.Row(last)[from*n:to*n]
		for i, v := range p {
			kept.h[i] = v*kept.h[i] + h[i]
		}
		kept.put()
	}
}

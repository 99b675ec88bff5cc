package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, kernels.Set{"selective_scan": {Units: scanUnits, Run: selectiveScan}})

// A unit of the operations over time is one sequence and a block of channels.
const channelBlock = 64

func blocks(channels int) int { return (channels + channelBlock - 1) / channelBlock }

func scanUnits(c *kernels.Call) int { return c.Args[6].Rows() * blocks(c.Results[0].Cols) }

// selectiveScan: h = exp(dt A) h + dt u B; y = Σ_n h C, per channel.
func selectiveScan(c *kernels.Call, lo, hi int) {
	u, dt, a, b, cc, state, seg := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6]
	y := &c.Results[0]
	n := a.Cols
	groups := kernels.GroupsOf(dt, b, n)
	perSeq := blocks(y.Cols)
	var buf [256]float32 // the decays of one channel; longer states go in pieces
	for unit := lo; unit < hi; unit++ {
		start, tokens, slot := seg.Segment(unit / perSeq)
		from := unit % perSeq * channelBlock
		to := min(from+channelBlock, y.Cols)
		kept := widen(state, slot*state.Stride+from*n, (to-from)*n)
		h := kept.h
		for t := start; t < start+tokens; t++ {
			ut, dtt, bt, ct, yt := u.Row(t), dt.Row(t), b.Row(t), cc.Row(t), y.Row(t)
			for ch := from; ch < to; ch++ {
				g := groups.Of(ch) * n
				var sum float32
				for k := 0; k < n; k += len(buf) {
					e := min(k+len(buf), n)
					decay := buf[:e-k]
					expInto(decay, a.F32[ch*a.Stride+k:ch*a.Stride+e], dtt[ch])
					sum = recur(h[(ch-from)*n+k:(ch-from)*n+e], decay, bt[g+k:g+e], ct[g+k:g+e], dtt[ch]*ut[ch], sum)
				}
				yt[ch] = sum
			}
		}
		kept.put()
	}
}

// recur updates the state of one channel and adds what it puts out to sum.
func recur(h, decay, b, c []float32, x, sum float32) float32 {
	decay, b, c = decay[:len(h)], b[:len(h)], c[:len(h)]
	for i := range h {
		v := decay[i]*h[i] + x*b[i]
		h[i] = v
		sum += v * c[i]
	}
	return sum
}

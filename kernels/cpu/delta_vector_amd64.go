package cpu

import "github.com/krait-ml/krait/kernels"

var (
	_ = kernels.Register(avx2, kernels.Set{"delta_scan": {Units: deltaUnits, Run: deltaRuleAVX2.scan}})
	_ = kernels.Register(avx512, kernels.Set{"delta_scan": {Units: deltaUnits, Run: deltaRuleAVX512.scan}})
)

// deltaRule is what an instruction set has for a token of the gated delta rule: columns of a
// state, four vectors of lanes at a time, or fewer than fill one. A block of columns that takes
// many tokens stays in the nearest cache.
type deltaRule struct {
	lanes int
	four  func(s, v, y, k, readK, readQ, decay *float32, fade, beta, fresh, scale float32, row, rows, step int)
	part  func(s, v, y, k, readK, readQ, decay *float32, fade, beta, fresh, scale float32, row, rows, step, columns int)
}

var (
	deltaRuleAVX2   = deltaRule{8, deltaAVX2, deltaPartAVX2}
	deltaRuleAVX512 = deltaRule{16, deltaAVX512, deltaPartAVX512}
)

// scan is the plain one, with the columns of a state in lanes.
func (r *deltaRule) scan(c *kernels.Call, lo, hi int) {
	for unit := lo; unit < hi; unit++ {
		h, start, tokens, kept := deltaHeadOf(c, unit)
		if h.n > 0 {
			r.head(&h, start, tokens)
		}
		kept.put()
	}
}

// head takes a head past its tokens, some at a time.
func (r *deltaRule) head(h *deltaHead, start, tokens int) {
	buf := borrow(deltaTokens * 3 * h.n)
	defer buf.giveBack()
	for t := start; t < start+tokens; t += deltaTokens {
		var list [deltaTokens]deltaToken
		some := list[:min(deltaTokens, start+tokens-t)]
		for i := range some {
			some[i] = h.token(t+i, buf.h[i*3*h.n:(i+1)*3*h.n])
		}
		for col := 0; col < h.size; {
			n := 4 * r.lanes
			if h.size-col < n {
				n = min(r.lanes, h.size-col)
			}
			for i := range some {
				r.columns(h, &some[i], t+i, col, n)
			}
			col += n
		}
	}
}

// columns takes n columns from one on past a token.
func (r *deltaRule) columns(h *deltaHead, d *deltaToken, t, col, n int) {
	s, v, y, k := &h.s[col], &h.vAt(t)[col], &h.yAt(t)[col], &h.kAt(t)[0]
	if n == 4*r.lanes {
		r.four(s, v, y, k, &d.readK[0], &d.readQ[0], &d.decay[0], d.fade, d.beta, d.fresh, h.scale, h.size, h.n, d.step)
	} else {
		r.part(s, v, y, k, &d.readK[0], &d.readQ[0], &d.decay[0], d.fade, d.beta, d.fresh, h.scale, h.size, h.n, d.step, n)
	}
}

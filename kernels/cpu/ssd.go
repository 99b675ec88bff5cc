package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, kernels.Set{
	"ssd_scan": {Units: ssdUnits, Run: ssdScan},
})

// ssdChunk is how many tokens the matrix form takes together: with scalar arithmetic 16 is where it
// costs no more than the recurrence, which fewer than ssdLeast take.
const (
	ssdChunk = 16
	ssdLeast = 8
)

func ssdUnits(c *kernels.Call) int { return c.Args[6].Rows() * c.Args[1].Cols }

// ssdScan is the scan with one rate per head; one unit is a head of a sequence. Prompts go by
// chunks in the matrix form (Dao and Gu 2024, section 6), single tokens by the recurrence.
func ssdScan(c *kernels.Call, lo, hi int) {
	dt, state, seg := &c.Args[1], &c.Args[5], &c.Args[6]
	heads, size, n := dt.Cols, state.Dims[2], state.Dims[3]
	groups := kernels.GroupsOf(dt, &c.Args[3], n)
	for unit := lo; unit < hi; unit++ {
		start, tokens, slot := seg.Segment(unit / heads)
		head := unit % heads
		kept := widen(state, slot*state.Stride+head*size*n, size*n)
		h := ssdHead{
			x: &c.Args[0], dt: dt, b: &c.Args[3], c: &c.Args[4], y: &c.Results[0],
			head: head, size: size, n: n, group: groups.Of(head) * n,
			rate: c.Args[2].Vector()[head],
			h:    kept.h,
		}
		for at := start; at < start+tokens; at += ssdChunk {
			if q := min(ssdChunk, start+tokens-at); q >= ssdLeast {
				h.chunk(at, q)
			} else {
				h.recur(at, q)
			}
		}
		kept.put()
	}
}

// ssdHead is one head of one sequence.
type ssdHead struct {
	x, dt, b, c, y *kernels.Tensor
	head, size, n  int
	group          int // where the head's group begins in rows of b and c
	rate           float32
	h              []float32 // the state, size rows of n
}

func (s *ssdHead) bAt(t int) []float32 { return s.b.Row(t)[s.group : s.group+s.n] }
func (s *ssdHead) cAt(t int) []float32 { return s.c.Row(t)[s.group : s.group+s.n] }
func (s *ssdHead) xAt(t int) []float32 { return s.x.Row(t)[s.head*s.size : (s.head+1)*s.size] }
func (s *ssdHead) yAt(t int) []float32 { return s.y.Row(t)[s.head*s.size : (s.head+1)*s.size] }

// recur: h = exp(dt A) h + dt x B, y = C h, for q tokens from t on.
func (s *ssdHead) recur(t, q int) {
	var decay [1]float32
	for ; q > 0; t, q = t+1, q-1 {
		d := s.dt.Row(t)[s.head]
		decay[0] = d * s.rate
		expInto(decay[:], decay[:], 1)
		xt, yt, bt, ct := s.xAt(t), s.yAt(t), s.bAt(t), s.cAt(t)
		for p := range xt {
			yt[p] = recurHead(s.h[p*s.n:(p+1)*s.n], bt, ct, decay[0], d*xt[p])
		}
	}
}

// recurHead updates the state of one channel, with one decay for all of it.
func recurHead(h, b, c []float32, decay, x float32) (sum float32) {
	b, c = b[:len(h)], c[:len(h)]
	for i := range h {
		v := decay*h[i] + x*b[i]
		h[i] = v
		sum += v * c[i]
	}
	return sum
}

// chunk is the matrix form for q tokens from t on. With a_i the sum of dt A up to token i,
//
//	y_i = exp(a_i) C_i h + Σ_{j≤i} exp(a_i - a_j) (C_i·B_j) dt_j x_j
//	h   = exp(a_q) h + Σ_j exp(a_q - a_j) dt_j x_j B_j
func (s *ssdHead) chunk(t, q int) {
	var sums [ssdChunk]float64 // differences of large sums would lose an f32's digits
	var factor [ssdChunk]float32
	var sum float64
	for i := range q {
		// A state that decays to nothing in one token is gone; a larger number would take the
		// digits of those of other tokens.
		sum += max(-256, float64(s.dt.Row(t + i)[s.head])*float64(s.rate))
		sums[i], factor[i] = sum, float32(sum)
	}
	expInto(factor[:q], factor[:q], 1)
	s.before(t, factor[:q])
	for i := range q {
		s.within(t, i, sums[:i+1])
	}
	last := factor[q-1]
	s.weights(factor[:q], sums[:q], t)
	s.carry(t, factor[:q], last)
}

// before is what the state from before the chunk adds to its tokens, two tokens
// and four channels at a time.
func (s *ssdHead) before(t int, factor []float32) {
	for i := 0; i < len(factor); i += 2 {
		k := min(i+1, len(factor)-1) // an odd last one is done twice
		y0, y1, c0, c1 := s.yAt(t+i), s.yAt(t+k), s.cAt(t+i), s.cAt(t+k)
		p := 0
		for ; p+4 <= s.size; p += 4 {
			var s0, s1 [4]float32
			h := s.h[p*s.n:]
			dot2x4(s0[:], s1[:], c0, c1, h[:s.n], h[s.n:2*s.n], h[2*s.n:3*s.n], h[3*s.n:4*s.n])
			copy(y0[p:], s0[:])
			copy(y1[p:], s1[:])
		}
		for ; p < s.size; p++ {
			y0[p], y1[p] = inner(s.h[p*s.n:(p+1)*s.n], c0), inner(s.h[p*s.n:(p+1)*s.n], c1)
		}
		for p := range y0 {
			y0[p] *= factor[i]
		}
		for p := 0; p < s.size && k > i; p++ {
			y1[p] *= factor[k]
		}
	}
}

func inner(a, b []float32) (sum float32) {
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// within is what the tokens of the chunk up to the i-th add to it.
func (s *ssdHead) within(t, i int, sums []float64) {
	var factor, score [ssdChunk]float32
	s.weights(factor[:i+1], sums, t)
	c, y := s.cAt(t+i), s.yAt(t+i)
	j := 0
	for ; j+4 <= i+1; j += 4 {
		dot1x4(score[j:j+4], c, s.bAt(t+j), s.bAt(t+j+1), s.bAt(t+j+2), s.bAt(t+j+3))
	}
	for ; j <= i; j++ {
		score[j] = inner(s.bAt(t+j), c)
	}
	for j := range i + 1 {
		score[j] *= factor[j]
	}
	for j = 0; j+4 <= i+1; j += 4 {
		add4(y, s.xAt(t+j), s.xAt(t+j+1), s.xAt(t+j+2), s.xAt(t+j+3), score[j:j+4])
	}
	for ; j <= i; j++ {
		add1(y, s.xAt(t+j), score[j])
	}
}

// weights are exp(a_i - a_j) dt_j for the last token i.
func (s *ssdHead) weights(out []float32, sums []float64, t int) {
	last := sums[len(sums)-1]
	for j, a := range sums {
		out[j] = float32(last - a)
	}
	expInto(out, out, 1)
	for j := range out {
		out[j] *= s.dt.Row(t + j)[s.head]
	}
}

// carry takes the state past the chunk, four tokens at a time.
func (s *ssdHead) carry(t int, weight []float32, decay float32) {
	var x [ssdChunk]float32
	for p := range s.size {
		h := s.h[p*s.n : (p+1)*s.n]
		for k := range h {
			h[k] *= decay
		}
		for j, w := range weight {
			x[j] = w * s.xAt(t + j)[p]
		}
		j := 0
		for ; j+4 <= len(weight); j += 4 {
			add4(h, s.bAt(t+j), s.bAt(t+j+1), s.bAt(t+j+2), s.bAt(t+j+3), x[j:j+4])
		}
		for ; j < len(weight); j++ {
			add1(h, s.bAt(t+j), x[j])
		}
	}
}

// add4 adds four rows times a factor each.
func add4(y, b0, b1, b2, b3, x []float32) {
	b0, b1, b2, b3 = b0[:len(y)], b1[:len(y)], b2[:len(y)], b3[:len(y)]
	x0, x1, x2, x3 := x[0], x[1], x[2], x[3]
	for k := range y {
		y[k] += x0*b0[k] + x1*b1[k] + (x2*b2[k] + x3*b3[k])
	}
}

func add1(y, b []float32, x float32) {
	b = b[:len(y)]
	for k := range y {
		y[k] += x * b[k]
	}
}

package reproduce

import "math"

// span is a range of numbers.
type span struct{ lo, hi float64 }

func empty() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) add(x float64) { s.lo, s.hi = min(s.lo, x), max(s.hi, x) }

// outside is how far a span reaches beyond another, at its end that reaches further: below
// 0 for the lower one.
func (s span) outside(of span) float64 {
	below, above := min(0, s.lo-of.lo), max(0, s.hi-of.hi)
	if -below > above {
		return below
	}
	return above
}

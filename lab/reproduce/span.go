package reproduce

import "math"

// span is a range of numbers.
type span struct{ lo, hi float64 }

func empty() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) add(x float64) { s.lo, s.hi = min(s.lo, x), max(s.hi, x) }

// outside returns how far a span exceeds another at the end that exceeds it more: below 0 at the
// lower end.
func (s span) outside(of span) float64 {
	below, above := min(0, s.lo-of.lo), max(0, s.hi-of.hi)
	if -below > above {
		return below
	}
	return above
}

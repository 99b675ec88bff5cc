package svg

import "math"

// Axis maps numbers onto a line of a chart. Its ends and the distance of its ticks are round.
type Axis struct {
	Low, High float64
	step      float64 // between ticks; 0: the axis is logarithmic, with a tick per power of ten
}

// Linear returns an axis that covers low to high, with four to ten ticks that are 1, 2 or 5 times
// a power of ten apart.
func Linear(low, high float64) Axis {
	span := high - low
	if !(span > 0) {
		return Axis{low, low + 1, 0.25}
	}
	step := math.Pow(10, math.Floor(math.Log10(span)))
	for _, k := range []float64{0.1, 0.2, 0.5, 1} {
		if span <= 10*k*step {
			step *= k
			break
		}
	}
	if span <= 5*step {
		step /= 2
	}
	return Axis{step * math.Floor(low/step+1e-9), step * math.Ceil(high/step-1e-9), step}
}

// Logarithmic returns an axis of powers of ten that covers low to high, from at least 1.
func Logarithmic(low, high float64) Axis {
	return Axis{Low: math.Pow(10, math.Floor(math.Log10(max(low, 1)))), High: math.Pow(10, math.Ceil(math.Log10(max(high, 10))))}
}

// At returns where v lies, from 0 at Low to 1 at High. A logarithmic axis puts what is below it at
// 0.
func (a Axis) At(v float64) float64 {
	if a.step == 0 {
		return math.Log(max(v, a.Low)/a.Low) / math.Log(a.High/a.Low)
	}
	return (v - a.Low) / (a.High - a.Low)
}

// Ticks returns the numbers to mark, both ends among them.
func (a Axis) Ticks() (ticks []float64) {
	if a.step == 0 {
		for v := a.Low; v <= a.High*1.001; v *= 10 {
			ticks = append(ticks, v)
		}
		return ticks
	}
	for i := range int(math.Round((a.High-a.Low)/a.step)) + 1 {
		ticks = append(ticks, a.Low+float64(i)*a.step)
	}
	return ticks
}

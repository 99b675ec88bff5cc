package graphgen

import (
	"math"

	"github.com/krait-ml/krait/graph"
)

// Attr draws a legal value of an attribute: size gives the sizes of the rule's letters, pick a
// number from 0, below n. Numbers that may be large are small, and fractions large enough to
// matter. A text of which the row lists none is the default.
func Attr(a graph.Attr, size func(letter byte) int, pick func(n int) int) any {
	l := &a.Legal
	switch {
	case a.Kind == graph.StringAttr && l.OneOf == nil:
		return a.Default
	case a.Kind == graph.StringAttr:
		return l.OneOf[pick(len(l.OneOf))]
	case a.Kind == graph.IntAttr:
		return integer(l, size, pick)
	case l.Any():
		return []float64{-0.25, 0.5, 1.75}[pick(3)]
	}
	return fraction(l, l.Most(size))
}

// integer is a multiple of the step, from the least to the most.
func integer(l *graph.Legal, size func(letter byte) int, pick func(n int) int) int {
	step, most := max(1, l.Step), l.Most(size)
	least := step * int(math.Ceil(l.Min/float64(step)))
	if l.Above && float64(least) == l.Min {
		least += step
	}
	if math.IsInf(most, 1) {
		most = float64(least + 7*step)
	}
	return least + step*pick((int(math.Floor(most))-least)/step+1)
}

// fraction is between the least and the most.
func fraction(l *graph.Legal, most float64) float64 {
	switch {
	case !math.IsInf(most, 1):
		return (l.Min + most) / 2
	case l.Above:
		return l.Min + 100
	}
	return l.Min + 0.5
}

package graphgen

import (
	"math"

	"github.com/krait-ml/krait/graph"
)

// Attr draws a legal value of an attribute: size gives the sizes of the rule's
// letters, pick a number from 0, below n. Numbers that may be large are small, and
// fractions large enough to matter. A text of which the row lists none is the
// default.
func Attr(a graph.Attr, size func(letter byte) int, pick func(n int) int) any {
	l := &a.Legal
	switch {
	case a.Kind == graph.StringAttr && l.OneOf == nil:
		return a.Default
	case a.Kind == graph.StringAttr:
		return l.OneOf[pick(len(l.OneOf))]
	case a.Kind == graph.IntAttr:
		most := l.Most(size)
		if math.IsInf(most, 1) {
			most = l.Min + 7
		}
		least, step := int(l.Min), max(1, l.Step)
		return least + step*pick((int(most)-least)/step+1)
	case l.Above:
		return 100.0
	case math.IsInf(l.Max, 1):
		return 0.5
	}
	return []float64{-0.25, 0.5, 1.75}[pick(3)]
}

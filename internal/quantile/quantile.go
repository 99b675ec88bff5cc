// Package quantile picks from measurements.
package quantile

import (
	"cmp"
	"slices"
)

// Of is the value of a list that is not empty at share q of the way from its least, 0, to its
// largest, 1: one that was measured, the lower of two where q is between them.
func Of[T cmp.Ordered](list []T, q float64) T {
	return slices.Sorted(slices.Values(list))[int(q*float64(len(list)-1))]
}

// Median is Of the middle.
func Median[T cmp.Ordered](list []T) T { return Of(list, 0.5) }

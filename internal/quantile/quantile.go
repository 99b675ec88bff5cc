// Package quantile picks from measurements.
package quantile

import (
	"cmp"
	"slices"
)

// Of returns the value at quantile q, from 0 to 1, of a list that is not empty. Between two
// measurements it is the lower one.
func Of[T cmp.Ordered](list []T, q float64) T {
	return slices.Sorted(slices.Values(list))[int(q*float64(len(list)-1))]
}

// Median returns the middle value, of two the lower.
func Median[T cmp.Ordered](list []T) T { return Of(list, 0.5) }

// Rank returns the p-th percentile by the nearest rank: the least value that p percent of a list
// do not exceed. The list is not empty.
func Rank[T cmp.Ordered](list []T, p int) T {
	return slices.Sorted(slices.Values(list))[max(0, (p*len(list)+99)/100-1)]
}

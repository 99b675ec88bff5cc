// Package maxmin shares what there is among those who want it.
package maxmin

import (
	"math"
	"slices"
)

// Share is the share of each of those who want some of a capacity: who wants less gets that, and
// the others get as much, which is all there is (max-min fairness: Bertsekas and Gallager, "Data
// Networks", 1987). It is [math.MaxInt] if there is enough for all.
func Share(capacity int, wants []int) int {
	sorted := slices.Sorted(slices.Values(wants))
	for i, want := range sorted {
		if share := capacity / (len(sorted) - i); want > share {
			return share
		}
		capacity -= want
	}
	return math.MaxInt
}

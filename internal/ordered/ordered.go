// Package ordered sorts lists of structs with code that is compiled once. Functions of package
// slices are compiled for each type of element, to 5 to 8 KB each; those lists are short.
package ordered

import (
	"maps"
	"slices"
	"sort"
)

// Sort is slices.SortStableFunc.
func Sort[E any](list []E, compare func(a, b E) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// Keys are those of a map, sorted.
func Keys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := slices.Collect(maps.Keys(m))
	Sort(keys, compare)
	return keys
}

package tokenizer

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A runeSet is a set of characters: ranges in ascending order, with gaps between them.
type runeSet []runeRange

type runeRange struct{ low, high rune }

func (s runeSet) contains(r rune) bool {
	_, found := slices.BinarySearchFunc(s, r, func(in runeRange, r rune) int {
		switch {
		case in.high < r:
			return -1
		case in.low > r:
			return 1
		}
		return 0
	})
	return found
}

// union returns the characters that are in any of the sets.
func union(sets ...runeSet) runeSet {
	all := slices.Concat(sets...)
	slices.SortFunc(all, func(a, b runeRange) int { return cmp.Compare(a.low, b.low) })
	merged := all[:0]
	for _, r := range all {
		if last := len(merged) - 1; last >= 0 && r.low <= merged[last].high+1 {
			merged[last].high = max(merged[last].high, r.high)
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

// complement returns the characters that are not in s.
func (s runeSet) complement() runeSet {
	var rest runeSet
	next := rune(0)
	for _, r := range s {
		if next < r.low {
			rest = append(rest, runeRange{next, r.low - 1})
		}
		next = r.high + 1
	}
	if next <= unicode.MaxRune {
		rest = append(rest, runeRange{next, unicode.MaxRune})
	}
	return rest
}

// intersection returns the characters that are in both sets.
func intersection(a, b runeSet) runeSet {
	return union(a.complement(), b.complement()).complement()
}

// tableSet returns the characters of a table of package unicode.
func tableSet(table *unicode.RangeTable) runeSet {
	var set runeSet
	add := func(low, high, stride rune) {
		if stride == 1 {
			set = append(set, runeRange{low, high})
			return
		}
		for r := low; r <= high; r += stride {
			set = append(set, runeRange{r, r})
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return union(set)
}

// parseSet reads ranges of hexadecimal code points, as in "41-5A 5F".
// It is for the tables of this package, and panics if they are malformed.
func parseSet(text string) runeSet {
	var set runeSet
	for field := range strings.FieldsSeq(text) {
		low, high, isRange := strings.Cut(field, "-")
		if !isRange {
			high = low
		}
		set = append(set, runeRange{parseHex(low), parseHex(high)})
	}
	return union(set)
}

func parseHex(text string) rune {
	n, err := strconv.ParseInt(text, 16, 32)
	if err != nil {
		panic(err)
	}
	return rune(n)
}

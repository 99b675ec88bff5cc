package visualize

import (
	"fmt"
	"slices"
	"strings"
)

// difference describes how a block differs from another: by the counts of operations, or else by
// the first node that differs.
func difference(first, b *block) string {
	var more, less []string
	seen := map[string]bool{}
	count := func(of *block, op string) (n int) {
		for _, o := range of.ops {
			if o == op {
				n++
			}
		}
		return n
	}
	for _, op := range slices.Concat(b.ops, first.ops) {
		if seen[op] {
			continue
		}
		seen[op] = true
		switch n := count(b, op) - count(first, op); {
		case n > 0:
			more = append(more, times(op, n))
		case n < 0:
			less = append(less, times(op, -n))
		}
	}
	var parts []string
	if len(more) > 0 {
		parts = append(parts, "with "+strings.Join(more, ", "))
	}
	if len(less) > 0 {
		parts = append(parts, "without "+strings.Join(less, ", "))
	}
	if len(parts) > 0 {
		return strings.Join(parts, "; ")
	}
	return firstDifference(first, b)
}

// times writes matmul ×3.
func times(op string, n int) string {
	if n == 1 {
		return op
	}
	return fmt.Sprintf("%s\u00a0×%d", op, n)
}

// firstDifference describes the first node that differs, for blocks with equal counts of
// operations.
func firstDifference(first, b *block) string {
	before, after := strings.Split(first.key, "\n"), strings.Split(b.key, "\n")
	for i, op := range b.ops {
		if before[i] != after[i] {
			return fmt.Sprintf("operation %d of %d, %s, takes or gives other values", i+1, len(b.ops), op)
		}
	}
	panic("BUG: kinds of blocks differ in nothing")
}

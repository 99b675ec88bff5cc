package exec

import (
	"fmt"
	"slices"
)

// CheckPages counts who has pages, of slots and of what was kept, and compares with what
// the engine counts.
func (e *Engine) CheckPages(kept []*KeptRows) error {
	refs := make([]int32, len(e.pages.refs))
	for _, list := range e.slots.pages {
		for _, page := range list {
			refs[page]++
		}
	}
	for _, r := range kept {
		for _, k := range r.pages {
			refs[k.page]++
		}
	}
	for page, n := range refs {
		if n != e.pages.refs[page] {
			return fmt.Errorf("page %d is had by %d, counted are %d", page, n, e.pages.refs[page])
		}
	}
	free := slices.Sorted(slices.Values(e.pages.free))
	for page, n := range refs {
		if n == 0 {
			if len(free) == 0 || free[0] != int32(page) {
				return fmt.Errorf("page %d is not free, and nobody has it; free are %v", page, free)
			}
			free = free[1:]
		}
	}
	if len(free) > 0 {
		return fmt.Errorf("pages %v are free, and somebody has them", free)
	}
	return nil
}

// KeptPlaces is how many slots for kept states there are, and how many are free.
func (e *Engine) KeptPlaces() (n, free int) { return len(e.kept.refs), len(e.kept.free) }

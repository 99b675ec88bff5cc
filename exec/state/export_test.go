package state

import (
	"fmt"
	"slices"
)

// CheckPages counts the references to pages of all slots and of some KV caches, and compares the
// counts with those of the pool.
func (s *Store) CheckPages(list []*DeviceKV) error {
	refs := make([]int32, len(s.t.pages.refs))
	for _, list := range s.t.slots.pages {
		for _, page := range list {
			refs[page]++
		}
	}
	for _, r := range list {
		for _, k := range r.pages {
			refs[k.page]++
		}
	}
	for page, n := range refs {
		if n != s.t.pages.refs[page] {
			return fmt.Errorf("page %d has %d references, the pool counts %d", page, n, s.t.pages.refs[page])
		}
	}
	free := slices.Sorted(slices.Values(s.t.pages.free))
	for page, n := range refs {
		if n == 0 {
			if len(free) == 0 || free[0] != int32(page) {
				return fmt.Errorf("page %d has no reference, and is not free; free pages are %v", page, free)
			}
			free = free[1:]
		}
	}
	if len(free) > 0 {
		return fmt.Errorf("pages %v are free, and have references", free)
	}
	return nil
}

package kernels

import "testing"

// TestGroups: End is where Of is another number for the first time.
func TestGroups(t *testing.T) {
	for _, g := range []Groups{{0, 1, 0}, {0, 5, 0}, {7, 3, 2}, {12, 4, 3}} {
		for i := range 40 {
			end := i + 1
			for g.Of(end) == g.Of(i) {
				end++
			}
			if got := g.End(i); got != end {
				t.Errorf("%+v: the group of head %d ends at %d, want %d", g, i, got, end)
			}
		}
	}
}

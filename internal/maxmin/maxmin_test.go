package maxmin

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/krait-ml/krait/internal/prop"
)

// TestShare holds shares against what they are to be: all is given, or all wants are, and no share
// could be larger but by a smaller one's loss.
func TestShare(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		wants := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 8).Draw(t, "wants")
		capacity := rapid.IntRange(0, 120).Draw(t, "capacity")
		share, given, all := Share(capacity, wants), 0, 0
		for _, w := range wants {
			given += min(w, share)
			all += w
		}
		if given > capacity || all <= capacity && given != all || all > capacity && given <= capacity-len(wants) {
			t.Fatalf("of %d for %v each gets up to %d: %d", capacity, wants, share, given)
		}
	})
}

package prop

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCheck: parallel tests draw by their names, another call in one test draws otherwise, and
// another run of the same name draws the same.
func TestCheck(t *testing.T) {
	if anew() {
		t.Skip("KRAIT_TEST_ALL draws anew")
	}
	draws := map[string][]int{}
	before := calls.of["TestCheck/parallel/0"] // with -count
	t.Run("parallel", func(t *testing.T) {
		for i := range 8 {
			name := fmt.Sprint(i)
			list := make([]int, 0, 200)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for range 2 {
					Check(t, func(r *rapid.T) { list = append(list, rapid.Int().Draw(r, "n")) })
				}
				t.Cleanup(func() { calls.Lock(); draws[name] = list; calls.Unlock() })
			})
		}
	})
	for name, list := range draws {
		half := len(list) / 2
		if slices.Equal(list[:half], list[half:]) {
			t.Fatalf("test %s draws the same in both calls", name)
		}
		for other := range draws {
			if other != name && slices.Equal(list, draws[other]) {
				t.Fatalf("tests %s and %s draw the same", name, other)
			}
		}
		set("rapid.seed", fmt.Sprint(named(nth("TestCheck/parallel/"+name, before))))
		var again []int
		rapid.Check(t, func(r *rapid.T) { again = append(again, rapid.Int().Draw(r, "n")) })
		if len(again) < half || !slices.Equal(again[:half], list[:half]) {
			t.Fatalf("test %s draws otherwise when it is run again", name)
		}
	}
}

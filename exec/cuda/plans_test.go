package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

func keyOf(n int) planKey { return planKey{z: graph.Sizes{Tokens: int64(n)}} }

// use finds a plan, or makes it, as a rank does; and says which.
func (l *plans) use(t *testing.T, n int) (made bool) {
	t.Helper()
	if l.find(keyOf(n)) != nil {
		return false
	}
	if err := l.makeRoom(); err != nil {
		t.Fatal(err)
	}
	l.put(&plan{key: keyOf(n)})
	return true
}

// TestPlansOrder: the plan that was not used for the longest time goes, whichever way
// the others were used; compared with a list kept in that order.
func TestPlansOrder(t *testing.T) {
	for _, most := range []int{2, 3, 7} {
		r := rand.New(rand.NewPCG(1, uint64(most)))
		l := newPlans(most)
		var want []int // the last used at the end
		for step := range 500 {
			n := r.IntN(2 * most)
			at := slices.Index(want, n)
			if made := l.use(t, n); made != (at < 0) {
				t.Fatalf("%d kept, step %d: %d was made anew: %v; kept were %v", most, step, n, made, want)
			}
			if at >= 0 {
				want = slices.Delete(want, at, at+1)
			}
			if want = append(want, n); len(want) > most {
				want = want[1:]
			}
			for _, k := range want {
				if l.byKey[keyOf(k)] == nil {
					t.Fatalf("%d kept, step %d: %d has gone; want %v", most, step, k, want)
				}
			}
			if len(l.byKey) != len(want) {
				t.Fatalf("%d kept, step %d: %d plans, want %v", most, step, len(l.byKey), want)
			}
		}
		if err := l.clear(); err != nil || len(l.byKey) != 0 {
			t.Errorf("%d left: %v", len(l.byKey), err)
		}
	}
}

// TestPlansDoNotThrash: sizes that come again keep their plans, however many come
// once in between.
func TestPlansDoNotThrash(t *testing.T) {
	l := newPlans(maxPlans)
	made := 0
	for i := range 20 * maxPlans {
		for n := range maxPlans / 2 {
			if l.use(t, n) {
				made++
			}
		}
		l.use(t, 1000+i)
	}
	if made != maxPlans/2 {
		t.Errorf("%d plans were made for %d sizes that come again", made, maxPlans/2)
	}
}

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

func testKey(n int) programKey { return programKey{z: graph.Sizes{Tokens: int64(n)}} }

// use finds a program, or makes it, as a rank does; and says which.
func (l *programs) use(t *testing.T, n int) (made bool) {
	t.Helper()
	if l.find(testKey(n)) != nil {
		return false
	}
	if err := l.makeRoom(); err != nil {
		t.Fatal(err)
	}
	l.put(&program{key: testKey(n)})
	return true
}

// TestProgramsOrder: the program that was not used for the longest time goes, whichever way
// the others were used; compared with a list kept in that order.
func TestProgramsOrder(t *testing.T) {
	for _, most := range []int{2, 3, 7} {
		r := rand.New(rand.NewPCG(1, uint64(most)))
		l := newPrograms(most)
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
				if l.byKey[testKey(k)] == nil {
					t.Fatalf("%d kept, step %d: %d has gone; want %v", most, step, k, want)
				}
			}
			if len(l.byKey) != len(want) {
				t.Fatalf("%d kept, step %d: %d programs, want %v", most, step, len(l.byKey), want)
			}
		}
		if err := l.clear(); err != nil || len(l.byKey) != 0 {
			t.Errorf("%d left: %v", len(l.byKey), err)
		}
	}
}

// TestProgramsDoNotThrash: sizes that come again keep their programs, however many come
// once in between.
func TestProgramsDoNotThrash(t *testing.T) {
	l := newPrograms(maxPrograms)
	made := 0
	for i := range 20 * maxPrograms {
		for n := range maxPrograms / 2 {
			if l.use(t, n) {
				made++
			}
		}
		l.use(t, 1000+i)
	}
	if made != maxPrograms/2 {
		t.Errorf("%d programs were made for %d sizes that come again", made, maxPrograms/2)
	}
}

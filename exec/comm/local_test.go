package comm

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestJoin: each rank joins once, and ranks out of range do not.
func TestJoin(t *testing.T) {
	w := Local(2)
	if w.Ranks() != 2 {
		t.Errorf("%d ranks", w.Ranks())
	}
	for _, c := range []struct {
		rank int
		want string
	}{{1, ""}, {0, ""}, {1, "rank 1 has joined already"}, {2, "rank 2 joins a world of 2 ranks"}, {-1, "rank -1 joins"}} {
		_, err := w.Join(c.rank)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("rank %d: %v, want %q", c.rank, err, c.want)
		}
	}
}

// TestStop: a rank that stops, before, in the middle of, or after the others' wait, ends
// the step on all, the first error counts, and the next step is as if nothing had been.
func TestStop(t *testing.T) {
	const ranks = 3
	w := Local(ranks)
	var all sync.WaitGroup
	for r := range ranks {
		c, err := w.Join(r)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			withStops(t, c, r, ranks, func(step int) {
				if step%4 == 1 && (!c.Stopped() || c.Err() != errPlanted) {
					t.Errorf("step %d on rank %d ends with %v", step, r, c.Err())
				}
			})
		})
	}
	all.Wait()
}

const stopSteps = 200

var errPlanted = errors.New("planted")

// withStops runs the steps of a rank: one in four is stopped, by a rank after the other.
func withStops(t *testing.T, c Comm, rank, ranks int, ended func(step int)) {
	for step := range stopSteps {
		c.Begin()
		if err := c.Err(); err != nil && step%4 != 1 {
			t.Errorf("step %d begins with %v", step, err)
		}
		stops := step%4 == 1 && step%ranks == rank
		for k := range 3 {
			if stops && k == step/4%3 {
				c.Stop(errPlanted)
				c.Stop(errors.New("a second error"))
			}
			x := sumOf(5)
			x.Args[0].Write(0, []float32{1, float32(rank), 2, 3, float32(step)})
			err := c.Run(x)
			if step%4 != 1 && (err != nil || valueAt(&x.Results[0], 0, 1) != 3 || valueAt(&x.Results[0], 0, 4) != float32(ranks*step)) {
				t.Errorf("step %d: %v", step, err)
			}
			if err != nil {
				break
			}
		}
		ended(step)
	}
}

// TestEveryCollective: there is no row that ranks do not know.
func TestEveryCollective(t *testing.T) {
	for _, op := range graph.Collectives() {
		layouts := way{from: op.From, to: op.To}
		if collectives[layouts] == nil || byMessages[layouts] == nil {
			t.Errorf("ranks that share memory, or those in several processes, do not know %s", op.Name)
		}
	}
}

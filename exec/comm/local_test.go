package comm

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestJoin: each rank joins once, and only those that there are.
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
	const ranks, steps = 3, 200
	planted := errors.New("planted")
	w := Local(ranks)
	var all sync.WaitGroup
	for r := range ranks {
		c, err := w.Join(r)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for step := range steps {
				c.Begin()
				if err := c.Err(); err != nil && step%4 != 1 {
					t.Errorf("step %d begins with %v", step, err)
				}
				stops := step%4 == 1 && step%ranks == r
				for k := range 3 {
					if stops && k == step/4%3 {
						c.Stop(planted)
						c.Stop(errors.New("a second error"))
					}
					x := Collective{Op: op("all_reduce"), Args: []kernels.Tensor{tensorOf(graph.F32, 1, 3, []float32{1, float32(r), float32(step)})}}
					x.Results = x.Args
					err := c.Run(&x)
					if step%4 != 1 && (err != nil || valueAt(&x.Results[0], 0, 1) != 3) {
						t.Errorf("step %d: %v", step, err)
					}
					if err != nil {
						break
					}
				}
				if step%4 == 1 && (!c.Stopped() || c.Err() != planted) {
					t.Errorf("step %d on rank %d ends with %v", step, r, c.Err())
				}
			}
		})
	}
	all.Wait()
}

// TestEveryCollective: there is no row that ranks do not know.
func TestEveryCollective(t *testing.T) {
	for _, op := range graph.Collectives() {
		layouts := [2]graph.LayoutKind{op.From, op.To}
		if collectives[layouts] == nil || byMessages[layouts] == nil {
			t.Errorf("ranks that share memory, or those in several processes, do not know %s", op.Name)
		}
	}
}

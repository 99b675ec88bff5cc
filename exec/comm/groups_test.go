package comm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// TestGroupsOfWorld: groups of one world sum at the same time, each its own ranks, and ranks of
// consecutive stages pass tensors, however often, without any other.
func TestGroupsOfWorld(t *testing.T) {
	m := graph.Mesh{graph.TP: 2, graph.PP: 2, graph.DP: 2}
	collectively(t, m.Ranks(), func(c Comm, rank int) error {
		s := &lowering.Schedule{Mesh: m, Rank: m.At(rank, graph.TP), Ranks: 2, Stage: m.At(rank, graph.PP), Replica: m.At(rank, graph.DP)}
		sum, across := sumOf(5), sumOf(4)
		sum.Group = s.Group(&lowering.Step{Op: sum.Op})
		across.Group = lowering.Group{First: rank % 4, Stride: 4, Size: 2}
		for step := range 50 {
			for range 1 + rank%3 { // not all have as much to do
				sum.Args[0].Write(0, []float32{float32(rank), 1, 2, 3, float32(step)})
			}
			if err := c.Run(sum); err != nil {
				return err
			}
			first := rank - rank%2
			if got, want := valueAt(&sum.Results[0], 0, 0), float32(2*first+1); got != want {
				return fmt.Errorf("step %d: %g is the sum of ranks %d and %d, want %g", step, got, first, first+1, want)
			}
			if err := passOn(c, s, float32(step)); err != nil {
				return err
			}
			across.Args[0].Write(0, []float32{float32(rank), 0, 0, 0})
			if err := c.Run(across); err != nil {
				return err
			}
			if got, want := valueAt(&across.Results[0], 0, 0), float32(2*(rank%4)+4); got != want {
				return fmt.Errorf("step %d: %g over the replicas, want %g", step, got, want)
			}
		}
		return nil
	})
}

// passOn sends two tensors from the first stage to the second.
func passOn(c Comm, s *lowering.Schedule, step float32) error {
	values := func(v float32) []kernels.Tensor {
		return []kernels.Tensor{tensorOf(graph.F32, 2, 3, []float32{v, 1, 2, 3, 4, step}), tensorOf(graph.BF16, 1, 2, []float32{v, 7})}
	}
	if s.Stage == 0 {
		return c.Run(&Collective{Op: lowering.Send, Group: s.Group(&lowering.Step{Op: lowering.Send}), Args: values(float32(s.World()))})
	}
	x := &Collective{Op: lowering.Receive, Group: s.Group(&lowering.Step{Op: lowering.Receive}), Results: values(-1)}
	if err := c.Run(x); err != nil {
		return err
	}
	a, b := &x.Results[0], &x.Results[1]
	got := []float32{valueAt(a, 0, 0), valueAt(a, 1, 2), valueAt(b, 0, 0), valueAt(b, 0, 1)}
	if want := []float32{float32(s.World() - 2), step, float32(s.World() - 2), 7}; fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("rank %d got %v, want %v", s.World(), got, want)
	}
	return nil
}

// TestStopOfGroups: a rank that stops ends the step also in groups that it has no part in.
func TestStopOfGroups(t *testing.T) {
	for name, world := range worlds {
		list := world(t, 4)
		done := make(chan error)
		for r := range 4 {
			go func() {
				c, err := list[r].Join(r)
				if err != nil {
					done <- err
					return
				}
				c.Begin()
				if r == 3 { // ranks 2 and 0 wait for 3 and 1, and 1 for a sender that has stopped
					c.Stop(errPlanted)
					done <- c.Err()
					return
				}
				x := sumOf(3)
				x.Group = lowering.Group{First: r, Stride: 1, Size: 2}
				if r == 1 {
					x = &Collective{Op: lowering.Receive, Group: lowering.Group{First: 3, Stride: -2, Size: 2}, Results: x.Results}
				}
				done <- c.Run(x)
			}()
		}
		for range 4 {
			if err := <-done; err == nil || !errors.Is(err, errPlanted) && err.Error() != errPlanted.Error() {
				t.Errorf("%s: %v, want %v", name, err, errPlanted)
			}
		}
	}
}

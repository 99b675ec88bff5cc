package lowering

import (
	"errors"
	"fmt"
	"slices"
)

// CheckAll checks the schedules of all ranks, and that they have the same
// collectives in the same order.
func CheckAll(schedules []*Schedule) error {
	if len(schedules) == 0 {
		return errors.New("there is no schedule")
	}
	for i, s := range schedules {
		if s.Rank != i || s.Ranks != len(schedules) {
			return fmt.Errorf("schedule %d of %d is for rank %d of %d", i, len(schedules), s.Rank, s.Ranks)
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("the schedule of rank %d: %w", i, err)
		}
		if err := sameCollectives(schedules[0], s); err != nil {
			return err
		}
	}
	return nil
}

// sameCollectives compares those of a rank with those of rank 0.
func sameCollectives(first, s *Schedule) error {
	want, got := first.collectives(), s.collectives()
	if len(got) != len(want) {
		return fmt.Errorf("rank %d takes part in %d collectives, rank 0 in %d", s.Rank, len(got), len(want))
	}
	for i := range got {
		if a, b := got[i], want[i]; a.String() != b.String() || !sameTypes(a.Args, b.Args) || !sameTypes(a.Results, b.Results) {
			return fmt.Errorf("collective %d is %q on rank %d and %q on rank 0", i, a, s.Rank, b)
		}
	}
	return nil
}

func sameTypes(a, b []Ref) bool {
	return slices.EqualFunc(a, b, func(a, b Ref) bool { return a.Type.Equal(b.Type) })
}

// collectives lists them in the order of the comm stream.
func (s *Schedule) collectives() []*Step {
	var out []*Step
	for i := range s.Steps {
		if s.Steps[i].Kind == Collective {
			out = append(out, &s.Steps[i])
		}
	}
	return out
}

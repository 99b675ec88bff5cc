package lowering

import (
	"errors"
	"fmt"
	"slices"
)

// CheckAll checks the schedules of all ranks, and that the ranks of each group have the same
// collectives in the same order.
func CheckAll(schedules []*Schedule) error {
	if len(schedules) == 0 {
		return errors.New("there is no schedule")
	}
	if err := Numbered(schedules); err != nil {
		return err
	}
	for i, s := range schedules {
		if err := s.Check(); err != nil {
			return fmt.Errorf("the schedule of rank %d: %w", i, err)
		}
	}
	return sameCollectives(schedules)
}

// Numbered checks that schedules are those of all ranks of one mesh, in their order.
func Numbered(schedules []*Schedule) error {
	for i, s := range schedules {
		if s.World() != i || s.Worlds() != len(schedules) || s.Mesh != schedules[0].Mesh {
			return fmt.Errorf("schedule %d of %d is for rank %d of %d", i, len(schedules), s.World(), s.Worlds())
		}
	}
	return nil
}

// sameCollectives compares the collectives of the ranks of each group with those of its first.
func sameCollectives(schedules []*Schedule) error {
	var groups []Group
	by := make([]map[Group][]*Step, len(schedules)) // by rank
	known := map[Group]bool{}
	for i, s := range schedules {
		by[i] = map[Group][]*Step{}
		for _, st := range s.collectives() {
			g := s.Group(st)
			if by[i][g] = append(by[i][g], st); !known[g] {
				known[g], groups = true, append(groups, g)
			}
		}
	}
	for _, g := range groups {
		if last := g.At(g.Size - 1); min(g.First, last) < 0 || max(g.First, last) >= len(schedules) {
			return fmt.Errorf("a collective is of ranks %d to %d; there are %d", g.First, last, len(schedules))
		}
		for i := range g.Size {
			if err := sameIn(g, by, g.At(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameIn compares the collectives of a rank in a group with those of its first rank.
func sameIn(g Group, by []map[Group][]*Step, rank int) error {
	want, got := by[g.First][g], by[rank][g]
	if len(got) != len(want) {
		return fmt.Errorf("rank %d takes part in %d collectives, rank %d in %d", rank, len(got), g.First, len(want))
	}
	for i := range got {
		a, b := got[i], want[i]
		same := a.String() == b.String() && sameTypes(a.Args, b.Args) && sameTypes(a.Results, b.Results)
		if a.Op == Receive && rank != g.First {
			same = b.Op == Send && sameTypes(a.Results, b.Args) && names(a.Results) == names(b.Args)
		}
		if a.Op == ReceiveStates && rank != g.First {
			same = b.Op == SendStates && sameTypes(a.Args, b.Args) && names(a.Args) == names(b.Args)
		}
		if !same {
			return fmt.Errorf("collective %d is %q on rank %d and %q on rank %d", i, a, rank, b, g.First)
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

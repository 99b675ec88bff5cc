package lowering_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// chainOf lowers a model whose three ranks have tokens in parts, in a chain or not.
func chainOf(t *testing.T, chain bool) []*lowering.Schedule {
	t.Helper()
	_, g, err := checkpoint.Describe("../testdata/golden/mamba-a")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := passes.FindStrategy("context")
	if err != nil {
		t.Fatal(err)
	}
	if g, err = passes.Compile(g, passes.Options{Ranks: 3, Strategy: parts}); err != nil {
		t.Fatal(err)
	}
	list, err := lowering.LowerStages(g, 0, lowering.Stages{Chain: chain})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestChain: in a chain each recurrence runs once and gathers nothing; the schedules check together
// and print as text that parses.
func TestChain(t *testing.T) {
	list, gathers := chainOf(t, true), chainOf(t, false)
	if err := lowering.CheckAll(list); err != nil {
		t.Fatal(err)
	}
	for i, s := range list {
		if back, err := lowering.ParseSchedule(s.String()); err != nil || back.String() != s.String() {
			t.Fatalf("rank %d: %v", i, err)
		}
		once, twice := recurrences(s), recurrences(gathers[i])
		states := 0
		for _, b := range s.Buffers {
			if b.Space == lowering.State {
				states++
			}
		}
		if once != states || twice != 3*states { // with the operations that compose them
			t.Errorf("rank %d: %d recurrences in a chain and %d with gathers, of %d states", i, once, twice, states)
		}
		sent := 0
		for _, st := range s.Steps {
			if st.Op == lowering.SendStates {
				for _, x := range s.Payload(&st) {
					sent += graph.RowElems(x.Dims) * x.DType.Bytes()
				}
			}
		}
		if want := []int{1, 1, 2}[i] * int(s.Bytes[lowering.State]); sent != want {
			t.Errorf("rank %d sends %d bytes per sequence, want %d", i, sent, want)
		}
	}
}

// recurrences counts the steps that make states, of sequences or of parts.
func recurrences(s *lowering.Schedule) (n int) {
	for _, st := range s.Steps {
		if st.Kind == lowering.Launch && len(st.Op.States) > 0 {
			n++
		}
	}
	return n
}

// TestChainBroken: schedules whose ranks pass states in another order, twice, from the wrong side
// or not at all are refused.
func TestChainBroken(t *testing.T) {
	at := func(s *lowering.Schedule, op *graph.Op) int {
		return slices.IndexFunc(s.Steps, func(st lowering.Step) bool { return st.Op == op })
	}
	for want, breaks := range map[string]func(list []*lowering.Schedule){
		`["receive from 2" "run" "send to 2" "receive from 2"], and must be ["receive from 0" `: func(list []*lowering.Schedule) {
			st := &list[1].Steps[at(list[1], lowering.ReceiveStates)]
			st.Attrs = graph.Attrs{"peer": 2} // the wrong side
		},
		`["run" "send to 1" "send to 1" "receive from 2"]`: func(list []*lowering.Schedule) {
			i := at(list[0], lowering.SendStates)
			list[0].Steps = slices.Insert(list[0].Steps, i, list[0].Steps[i])
		},
		`["run" "receive from 2"]`: func(list []*lowering.Schedule) {
			i := at(list[0], lowering.SendStates)
			list[0].Steps = slices.Delete(list[0].Steps, i, i+1)
		},
		`["run" "receive from 0" "send to 2" "receive from 2"], and must be ["receive from 0"`: func(list []*lowering.Schedule) {
			steps := list[1].Steps
			i := at(list[1], lowering.ReceiveStates)
			k := i + slices.IndexFunc(steps[i:], func(st lowering.Step) bool { return st.Kind == lowering.Launch && len(st.Op.States) > 0 })
			list[1].Steps = slices.Delete(slices.Insert(steps, k+1, steps[i]), i, i+1) // after it ran
		},
		"must be another of the chain's 3": func(list []*lowering.Schedule) {
			list[0].Steps[at(list[0], lowering.SendStates)].Attrs = graph.Attrs{"peer": 0}
		},
		"the last operand must be the segments": func(list []*lowering.Schedule) {
			st := &list[0].Steps[at(list[0], lowering.SendStates)]
			slices.Reverse(st.Args)
		},
		"it must be on comm": func(list []*lowering.Schedule) {
			list[0].Steps[at(list[0], lowering.SendStates)].Stream = lowering.Compute
		},
		"schedule 1 of 3 is for rank 2": func(list []*lowering.Schedule) { list[1], list[2] = list[2], list[1] },
	} {
		list := chainOf(t, true)
		breaks(list)
		if err := lowering.CheckAll(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

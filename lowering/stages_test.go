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

// stagesOf lowers a model on two ranks in each of some stages and replicas.
func stagesOf(t *testing.T, dir string, p lowering.Stages) []*lowering.Schedule {
	t.Helper()
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = passes.Compile(g, passes.Options{Ranks: 2}); err != nil {
		t.Fatal(err)
	}
	list, err := lowering.LowerStages(g, 0, p)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

const shared = "../testdata/golden/zamba2" // has a shared block, and one that is the head

// TestStagesChecked: the schedules of stages and replicas check together and print as text that
// parses; each parameter and state is where its layers are, and shared ones wherever they are used.
func TestStagesChecked(t *testing.T) {
	list := stagesOf(t, shared, lowering.Stages{First: []string{"layers.2", "layers.4"}, Replicas: 2})
	if err := lowering.CheckAll(list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 12 || list[0].Mesh.String() != "tp=2,pp=3,dp=2" {
		t.Fatalf("%d schedules on %s", len(list), list[0].Mesh)
	}
	of := map[string][]int{}
	for i, s := range list {
		back, err := lowering.ParseSchedule(s.String())
		if err != nil || back.String() != s.String() || back.World() != i {
			t.Fatalf("rank %d: %v", i, err)
		}
		for _, b := range s.Buffers {
			if kept := b.Space == lowering.State || b.Space == lowering.Cache; (kept || b.Space == lowering.Param) && s.Rank == 0 && s.Replica == 0 {
				of[b.Name] = append(of[b.Name], s.Stage)
			}
		}
	}
	own := map[string]int{"layers.0": 0, "layers.1": 0, "layers.2": 1, "layers.3": 1, "layers.4": 2, "layers.5": 2}
	several := 0
	for name, stages := range of {
		if want, ok := own[graph.BlockOf(name)]; len(stages) > 1 {
			several++
		} else if ok && stages[0] != want {
			t.Errorf("%s is in stage %d, want %d", name, stages[0], want)
		}
	}
	if several == 0 || !slices.Equal(of["embed_tokens.weight"], []int{0, 2}) && !slices.Equal(of["embeddings.weight"], []int{0, 2}) {
		t.Errorf("%d parameters are in several stages: %v", several, of)
	}
}

// TestStagesBroken: schedules whose ranks do not pass what the next stage takes are refused.
func TestStagesBroken(t *testing.T) {
	step := func(s *lowering.Schedule, op *graph.Op) *lowering.Step {
		i := slices.IndexFunc(s.Steps, func(st lowering.Step) bool { return st.Op == op })
		return &s.Steps[i]
	}
	for want, breaks := range map[string]func(list []*lowering.Schedule){
		"rank 2 takes part in 1 collectives, rank 0 in 0": func(list []*lowering.Schedule) {
			list[0].Steps = slices.DeleteFunc(list[0].Steps, func(st lowering.Step) bool { return st.Op == lowering.Send })
		},
		"collective 0 is": func(list []*lowering.Schedule) { st := step(list[0], lowering.Send); st.Args = st.Args[:1] },
		"there is no stage beyond 1 of 2": func(list []*lowering.Schedule) {
			st := step(list[2], lowering.Receive)
			st.Op, st.Args, st.Results = lowering.Send, st.Results, nil
		},
		"schedule 1 of 4 is for rank 0 of 4":      func(list []*lowering.Schedule) { list[1] = list[0] },
		"schedule 2 of 4 is for rank 4 of 4":      func(list []*lowering.Schedule) { list[2].Stage = 2 },
		"which no step has written":               func(list []*lowering.Schedule) { list[3].Steps = slices.DeleteFunc(list[3].Steps, received) },
		"it must be on comm, in no loop":          func(list []*lowering.Schedule) { step(list[0], lowering.Send).Stream = lowering.Compute },
		"is for some outputs; events and collect": func(list []*lowering.Schedule) { step(list[0], lowering.Send).For = []int{} },
	} {
		list := stagesOf(t, shared, lowering.Stages{First: []string{"layers.3"}})
		breaks(list)
		if err := lowering.CheckAll(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func received(st lowering.Step) bool { return st.Op == lowering.Receive }

// TestStagesRefused: stages begin at blocks, in their order.
func TestStagesRefused(t *testing.T) {
	_, g, err := checkpoint.Describe(shared)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = passes.Compile(g, passes.Options{}); err != nil {
		t.Fatal(err)
	}
	for want, first := range map[string][]string{
		"there is no block layers.9 to begin a stage with":                          {"layers.9"},
		"block layers.2 begins a stage, and is not after the stage's before":        {"layers.3", "layers.2"},
		"block layers.0 begins a stage, and is not after the stage's before; stage": {"layers.0"},
	} {
		if _, err := lowering.LowerStages(g, 0, lowering.Stages{First: first}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", first, err, want)
		}
	}
}

// TestStagesPassOnce: where a graph was compiled for the cut a rank passes the residual stream from
// stage to stage, and nothing else; of one that was not, a norm takes both summands there.
func TestStagesPassOnce(t *testing.T) {
	_, g, err := checkpoint.Describe("../testdata/golden/mamba-a")
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[passes.Pipeline]int{{Stages: 2}: 1, {}: 2} {
		fused, err := passes.Compile(g, passes.Options{Ranks: 2, Pipeline: p})
		if err != nil {
			t.Fatal(err)
		}
		first, err := passes.Pipeline{Stages: 2}.Cut(fused)
		if err != nil {
			t.Fatal(err)
		}
		list, err := lowering.LowerStages(fused, 0, lowering.Stages{First: first})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list[0].Steps, func(st lowering.Step) bool { return st.Op == lowering.Send })
		if i < 0 || len(list[0].Steps[i].Args) != want {
			t.Errorf("compiled for %+v, a rank does not pass %d values at the cut:\n%s", p, want, list[0])
		}
	}
}

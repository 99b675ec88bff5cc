package tests

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// TestRecord: what devices tell of their steps is what schedules say must be: each step
// that ran once, in the order of its stream, after what it waits for; and all ranks are at a
// collective at the same time.
func TestRecord(t *testing.T) {
	hw, err := cost.Find("a100-nvlink")
	if err != nil {
		t.Fatal(err)
	}
	for name, device := range map[string]exec.Device{
		"cpu": &cpu.Device{Workers: 2}, "cuda, a GPU": &cuda.Device{Driver: sim.New(sim.Options{Seed: 3})},
		"cuda, 2 GPUs": &cuda.Device{Driver: sim.New(sim.Options{Seed: 4, Devices: 2})}, "virtual": &virtual.Device{Profile: hw},
	} {
		if name == "cuda, a GPU" && goldens.Few(t) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var steps [][]exec.Event
			var works []exec.Work
			m, err := krait.Open("../testdata/golden/mamba-a", krait.Options{Slots: 2, Device: device, Sharding: krait.Sharding{Ranks: 2},
				Record:  func(e []exec.Event) { steps = append(steps, slices.Clone(e)) },
				Batches: func(w *exec.Work) { works = append(works, exec.Work{Batch: w.Batch, Outputs: slices.Clone(w.Outputs)}) }})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			e := m.Engine()
			slot, err := e.Alloc()
			if err != nil {
				t.Fatal(err)
			}
			for _, tokens := range [][]int{{1, 2, 3, 4, 5}, {6}, {7}, {8}} { // the last ones would be captured
				if _, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: tokens}}}); err != nil {
					t.Fatal(err)
				}
			}
			if len(steps) != 4 || len(works) != 4 {
				t.Fatalf("%d steps and %d batches are told of, in place of 4", len(steps), len(works))
			}
			for i, events := range steps {
				for rank, s := range e.Schedules() {
					if err := follows(s, rank, events, &works[i]); err != nil {
						t.Errorf("step %d: %v", i, err)
					}
				}
				if err := meets(events); err != nil {
					t.Errorf("step %d: %v", i, err)
				}
				if i > 0 && ends(steps[i-1]) > events[0].Start+1e-6 {
					t.Errorf("step %d begins at %g, and the one before ends at %g", i, events[0].Start, ends(steps[i-1]))
				}
			}
		})
	}
}

func ends(events []exec.Event) (end float64) {
	for _, e := range events {
		end = max(end, e.End)
	}
	return end
}

// late is what the clocks of devices may be off.
const late = 1e-8

// follows holds the events of a rank against its schedule.
func follows(s *lowering.Schedule, rank int, events []exec.Event, w *exec.Work) error {
	at := map[string]exec.Event{}
	for _, e := range events {
		if e.Rank != rank || e.Kind == lowering.Wait {
			continue
		}
		if _, twice := at[e.Name]; twice {
			return fmt.Errorf("rank %d: %s ran twice", rank, e.Name)
		}
		if e.End < e.Start-late {
			return fmt.Errorf("rank %d: %s ends at %g and begins at %g", rank, e.Name, e.End, e.Start)
		}
		at[e.Name] = e
	}
	free, recorded := map[lowering.Stream]float64{}, map[int]float64{}
	for _, st := range s.Steps {
		switch st.Kind {
		case lowering.Record:
			recorded[st.Event] = free[st.Stream]
			continue
		case lowering.Wait:
			free[st.Stream] = max(free[st.Stream], recorded[st.Event])
			continue
		}
		e, ran := at[st.Name]
		runs := st.For == nil || rank == 0 && w.Outputs.Needs(st.For)
		if ran != runs {
			return fmt.Errorf("rank %d: %s is told of: %t, and it runs: %t", rank, st.Name, ran, runs)
		}
		if !ran {
			continue
		}
		if e.Op != st.Op.Name || e.Stream != st.Stream || e.Kind != st.Kind || st.Kind == lowering.Collective && e.Bytes != exec.BytesOf(&st, s.Ranks, w.Sizes) {
			return fmt.Errorf("rank %d: %s is %+v", rank, st.Name, e)
		}
		if e.Start < free[st.Stream]-late {
			return fmt.Errorf("rank %d: %s begins at %.9f, and what is before it ends at %.9f", rank, st.Name, e.Start, free[st.Stream])
		}
		free[st.Stream] = e.End
		delete(at, st.Name)
	}
	if len(at) > 0 {
		return fmt.Errorf("rank %d: %v are no steps", rank, at)
	}
	return nil
}

// meets: no rank leaves a collective before all have come.
func meets(events []exec.Event) error {
	came, left := map[string]float64{}, map[string]float64{}
	for _, e := range events {
		if e.Kind != lowering.Collective {
			continue
		}
		came[e.Name] = max(came[e.Name], e.Start)
		if end, ok := left[e.Name]; !ok || e.End < end {
			left[e.Name] = e.End
		}
	}
	if len(came) == 0 {
		return fmt.Errorf("there are no collectives")
	}
	for name, start := range came {
		if left[name] < start-late {
			return fmt.Errorf("%s: a rank leaves at %.9f, and another comes at %.9f", name, left[name], start)
		}
	}
	return nil
}

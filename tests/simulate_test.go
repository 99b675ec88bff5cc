package tests

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// watched lets a test see the machine that an engine has opened.
type watched struct {
	virtual.Device
	machine *virtual.Machine
}

func (w *watched) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	m, err := w.Device.Open(local, world, o)
	if err == nil {
		w.machine = m.(*virtual.Machine)
	}
	return m, err
}

func hardware(t testing.TB, name string) *cost.Profile {
	t.Helper()
	p, err := cost.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestVirtualCounts: the virtual device has the collectives of a run on the CPU, with
// their calls and bytes, for every checkpoint and strategy, and takes the same steps, loops
// piece by piece; and the memory of the plan.
func TestVirtualCounts(t *testing.T) {
	goldens.CI(t)
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	cases := covering.Each(t, []int{len(folders), len(passes.Strategies)}, 3, 2)
	if goldens.Few(t) {
		cases = cases[:len(cases)/2]
	}
	for _, c := range cases {
		dir, i, k, ranks := folders[c[0]], c[0], c[1], 2+c[2]
		s := krait.Sharding{Ranks: ranks, Strategy: passes.Strategies[k].Name}
		if c[3] == 0 {
			s.Payload = "fp16"
		}
		t.Run(fmt.Sprintf("%s/%s/tp=%d/%s", filepath.Base(dir), s.Strategy, ranks, s.Payload), func(t *testing.T) {
			d := &watched{Device: virtual.Device{Profile: hardware(t, "a6000-pcie")}}
			var ran, told []string
			o := krait.Options{Slots: 2, Context: room, Sharding: s, PieceTokens: 2 * ((i + k) % 2), Record: into(&ran)}
			o.Device = &cpu.Device{GatherStates: true} // the virtual device models no chains
			onCPU, err := krait.Open(dir, o)
			if err != nil && strings.Contains(err.Error(), "no value of the graph fits the pattern") {
				return // there is nothing for the strategy to place
			}
			if err != nil {
				t.Fatal(err)
			}
			defer onCPU.Close()
			o.Device, o.Record = d, into(&told)
			m, err := krait.Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			want, got := countBatches(t, onCPU), countBatches(t, m)
			if !slices.Equal(got, want) {
				t.Errorf("collectives\n%+v, on the CPU\n%+v", got, want)
			}
			if !slices.Equal(told, ran) {
				t.Errorf("%d events\n%s\non the CPU %d\n%s", len(told), strings.Join(told, "\n"), len(ran), strings.Join(ran, "\n"))
			}
			asPlanned(t, m, d.machine)
		})
	}
}

// into writes down what ranks do, stream by stream: the steps, and what collectives carry.
func into(list *[]string) exec.Recorder {
	return func(step []exec.Event) {
		var lines [2][]string
		end := func() {
			*list = append(append(*list, lines[0]...), lines[1]...)
			lines = [2][]string{}
		}
		for i, e := range step {
			if i > 0 && e.Rank != step[i-1].Rank {
				end()
			}
			switch e.Kind {
			case lowering.Collective:
				lines[e.Stream] = append(lines[e.Stream], fmt.Sprintf("%d %s %s %d", e.Rank, e.Op, e.Name, e.Bytes))
			case lowering.Launch, lowering.Relayout:
				lines[e.Stream] = append(lines[e.Stream], fmt.Sprintf("%d %s %s", e.Rank, e.Op, e.Name))
			}
		}
		end()
	}
}

// steps are those of countBatches: the tokens of two sequences.
var steps = [][2]int{{5, 1}, {2, 3}, {1, 1}}

const room = 100 // tokens of a sequence

// countBatches feeds two sequences, and returns what the collectives did.
func countBatches(t *testing.T, m *krait.Model) []exec.CollectiveCount {
	t.Helper()
	e := m.Engine()
	var slots [2]int
	for i := range slots {
		var err error
		if slots[i], err = e.Alloc(); err != nil {
			t.Fatal(err)
		}
	}
	e.ResetCounts()
	for _, n := range steps {
		b := exec.Batch{Choices: make([]exec.Choice, 2)}
		for i, slot := range slots {
			b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot, Tokens: make([]int, n[i])})
		}
		if _, err := e.Step(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
	}
	return e.Collectives()
}

// asPlanned compares what the machine has taken with the plan: it has two slots, room for
// as many tokens of each, and the arena of the largest of the steps.
func asPlanned(t *testing.T, m *krait.Model, v *virtual.Machine) {
	t.Helper()
	p, err := lowering.NewPlan(m.Engine().Schedules())
	if err != nil {
		t.Fatal(err)
	}
	place := m.Engine().Schedules()[0].RowPlace()
	for r, plan := range p.Ranks {
		want := virtual.Memory{Weights: plan.Weights + plan.Constants, State: 2 * plan.State, Cache: 2 * room * plan.Cache}
		for _, n := range steps {
			z := graph.Sizes{Tokens: int64(n[0] + n[1]), Seqs: 2, Rows: 2}
			z.Largest = (&graph.Batch{Sizes: z, Ends: []int{n[0], n[0] + n[1]}}).LargestShare(place, len(p.Ranks))
			want.Arena = max(want.Arena, plan.Arena.At(z))
		}
		if got := v.Memory(r); got != want {
			t.Errorf("rank %d has %+v, want %+v", r, got, want)
		}
	}
}

// TestSimulatedAsRun: what is simulated is what an engine on the virtual device takes.
func TestSimulatedAsRun(t *testing.T) {
	for _, name := range []string{"mamba2-g4", "jamba"} {
		d := &watched{Device: virtual.Device{Profile: hardware(t, "h100-nvlink")}}
		m, err := krait.Open("../testdata/golden/"+name, krait.Options{Slots: 3, Sharding: krait.Sharding{Ranks: 2}, Device: d})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		e, last := m.Engine(), 0.0
		b := exec.Batch{Choices: make([]exec.Choice, 3)}
		for range 3 {
			slot, err := e.Alloc()
			if err != nil {
				t.Fatal(err)
			}
			b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot})
		}
		times := []float64{}
		for _, n := range []int{4, 4, 2, 1, 1, 1} { // a prompt of 10 in chunks of 4, and 3 tokens more
			for i := range b.Sequences {
				b.Sequences[i].Tokens, b.Sequences[i].Rows = make([]int, n), nil
				if n == 4 {
					b.Sequences[i].Rows = []int{}
				}
			}
			if b.Choices, b.Outputs = make([]exec.Choice, 3), nil; n == 4 {
				b.Choices, b.Outputs = nil, []string{}
			}
			if _, err := e.Step(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			span := d.machine.Last()
			if span.Start != last {
				t.Errorf("%s: a step begins at %g, and the last ended at %g", name, span.Start, last)
			}
			last = span.End
			times = append(times, span.End)
		}
		s, err := simulate.New(e.Schedules(), &d.Device, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run(simulate.Workload{Batch: 3, Prompt: 10, Output: 4, Chunk: 4})
		if err != nil {
			t.Fatal(err)
		}
		if nearly(r.TTFT, times[2]) && nearly(r.TPOT, (times[5]-times[2])/3) && nearly(r.Throughput, 12/times[5]) {
			continue
		}
		t.Errorf("%s: TTFT %g, TPOT %g, %g tokens/s; the engine's steps end at %v", name, r.TTFT, r.TPOT, r.Throughput, times)
	}
}

func nearly(a, b float64) bool { return a > b*(1-1e-12) && a < b*(1+1e-12) }

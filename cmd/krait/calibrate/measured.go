package calibrate

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/krait-ml/krait/cmd/krait/bench"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/lowering"
)

// measured is what was found out so far.
type measured struct {
	floor bench.Floor
	ops   map[at]*sum
	gaps  []float64 // seconds between an event and the next one of a rank
	host  []float64 // seconds of a step beside its events
	// Collectives, by what they carry: seconds that a rank is in one, on average. That it
	// waits for others, whose kernels took longer this time, is part of that.
	travel map[carried][]float64
}

// at is where a rate was measured.
type at struct {
	op          string
	ranks, rows int
}

type sum struct{ flops, seconds float64 }

type carried struct {
	ranks int
	bytes int64
}

func newMeasured(f bench.Floor) *measured {
	return &measured{floor: f, ops: map[at]*sum{}, travel: map[carried][]float64{}}
}

// record adds up the events of a step.
func (s *session) record(step []exec.Event) {
	if len(step) == 0 {
		return
	}
	s.took = slices.MaxFunc(step, byEnd).End - slices.MinFunc(step, byStart).Start
	if !s.keep {
		return
	}
	ranks := len(s.works)
	inside := map[string]float64{} // seconds of all ranks in a collective
	for i := range step {
		e := &step[i]
		if i > 0 && step[i-1].Rank == e.Rank {
			s.gaps = append(s.gaps, e.Start-step[i-1].End)
		}
		if e.Kind == lowering.Collective {
			if inside[e.Name] += e.End - e.Start; e.Rank == ranks-1 {
				k := carried{ranks, e.Bytes}
				s.travel[k] = append(s.travel[k], inside[e.Name]/float64(ranks))
				delete(inside, e.Name)
			}
			continue
		}
		s.launch(e, ranks)
	}
}

// launch adds a kernel to what its operation has done.
func (s *session) launch(e *exec.Event, ranks int) {
	w, ok := s.works[e.Rank][e.Name]
	if !ok || w.FLOPs.Float(s.z) == 0 {
		return
	}
	k := kernel{at{w.Key, ranks, int(w.Rows.Float(s.z))}, e.Rank, e.Name}
	if s.kernels[k] == nil {
		s.kernels[k] = &runs{flops: w.FLOPs.Float(s.z) * w.Share}
	}
	s.kernels[k].seconds = append(s.kernels[k].seconds, e.End-e.Start)
}

// kernel is one of a model's step, which runs again and again.
type kernel struct {
	at
	rank int
	name string
}

type runs struct {
	flops   float64 // of one
	seconds []float64
}

// fold adds what kernels took, the median of each, to what their operations did.
func (s *session) fold() {
	for k, r := range s.kernels {
		x := s.ops[k.at]
		if x == nil {
			x = &sum{}
			s.ops[k.at] = x
		}
		x.flops += r.flops
		x.seconds += median(r.seconds)
	}
	clear(s.kernels)
}

func byEnd(a, b exec.Event) int   { return cmp.Compare(a.End, b.End) }
func byStart(a, b exec.Event) int { return cmp.Compare(a.Start, b.Start) }

// profile is all of it, for a machine with so much memory.
func (m *measured) profile(memory float64) *cost.Profile {
	source := fmt.Sprintf("krait calibrate, %s, %s, %d threads", time.Now().UTC().Format(time.DateOnly), m.floor.ISA, m.floor.Threads)
	is := func(v float64, what string) cost.Figure { return cost.Figure{Value: v, Source: source + ": " + what} }
	assumed := func(v float64, why string) cost.Figure { return cost.Figure{Value: v, Source: why, Assumed: true} }
	p := &cost.Profile{
		About:  fmt.Sprintf("this machine's CPU, %s, %d processors", runtime.GOARCH, runtime.NumCPU()),
		Shared: true,
		Memory: cost.Memory{
			Capacity: is(memory, "what the system says"), Reserve: assumed(0, "weights are in the page cache, and count"),
			Bandwidth: is(m.floor.Bytes, "a loop that reads"), Achieved: assumed(1, "the bandwidth is what is achieved"),
		},
		Compute: map[string]cost.Compute{"f32": {Peak: is(m.floor.FLOPs, "a loop that multiplies and adds in registers"), Achieved: is(m.reached(), "products of 512 rows, of the peak")}},
		Overhead: cost.Overhead{
			Launch: is(max(0, median(m.gaps)), "from a kernel's end to the next one's beginning, median"), GraphLaunch: is(max(0, median(m.gaps)), "as launch: there are no graphs"),
			Step: is(max(0, median(m.host)), "a step beside its kernels, median"),
		},
		Operations: map[string]cost.Measured{},
	}
	base, bandwidth := m.fit()
	p.Link = cost.Link{
		About: "memory that ranks share",
		Algorithms: []cost.Algorithm{{Name: "one_shot", Protocol: "shared", Base: is(base, "sums of few bytes, median"), Step: assumed(0, "all of the latency is in the base"),
			Bandwidth: is(bandwidth, "sums of most bytes, what a rank reads of the others")}},
	}
	for _, name := range []string{"ring", "tree", "two_shot"} {
		p.Link.Unavailable = append(p.Link.Unavailable, name+": ranks that share memory read each other's")
	}
	keys := slices.SortedFunc(maps.Keys(m.ops), func(a, b at) int { return cmp.Or(cmp.Compare(a.op, b.op), a.ranks-b.ranks, a.rows-b.rows) })
	for _, k := range keys {
		x := p.Operations[k.op]
		x.Source = source
		x.Points = append(x.Points, cost.Point{Ranks: k.ranks, Rows: k.rows, Rate: m.ops[k].flops / m.ops[k].seconds})
		p.Operations[k.op] = x
	}
	return p
}

// reached is what of the peak products of f32 weights do.
func (m *measured) reached() float64 {
	x := m.ops[at{"matmul/f32", 1, 512}]
	if x == nil {
		return 1
	}
	return min(1, x.flops/x.seconds/m.floor.FLOPs)
}

// fit is the latency of a collective and the bandwidth of those that carry most, by what
// a rank reads of the others. Without a collective they are free.
func (m *measured) fit() (base, bandwidth float64) {
	keys := slices.SortedFunc(maps.Keys(m.travel), func(a, b carried) int { return cmp.Compare(a.bytes, b.bytes) })
	if len(keys) == 0 {
		return 0, m.floor.Bytes
	}
	first, last := keys[0], keys[len(keys)-1]
	base = max(0, median(m.travel[first]))
	if more := median(m.travel[last]) - base; more > 0 {
		return base, float64(last.bytes) * float64(last.ranks-1) / more
	}
	return base, m.floor.Bytes
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)/2]
}

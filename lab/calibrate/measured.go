package calibrate

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/ordered"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lowering"
)

// samples collects the measurements.
type samples struct {
	roofline bench.Roofline
	runs     map[run][]sum
	gaps     []float64 // seconds between an event and the next one of a rank
	host     []float64 // seconds of a step outside its events
	// Collectives by ranks and payload: seconds from when the last rank arrived.
	travel map[payload][]float64
	waits  map[int][]wait // by ranks, one for each step
}

// wait is the seconds that ranks wait for the last one at a collective, and that they ran since the
// collective before: averages of a step.
type wait struct{ ran, waited float64 }

// at identifies a rate.
type at struct {
	op          string
	ranks, rows int
}

// run identifies a repeated measurement: an operation in a model's step of a batch.
type run struct {
	model int
	batch batch
	at
}

type batch struct{ sequences, tokens int }

// sum is the work and time of an operation in a step, on all ranks.
type sum struct{ flops, seconds float64 }

// payload identifies collectives.
type payload struct {
	ranks int
	bytes int64
}

func newSamples(f bench.Roofline) *samples {
	return &samples{roofline: f, runs: map[run][]sum{}, travel: map[payload][]float64{}, waits: map[int][]wait{}}
}

// record adds the events of a step.
func (s *session) record(step []exec.Event) {
	if len(step) == 0 {
		return
	}
	s.took = slices.MaxFunc(step, byEnd).End - slices.MinFunc(step, byStart).Start
	if !s.keep {
		return
	}
	once := map[at]*sum{}
	met := make([][]*exec.Event, len(s.works)) // by rank
	for i := range step {
		e := &step[i]
		if i > 0 && step[i-1].Rank == e.Rank {
			s.gaps = append(s.gaps, e.Start-step[i-1].End)
		}
		if e.Kind == lowering.Collective {
			met[e.Rank] = append(met[e.Rank], e)
			continue
		}
		s.launch(once, e)
	}
	for k, x := range once {
		r := run{s.number, s.batch, k}
		s.runs[r] = append(s.runs[r], *x)
	}
	if len(met) > 1 {
		s.collectives(met)
	}
}

// launch adds a kernel to the sums of its operation in this step.
func (s *session) launch(once map[at]*sum, e *exec.Event) {
	w, ok := s.works[e.Rank][e.Name]
	if !ok || w.FLOPs.Float(s.z) == 0 {
		return
	}
	k := at{w.Key, len(s.works), int(w.Rows.Float(s.z))}
	if once[k] == nil {
		once[k] = &sum{}
	}
	once[k].flops += w.FLOPs.Float(s.z) * w.Share
	once[k].seconds += e.End - e.Start
}

// collectives separates the wait for the last rank from the collective itself.
func (s *session) collectives(met [][]*exec.Event) {
	ranks := float64(len(met))
	var waited, inside float64
	for i := range met[0] {
		last, here := met[0][i].Start, 0.0
		for _, of := range met {
			last = max(last, of[i].Start)
			here += of[i].End - of[i].Start
		}
		after := 0.0
		for _, of := range met {
			after += of[i].End - last
		}
		k := payload{len(met), met[0][i].Bytes}
		s.travel[k] = append(s.travel[k], after/ranks)
		waited, inside = waited+(here-after)/ranks, inside+here/ranks
	}
	if n := float64(len(met[0])); n > 0 {
		s.waits[len(met)] = append(s.waits[len(met)], wait{(s.took - inside) / n, waited / n})
	}
}

// ops returns the work and usual time of each operation: its mean over the middle half of the steps
// of equal ones, by their times, so that the times of a step's operations add up to a usual step.
// Operations of the given model are measured in it alone.
func (m *samples) ops() map[at]sum {
	type step struct {
		model, ranks int
		batch
	}
	steps := map[step][]float64{} // seconds of each
	of := func(k run) step { return step{k.model, k.ranks, k.batch} }
	for k, list := range m.runs {
		seconds := steps[of(k)]
		if seconds == nil {
			seconds = make([]float64, len(list))
		}
		for i := range list {
			seconds[i] += list[i].seconds
		}
		steps[of(k)] = seconds
	}
	has := map[at]bool{} // of the given model
	for k := range m.runs {
		has[k.at] = has[k.at] || k.model == given
	}
	out := map[at]sum{}
	for k, list := range m.runs {
		if has[k.at] && k.model != given {
			continue
		}
		x, half := out[k.at], middleHalf(steps[of(k)])
		for _, i := range half {
			x.seconds += list[i].seconds / float64(len(half))
		}
		out[k.at] = sum{x.flops + list[0].flops, x.seconds}
	}
	return out
}

// middleHalf returns the indices of a list's middle half in order of value, at least one.
func middleHalf(list []float64) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(list[a], list[b]), a-b) })
	quarter := len(order) / 4
	return order[quarter : len(order)-quarter]
}

func byEnd(a, b exec.Event) int   { return cmp.Compare(a.End, b.End) }
func byStart(a, b exec.Event) int { return cmp.Compare(a.Start, b.Start) }

// profile returns the profile of a machine with that much memory.
func (m *samples) profile(memory float64) *cost.Profile {
	source := fmt.Sprintf("krait calibrate, %s, %s, %d threads", time.Now().UTC().Format(time.DateOnly), m.roofline.ISA, m.roofline.Threads)
	is := func(v float64, what string) cost.Figure { return cost.Figure{Value: v, Source: source + ": " + what} }
	assumed := func(v float64, why string) cost.Figure { return cost.Figure{Value: v, Source: why, Assumed: true} }
	ops := m.ops()
	p := &cost.Profile{
		About:  fmt.Sprintf("this machine's CPU, %s, %d processors", runtime.GOARCH, runtime.NumCPU()),
		Shared: true,
		Memory: cost.Memory{
			Capacity: is(memory, "what the system says"), Reserve: assumed(0, "weights are in the page cache, and count"),
			Bandwidth: is(m.roofline.Bytes, "a loop that reads"), Achieved: assumed(1, "the bandwidth is what is achieved"),
		},
		Compute: map[string]cost.Compute{"f32": {Peak: is(m.roofline.FLOPs, "a loop that multiplies and adds in registers"), Achieved: is(reached(ops, m.roofline.FLOPs), "products of 512 rows, of the peak")}},
		Overhead: cost.Overhead{
			Launch: is(max(0, usual(m.gaps)), "from a kernel's end to the next one's beginning, median"), GraphLaunch: is(max(0, usual(m.gaps)), "as launch: there are no graphs"),
			Step: is(max(0, usual(m.host)), "a step beside its kernels, median"),
		},
		Operations: map[string]cost.Measured{},
	}
	base, bandwidth := m.fit()
	always, straggle := m.waiting()
	p.Link = cost.Link{
		About:    "memory that ranks share",
		Straggle: is(straggle, "by how much longer ranks wait for each other in long steps than in short ones"),
		Algorithms: []cost.Algorithm{{Name: "one_shot", Protocol: "shared", Base: is(base+always, "sums of few bytes, and waiting for each other in short steps"), Step: assumed(0, "all of the latency is in the base"),
			Bandwidth: is(bandwidth, "sums of most bytes, what a rank reads of the others")}},
	}
	for _, name := range []string{"ring", "tree", "two_shot"} {
		p.Link.Unavailable = append(p.Link.Unavailable, name+": ranks that share memory read each other's")
	}
	keys := ordered.Keys(ops, func(a, b at) int { return cmp.Or(cmp.Compare(a.op, b.op), a.ranks-b.ranks, a.rows-b.rows) })
	for _, k := range keys {
		x := p.Operations[k.op]
		x.Source = source
		x.Points = append(x.Points, cost.Point{Ranks: k.ranks, Rows: k.rows, Rate: ops[k].flops / ops[k].seconds})
		p.Operations[k.op] = x
	}
	return p
}

// reached returns the share of the peak that products with f32 weights reach.
func reached(ops map[at]sum, peak float64) float64 {
	x, ok := ops[at{"matmul/f32", 1, 512}]
	if !ok {
		return 1
	}
	return min(1, x.flops/x.seconds/peak)
}

// fit returns the latency of a collective after all ranks arrived, and the bandwidth of the largest
// ones in bytes that a rank reads of the others. Without collectives they cost nothing.
func (m *samples) fit() (base, bandwidth float64) {
	keys := ordered.Keys(m.travel, func(a, b payload) int { return cmp.Compare(a.bytes, b.bytes) })
	if len(keys) == 0 {
		return 0, m.roofline.Bytes
	}
	first, last := keys[0], keys[len(keys)-1]
	base = max(0, usual(m.travel[first]))
	if more := usual(m.travel[last]) - base; more > 0 {
		return base, float64(last.bytes) * float64(last.ranks-1) / more
	}
	return base, m.roofline.Bytes
}

// waiting returns how long the largest number of ranks wait for each other: at each collective, and
// per second since the one before, by the shortest and the longest steps.
func (m *samples) waiting() (always, straggle float64) {
	if len(m.waits) == 0 {
		return 0, 0
	}
	list := slices.Clone(m.waits[slices.Max(slices.Collect(maps.Keys(m.waits)))])
	ordered.Sort(list, func(a, b wait) int { return cmp.Compare(a.ran, b.ran) })
	some := (len(list) + 9) / 10
	short, long := middle(list[:some]), middle(list[len(list)-some:])
	if more := long.ran - short.ran; more > 0 {
		straggle = min(1, max(0, long.waited-short.waited)/more)
	}
	return max(0, short.waited-straggle*short.ran), straggle
}

// middle returns the usual values of waits.
func middle(list []wait) wait {
	var ran, waited []float64
	for _, w := range list {
		ran, waited = append(ran, w.ran), append(waited, w.waited)
	}
	return wait{usual(ran), usual(waited)}
}

// usual returns the median, and 0 for an empty list.
func usual(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return quantile.Of(list, 0.5)
}

package calibrate

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
)

// Part is what the steps of one kind take of reading a prompt: seconds of a rank, on
// average over the ranks.
type Part struct {
	What      string  `json:"what"` // an operation, with the format of its weights
	Predicted float64 `json:"predicted_seconds"`
	Measured  float64 `json:"measured_seconds"`
}

// rest is the part that no event has: from one to the next.
const rest = "between"

// partsOf measures and predicts a prompt, part by part.
func partsOf(ctx context.Context, dir string, p *cost.Profile, ranks, prompt int, o *Options) ([]Part, error) {
	var steps [][]exec.Event
	keep := func(list *[][]exec.Event) exec.Recorder {
		return func(step []exec.Event) { *list = append(*list, slices.Clone(step)) }
	}
	m, err := krait.Open(dir, krait.Options{Slots: 1, Device: &cpu.Device{Workers: o.Workers}, Sharding: krait.Sharding{Ranks: ranks}, Record: keep(&steps)})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	const times = 5
	s := &session{measured: newMeasured(bench.Floor{}), engine: m.Engine()}
	if err := s.steps(ctx, 1, prompt, times); err != nil {
		return nil, err
	}
	var said [][]exec.Event
	v, err := simulate.New(m.Engine().Schedules(), &virtual.Device{Profile: p}, keep(&said))
	if err != nil {
		return nil, err
	}
	if _, err := v.Step(1, 0, prompt); err != nil {
		return nil, err
	}
	keys := partKeys(m.Engine().Schedules()[0])
	parts := map[string]*Part{}
	part := func(k string) *Part {
		if parts[k] == nil {
			parts[k] = &Part{What: k}
		}
		return parts[k]
	}
	took := map[string][]float64{}
	for _, step := range steps[1:] { // the first one finds memory that was never touched
		for k, x := range split(step, keys, ranks) {
			took[k] = append(took[k], x)
		}
	}
	for k, list := range took {
		part(k).Measured = usual(list)
	}
	for k, x := range split(said[0], keys, ranks) {
		part(k).Predicted = x
	}
	var out []Part
	for _, k := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, *parts[k])
	}
	slices.SortStableFunc(out, func(a, b Part) int {
		return cmp.Compare(b.Measured, a.Measured)
	})
	return out, nil
}

// partKeys are the parts that the names of a schedule's launches belong to.
func partKeys(s *lowering.Schedule) map[string]string {
	out := map[string]string{}
	for name, w := range worksOf(s) {
		out[name] = w.Key
	}
	return out
}

// split adds up the events of a step, by part, for a rank on average. What a stream
// waits for is another's.
func split(step []exec.Event, keys map[string]string, ranks int) map[string]float64 {
	out := map[string]float64{}
	for i := range step {
		e := &step[i]
		if e.Kind == lowering.Wait {
			continue
		}
		k, ok := keys[e.Name]
		if !ok {
			k = e.Op
		}
		out[k] += (e.End - e.Start) / float64(ranks)
		if i > 0 && step[i-1].Rank == e.Rank && step[i-1].Stream == e.Stream {
			out[rest] += (e.Start - step[i-1].End) / float64(ranks)
		}
	}
	return out
}

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
	"github.com/krait-ml/krait/internal/ordered"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
)

// Part is the time of one kind of step in prefill, in seconds, averaged over the ranks.
type Part struct {
	What      string  `json:"what"` // an operation, with the format of its weights
	Predicted float64 `json:"predicted_seconds"`
	Measured  float64 `json:"measured_seconds"`
}

// rest is the time between events.
const rest = "between"

// partsOf measures and predicts a prefill, part by part.
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
	s := &session{samples: newSamples(bench.Roofline{}), engine: m.Engine()}
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
	for _, step := range steps[1:] { // the first step touches memory for the first time
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
	ordered.Sort(out, func(a, b Part) int {
		return cmp.Compare(b.Measured, a.Measured)
	})
	return out, nil
}

// partKeys maps the names of a schedule's launches to their parts.
func partKeys(s *lowering.Schedule) map[string]string {
	out := map[string]string{}
	for name, w := range worksOf(s) {
		out[name] = w.Key
	}
	return out
}

// split sums the events of a step by part, averaged over the ranks. Waits do not count.
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

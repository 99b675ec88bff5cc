package simulate

import (
	"fmt"
	"math"
	"sort"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Need is the memory of a rank for a workload, by the plan of its schedule.
type Need struct {
	Weights     int64 `json:"weight_bytes"` // with constants computed from them
	State       int64 `json:"state_bytes"`
	Cache       int64 `json:"cache_bytes"` // in whole pages
	Activations int64 `json:"activation_bytes"`
	Sum         int64 `json:"bytes"`
}

// NoRoom is the error of a workload that does not fit into memory.
type NoRoom struct {
	Rank   int
	Needs  float64 // bytes
	Weighs int64   // of them, weights
	Has    int64
	On     string // the profile
}

func (e *NoRoom) Error() string {
	hint := "a smaller batch, shorter prompts, or more ranks need less of each"
	if e.Weighs > e.Has {
		hint = "its weights alone are too many; more ranks hold fewer each"
	}
	return fmt.Sprintf("it does not fit: rank %d needs %.0f bytes, %d of them for weights, and %s leaves it %d; %s", e.Rank, e.Needs, e.Weighs, e.On, e.Has, hint)
}

// Fits returns a [*NoRoom] if some rank has too little memory for a workload.
func (m *Model) Fits(w Workload) error {
	if m.device.Unlimited {
		return nil
	}
	has := m.device.Profile.Usable(len(m.schedules))
	for r := range m.Plan.Ranks {
		if n := m.need(w, r); n > float64(has) {
			return &NoRoom{r, n, m.weights(r), has, m.device.Profile.Name}
		}
	}
	return nil
}

// Beside returns the model with another one in the same engine, which decodes: what fits must fit
// with both.
func (m *Model) Beside(decode *Model) *Model {
	out := *m
	out.beside = decode
	return &out
}

// weights returns the bytes of a rank's weights. On CPUs a model beside reads from the file in
// place what it does not copy.
func (m *Model) weights(rank int) int64 {
	p := &m.Plan.Ranks[rank]
	n := p.Weights + p.Constants
	if m.beside != nil {
		if n += m.beside.weights(rank); m.device.Profile.Shared {
			n -= m.beside.schedules[rank].InPlace()
		}
	}
	return n
}

// tokens returns the tokens that a sequence processes: all but the last one.
func (w *Workload) tokens() int64 { return int64(w.Prompt) + int64(w.Output) - 1 }

// steps returns the steps with the largest activations: the last chunk of the prompts, and a decode
// step.
func (m *Model) steps(w Workload) [2]graph.Sizes {
	n := 1 + w.Drafts.Number
	return [2]graph.Sizes{m.sizes(w, 0, w.chunk(), 1), m.sizes(w, w.Prompt, n, n)}
}

// state returns the bytes of a sequence's states on a rank, with what drafts take.
func (w *Workload) state(p *lowering.RankPlan) int64 {
	if w.Drafts.Number > 0 {
		return p.State + p.Trial
	}
	return p.State
}

// cached returns the tokens of a sequence's KV cache, in whole pages as the engine allocates them.
func cached(w Workload) int64 {
	page := min(pageTokens, w.tokens())
	return (w.tokens() + page - 1) / page * page
}

// need returns the bytes that a rank needs, also beyond the range of int64.
func (m *Model) need(w Workload, rank int) float64 {
	if float64(w.Batch)*float64(w.chunk()) > 1<<52 {
		return math.Inf(1)
	}
	sum := float64(m.weights(rank))
	for _, of := range []*Model{m, m.beside} {
		if of == nil {
			continue
		}
		p, arena := &of.Plan.Ranks[rank], 0.0
		for _, z := range of.steps(w) {
			arena = max(arena, p.Arena.Float(z))
		}
		b := float64(w.Batch)
		sum += float64(w.state(p))*b + float64(p.Cache)*b*float64(cached(w)) + arena
	}
	if sum < 1<<52 { // exact
		n := m.needOf(w, rank)
		sum = float64(n.Sum)
	}
	return sum
}

// needs returns the memory of each rank for a workload that fits.
func (m *Model) needs(w Workload) []Need {
	out := make([]Need, len(m.Plan.Ranks))
	for r := range out {
		out[r] = m.needOf(w, r)
	}
	return out
}

// needOf returns the memory of a rank for a workload that fits.
func (m *Model) needOf(w Workload, rank int) Need {
	n := Need{Weights: m.weights(rank)}
	for _, of := range []*Model{m, m.beside} {
		if of == nil {
			continue
		}
		p, arena := &of.Plan.Ranks[rank], int64(0)
		for _, z := range of.steps(w) {
			arena = max(arena, p.Arena.At(z))
		}
		n.State += w.state(p) * int64(w.Batch)
		n.Cache += p.Cache * int64(w.Batch) * cached(w)
		n.Activations += arena
	}
	n.Sum = n.Weights + n.State + n.Cache + n.Activations
	return n
}

// with returns the memory of a rank that also runs a model with other activations and constants,
// and the same weights and states.
func (n Need) with(activations, constants int64) Need {
	n.Weights += constants
	n.Activations = max(n.Activations, activations)
	n.Sum = n.Weights + n.State + n.Cache + n.Activations
	return n
}

// AnyNumber is the result of a search without a bound.
const AnyNumber = math.MaxInt

// most is the bound of searches.
const most = 1 << 40

// MaxBatch returns the largest batch with which a workload fits; 0: not even one sequence fits.
func (m *Model) MaxBatch(w Workload) (int, error) {
	return m.largest(w, func(w *Workload, n int) { w.Batch = n })
}

// MaxPrompt returns the longest prompt with which a workload fits.
func (m *Model) MaxPrompt(w Workload) (int, error) {
	return m.largest(w, func(w *Workload, n int) { w.Prompt = n })
}

// largest finds the largest number with which a workload fits. Memory grows with it.
func (m *Model) largest(w Workload, set func(*Workload, int)) (int, error) {
	set(&w, 1)
	if err := w.check(); err != nil {
		return 0, err
	}
	fits := func(n int) bool {
		set(&w, n)
		return m.Fits(w) == nil
	}
	n := 1
	for ; fits(n); n *= 2 {
		if n == most {
			return AnyNumber, nil
		}
	}
	return sort.Search(n, func(i int) bool { return !fits(i + 1) }), nil
}

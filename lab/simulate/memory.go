package simulate

import (
	"fmt"
	"math"
	"sort"

	"github.com/krait-ml/krait/graph"
)

// Need is the bytes that a rank needs for a workload, by the plan of its schedule.
type Need struct {
	Weights     int64 `json:"weight_bytes"` // and what is computed of them once
	State       int64 `json:"state_bytes"`
	Cache       int64 `json:"cache_bytes"` // in whole pages
	Activations int64 `json:"activation_bytes"`
	Sum         int64 `json:"bytes"`
}

// NoRoom is the error of a workload that does not fit.
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

// Fits is an error where some rank has too little memory for a workload, a [*NoRoom].
func (m *Model) Fits(w Workload) error {
	if m.device.Unlimited {
		return nil
	}
	has := m.device.Profile.Usable(len(m.schedules))
	for r := range m.Plan.Ranks {
		if n := m.need(w, r); n > float64(has) {
			p := &m.Plan.Ranks[r]
			return &NoRoom{r, n, p.Weights + p.Constants, has, m.device.Profile.Name}
		}
	}
	return nil
}

// tokens is how many a sequence has at the end: the last one is not read again.
func (w *Workload) tokens() int64 { return int64(w.Prompt) + int64(w.Output) - 1 }

// steps are those that decide how much memory activations take: a chunk that ends the
// prompts, so that longer ones never take less, and a token of each.
func (m *Model) steps(w Workload) [2]graph.Sizes {
	return [2]graph.Sizes{m.sizes(w, 0, w.chunk(), true), m.sizes(w, w.Prompt, 1, true)}
}

// cached is for how many tokens of a sequence caches have room: as an engine has it that
// was told of as many, whose pages are no longer than that.
func cached(w Workload) int64 {
	page := min(pageTokens, w.tokens())
	return (w.tokens() + page - 1) / page * page
}

// need is what a rank needs, also where that is more than can be counted.
func (m *Model) need(w Workload, rank int) float64 {
	p, arena := &m.Plan.Ranks[rank], 0.0
	for _, z := range m.steps(w) {
		arena = max(arena, p.Arena.Float(z))
	}
	b := float64(w.Batch)
	if b*float64(w.chunk()) > 1<<52 {
		return math.Inf(1)
	}
	sum := float64(p.Weights+p.Constants) + float64(p.State)*b + float64(p.Cache)*b*float64(cached(w)) + arena
	if sum < 1<<52 { // so that no byte is lost
		n := m.needOf(w, rank)
		sum = float64(n.Sum)
	}
	return sum
}

// needs is what each rank needs for a workload that fits.
func (m *Model) needs(w Workload) []Need {
	out := make([]Need, len(m.Plan.Ranks))
	for r := range out {
		out[r] = m.needOf(w, r)
	}
	return out
}

// needOf is what a rank needs for a workload that fits.
func (m *Model) needOf(w Workload, rank int) Need {
	p := &m.Plan.Ranks[rank]
	n := Need{Weights: p.Weights + p.Constants, State: p.State * int64(w.Batch), Cache: p.Cache * int64(w.Batch) * cached(w)}
	for _, z := range m.steps(w) {
		n.Activations = max(n.Activations, p.Arena.At(z))
	}
	n.Sum = n.Weights + n.State + n.Cache + n.Activations
	return n
}

// with is what a rank needs that also runs a model with other activations, which shares
// weights and states but for what it computes of the weights once.
func (n Need) with(activations, constants int64) Need {
	n.Weights += constants
	n.Activations = max(n.Activations, activations)
	n.Sum = n.Weights + n.State + n.Cache + n.Activations
	return n
}

// AnyNumber is how many fit where no number is too large.
const AnyNumber = math.MaxInt

// most is where searches end.
const most = 1 << 40

// MaxBatch is the largest batch with which a workload fits, 0 where not even one
// sequence does.
func (m *Model) MaxBatch(w Workload) (int, error) {
	return m.largest(w, func(w *Workload, n int) { w.Batch = n })
}

// MaxPrompt is the longest prompt, likewise.
func (m *Model) MaxPrompt(w Workload) (int, error) {
	return m.largest(w, func(w *Workload, n int) { w.Prompt = n })
}

// largest finds the largest number with which a workload fits, since what it needs only
// grows with it.
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

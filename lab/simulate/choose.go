package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Candidate is a strategy and its result for a workload.
type Candidate struct {
	Strategy string
	Model    *Model
	Result   *Result
	Err      error // why there is no result: the strategy does not apply, or fit
}

// Best is the best strategy for a phase.
type Best struct {
	Strategy string  `json:"strategy"`
	Seconds  float64 `json:"seconds"`
	RunnerUp string  `json:"runner_up,omitempty"` // empty: there is no other
	Margin   float64 `json:"margin,omitempty"`    // how much slower that is, as a share of the best's time
}

// Choice is the best strategies for a workload.
type Choice struct {
	Candidates []Candidate `json:"-"`
	Prefill    Best        `json:"prefill"` // by the time to the first tokens
	Decode     Best        `json:"decode"`  // by the time per token
	// Plan is the strategies to run for prefill and decode, and the seconds of both. They differ
	// only if they can share weights and states.
	Plan Pair `json:"plan"`
	// Refused is why the plan does not combine the best of each phase; empty: it does.
	Refused string `json:"refused,omitempty"`
}

// Pair is a strategy for each phase.
type Pair struct {
	Prefill string  `json:"prefill"`
	Decode  string  `json:"decode"`
	Seconds float64 `json:"seconds"`
}

// Choose simulates a workload with each of [passes.Strategies], and returns the best; of equals,
// the first.
func Choose(g *graph.Graph, o passes.Options, d *virtual.Device, w Workload) (*Choice, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	c := &Choice{}
	for i, s := range passes.Strategies {
		if i > 0 && max(o.Ranks, g.Ranks) <= 1 {
			break // strategies do not differ on one rank
		}
		o.Strategy = s
		x := Candidate{Strategy: s.Name}
		if x.Model, x.Err = Compile(g, o, d); x.Err == nil {
			x.Result, x.Err = x.Model.Run(w)
		}
		c.Candidates = append(c.Candidates, x)
	}
	return c, c.choose(w)
}

// Compile compiles a graph for simulation.
func Compile(g *graph.Graph, o passes.Options, d *virtual.Device) (*Model, error) {
	h, err := passes.Compile(g, o)
	if err != nil {
		return nil, err
	}
	list, err := lowering.Lower(h)
	if err != nil {
		return nil, err
	}
	return New(list, d, nil)
}

func (c *Choice) choose(w Workload) error {
	var able []*Candidate
	var errs []error
	for i := range c.Candidates {
		if x := &c.Candidates[i]; x.Err == nil {
			able = append(able, x)
		} else {
			errs = append(errs, fmt.Errorf("%s: %w", x.Strategy, x.Err))
		}
	}
	if len(able) == 0 {
		return fmt.Errorf("no strategy runs this: %w", errors.Join(errs...))
	}
	c.Prefill = best(able, func(r *Result) float64 { return r.TTFT })
	c.Decode = best(able, func(r *Result) float64 { return r.TPOT })
	c.Plan = Pair{}
	for _, a := range able {
		for _, b := range able {
			seconds := a.Result.Prefill.Seconds + b.Result.Decode.Seconds
			if c.Plan.Prefill != "" && seconds >= c.Plan.Seconds {
				continue
			}
			if a == b || Shared(a.Model, b.Model) == nil && pairFits(a.Model, b.Model, w) {
				c.Plan = Pair{a.Strategy, b.Strategy, seconds}
			}
		}
	}
	c.refuse(w)
	return nil
}

// One returns the best single strategy for both phases.
func (c *Choice) One() Pair {
	var out Pair
	for i := range c.Candidates {
		if x := &c.Candidates[i]; x.Err == nil && (out.Prefill == "" || x.Result.Seconds() < out.Seconds) {
			out = Pair{x.Strategy, x.Strategy, x.Result.Seconds()}
		}
	}
	return out
}

// Candidate returns the candidate of a strategy.
func (c *Choice) Candidate(name string) *Candidate {
	return &c.Candidates[slices.IndexFunc(c.Candidates, func(x Candidate) bool { return x.Strategy == name })]
}

// Result returns the result of the plan.
func (c *Choice) Result() *Result {
	a, b := c.Candidate(c.Plan.Prefill), c.Candidate(c.Plan.Decode)
	if a == b {
		return a.Result
	}
	return together(a.Result, b.Result, b.Model)
}

// together returns the result of prefill by one and decode by another.
func together(a, b *Result, other *Model) *Result {
	r := *a
	r.Decode, r.TPOT = b.Decode, b.TPOT
	r.Throughput = a.Throughput * a.Seconds() / r.Seconds()
	r.Memory = slices.Clone(r.Memory)
	for i := range r.Memory {
		r.Memory[i] = r.Memory[i].with(b.Memory[i].Activations, other.Plan.Ranks[i].Constants)
	}
	return &r
}

// RunBoth simulates a workload with prefill by one model and decode by another, which share weights
// and states.
func RunBoth(prompts, tokens *Model, w Workload) (*Result, error) {
	if err := Shared(prompts, tokens); err != nil {
		return nil, err
	}
	a, err := prompts.Run(w)
	if err != nil {
		return nil, err
	}
	b, err := tokens.Run(w)
	if err != nil {
		return nil, err
	}
	return together(a, b, tokens), nil
}

// refuse sets why the best of each phase cannot be combined.
func (c *Choice) refuse(w Workload) {
	if c.Plan.Prefill == c.Prefill.Strategy && c.Plan.Decode == c.Decode.Strategy {
		return
	}
	a, b := c.Candidate(c.Prefill.Strategy).Model, c.Candidate(c.Decode.Strategy).Model
	if err := Shared(a, b); err != nil {
		c.Refused = fmt.Sprintf("%s for prefill and %s for decode: %v", c.Prefill.Strategy, c.Decode.Strategy, err)
	} else if !pairFits(a, b, w) {
		c.Refused = fmt.Sprintf("%s for prefill and %s for decode do not fit together", c.Prefill.Strategy, c.Decode.Strategy)
	}
}

// best returns the candidate with the least time, and the runner-up.
func best(able []*Candidate, of func(*Result) float64) Best {
	order := slices.Clone(able)
	slices.SortStableFunc(order, func(a, b *Candidate) int { return cmp.Compare(of(a.Result), of(b.Result)) })
	first := of(order[0].Result)
	out := Best{Strategy: order[0].Strategy, Seconds: first}
	if len(order) > 1 {
		out.RunnerUp = order[1].Strategy
		if first > 0 {
			out.Margin = of(order[1].Result)/first - 1
		}
	}
	return out
}

// pairFits reports whether the activations of either and the constants of both fit into memory.
func pairFits(a, b *Model, w Workload) bool {
	if a.device.Unlimited {
		return true
	}
	has := a.device.Profile.Usable(len(a.schedules))
	others := b.needs(w)
	for r, n := range a.needs(w) {
		if n.with(others[r].Activations, b.Plan.Ranks[r].Constants).Sum > has {
			return false
		}
	}
	return true
}

// Shared returns an error if two models cannot share weights and states, since ranks hold different
// parts or formats of them.
func Shared(a, b *Model) error {
	for r, s := range a.schedules {
		names, have := holdings(s)
		others, has := holdings(b.schedules[r])
		for _, name := range append(names, others...) {
			x, y := have[name], has[name]
			if x == y {
				continue
			}
			if x.kind == y.kind {
				return fmt.Errorf("rank %d would load different parts of %s for prefill and decode", r, name)
			}
			return fmt.Errorf("rank %d would hold %s as %s for prefill and as %s for decode", r, name, cmp.Or(x.kind, "nothing"), cmp.Or(y.kind, "nothing"))
		}
	}
	return nil
}

// holding is a rank's part of a weight or state.
type holding struct{ kind, from string }

// holdings returns a schedule's weights and states, in order and by name.
func holdings(s *lowering.Schedule) (names []string, of map[string]holding) {
	of = map[string]holding{}
	for i := range s.Buffers {
		b := &s.Buffers[i]
		if b.Space != lowering.Param && b.Space != lowering.State && b.Space != lowering.Cache {
			continue
		}
		h := holding{kind: b.Type.String()}
		if b.Storage != nil {
			h.from = b.Storage.String()
		}
		if b.Part != nil {
			h.from += b.Part.String()
		}
		names, of[b.Name] = append(names, b.Name), h
	}
	return names, of
}

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
	// only if both fit: each has weights, states and caches of its own.
	Plan Pair `json:"plan"`
	// Refused is why the plan does not combine the best of each phase; empty: it does.
	Refused string `json:"refused,omitempty"`

	work Workload
}

// Pair is a strategy for each phase.
type Pair struct {
	Prefill string  `json:"prefill"`
	Decode  string  `json:"decode"`
	Seconds float64 `json:"seconds"`
}

// Choose simulates a workload with each of [passes.Strategies], and returns the best; of equals,
// the first. Progress gets the number of strategies simulated; it may be nil.
func Choose(g *graph.Graph, o passes.Options, d *virtual.Device, w Workload, progress func(done, all int)) (*Choice, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	c := &Choice{work: w}
	list := passes.Strategies
	if max(o.Ranks, g.Ranks) <= 1 {
		list = list[:1] // strategies do not differ on one rank
	}
	for i, s := range list {
		if progress != nil {
			progress(i, len(list))
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
	first, err := o.Pipeline.Cut(h)
	if err != nil {
		return nil, err
	}
	list, err := lowering.LowerStages(h, lowering.PieceTokens, lowering.Stages{First: first, Replicas: o.Pipeline.Replicas})
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
			if a == b || a.Model.Beside(b.Model).Fits(w) == nil {
				c.Plan = Pair{a.Strategy, b.Strategy, seconds}
			}
		}
	}
	c.refuse()
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

// Of is the best strategy of a phase, or (phase empty) of both together.
func (c *Choice) Of(phase string) string {
	switch phase {
	case passes.Phases[0]:
		return c.Prefill.Strategy
	case passes.Phases[1]:
		return c.Decode.Strategy
	}
	return c.One().Prefill
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
	return together(a.Result, b.Result, a.Model.Beside(b.Model).needs(c.work))
}

// together returns the result of prefill by one and decode by another.
func together(a, b *Result, memory []Need) *Result {
	r := *a
	r.Decode, r.TPOT, r.Memory, r.Links = b.Decode, b.TPOT, memory, linksOf(a, b)
	r.Throughput = a.Throughput * a.Seconds() / r.Seconds()
	return &r
}

// RunBoth simulates a workload with prefill by one model and decode by another, in one engine: see
// krait.Sharding.Prefill.
func RunBoth(prompts, tokens *Model, w Workload) (*Result, error) {
	a, err := prompts.Beside(tokens).Run(w)
	if err != nil {
		return nil, err
	}
	decode := *tokens
	decode.inSteps = true
	b, err := decode.Run(w)
	if err != nil {
		return nil, err
	}
	return together(a, b, a.Memory), nil
}

// RunApart is RunBoth in two processes, which hold the same weights and states: prefill and decode
// servers whose payloads differ.
func RunApart(prompts, tokens *Model, w Workload) (*Result, error) {
	a, err := prompts.Run(w)
	if err != nil {
		return nil, err
	}
	b, err := tokens.Run(w)
	if err != nil {
		return nil, err
	}
	memory := slices.Clone(a.Memory)
	for i := range memory {
		memory[i] = memory[i].with(b.Memory[i].Activations, tokens.Plan.Ranks[i].Constants)
	}
	return together(a, b, memory), nil
}

// refuse sets why the best of each phase are not combined.
func (c *Choice) refuse() {
	if c.Plan.Prefill != c.Prefill.Strategy || c.Plan.Decode != c.Decode.Strategy {
		c.Refused = fmt.Sprintf("%s for prefill and %s for decode do not fit together: each has weights, states and caches of its own", c.Prefill.Strategy, c.Decode.Strategy)
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

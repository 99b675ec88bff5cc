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

// Candidate is a strategy and what a workload takes by it.
type Candidate struct {
	Strategy string
	Model    *Model
	Result   *Result
	Err      error // why there is no result: it does not apply, or does not fit
}

// Best is the cheapest of some.
type Best struct {
	Strategy string  `json:"strategy"`
	Seconds  float64 `json:"seconds"`
	RunnerUp string  `json:"runner_up,omitempty"` // empty: there is no other
	Margin   float64 `json:"margin,omitempty"`    // by how much of the best's time that is slower
}

// Choice is which strategies are best for a workload.
type Choice struct {
	Candidates []Candidate `json:"-"`
	Prefill    Best        `json:"prefill"` // by the time to the first tokens
	Decode     Best        `json:"decode"`  // by the time per token
	// Plan is what to run: for prompts and for what follows, and the seconds of both. They
	// differ only where they share weights and states.
	Plan Pair `json:"plan"`
	// Refused says why the best of each phase are not run together; empty: they are.
	Refused string `json:"refused,omitempty"`
}

// Pair is a strategy for each phase.
type Pair struct {
	Prefill string  `json:"prefill"`
	Decode  string  `json:"decode"`
	Seconds float64 `json:"seconds"`
}

// Choose simulates a workload by every strategy that comes with Krait, and finds the best.
// Of equal ones it is the first in the order of [passes.Strategies].
func Choose(g *graph.Graph, o passes.Options, d *virtual.Device, w Workload) (*Choice, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	c := &Choice{}
	for i, s := range passes.Strategies {
		if i > 0 && max(o.Ranks, g.Ranks) <= 1 {
			break // on one rank all are the same
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

// Compile makes what is simulated of a graph.
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

// One is the cheapest strategy for both phases.
func (c *Choice) One() Pair {
	var out Pair
	for i := range c.Candidates {
		if x := &c.Candidates[i]; x.Err == nil && (out.Prefill == "" || x.Result.Seconds() < out.Seconds) {
			out = Pair{x.Strategy, x.Strategy, x.Result.Seconds()}
		}
	}
	return out
}

// Candidate finds a strategy that was tried.
func (c *Choice) Candidate(name string) *Candidate {
	return &c.Candidates[slices.IndexFunc(c.Candidates, func(x Candidate) bool { return x.Strategy == name })]
}

// Result is that of the plan.
func (c *Choice) Result() *Result {
	a, b := c.Candidate(c.Plan.Prefill), c.Candidate(c.Plan.Decode)
	if a == b {
		return a.Result
	}
	return together(a.Result, b.Result, b.Model)
}

// together is what takes the prompts of one and the tokens of another.
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

// RunBoth simulates a workload whose prompts one model reads, and whose tokens another goes
// on to, with the same weights and states.
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

// refuse says why the best of each phase are not run together.
func (c *Choice) refuse(w Workload) {
	if c.Plan.Prefill == c.Prefill.Strategy && c.Plan.Decode == c.Decode.Strategy {
		return
	}
	a, b := c.Candidate(c.Prefill.Strategy).Model, c.Candidate(c.Decode.Strategy).Model
	if err := Shared(a, b); err != nil {
		c.Refused = fmt.Sprintf("%s for prompts and %s for tokens: %v", c.Prefill.Strategy, c.Decode.Strategy, err)
	} else if !pairFits(a, b, w) {
		c.Refused = fmt.Sprintf("%s for prompts and %s for tokens do not fit together", c.Prefill.Strategy, c.Decode.Strategy)
	}
}

// best finds the least of what is asked, and who comes after it.
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

// pairFits reports whether there is room for the activations of either, and for what each
// computes of the weights once.
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

// Shared is an error where two ways to run a model cannot share weights and states: where
// ranks hold other parts of them, or in other formats.
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
				return fmt.Errorf("rank %d would read %s in another way for the one than for the other", r, name)
			}
			return fmt.Errorf("rank %d would hold %s as %s for the one and as %s for the other", r, name, cmp.Or(x.kind, "nothing"), cmp.Or(y.kind, "nothing"))
		}
	}
	return nil
}

// holding is a weight or a state as a rank has it.
type holding struct{ kind, from string }

// holdings are weights and states, in their order and by name.
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

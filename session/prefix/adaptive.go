package prefix

import (
	"fmt"
	"math"
)

// Alphas are the candidates of α.
var Alphas = []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// Adaptive is a [Tree] that changes its rule of eviction by what it would have hit. Trees of tokens
// without data serve the same requests beside it, each by a rule on trial. The first has lru, and
// bounds what the cache may hit less ([stake]). [Adaptive.Serve] serves a request at once.
// Otherwise the caller looks it up when it begins, and admits it when it ends.
type Adaptive struct {
	*Tree
	trials []*trial // the first with lru; none: the rule is fixed
	used   int      // of trials, whose rule the tree has; reuse has none of them
}

// trial is a rule, on a tree beside the cache.
type trial struct {
	tree  Policy
	rule  rule
	last  int // tokens that the last request hit
	hits  fading
	apart []fading // by trial, the squares of the differences between the hits of requests
}

// fading is a sum of which half fades in 1,400 requests.
type fading float64

func (f *fading) add(x float64) { *f = fading(float64(*f)*0.9995) + fading(x) }

// lead returns the tokens that a trial has hit more than another, less a number of standard
// deviations of that difference, as it would be by chance.
func (a *Adaptive) lead(of, over int, deviations float64) float64 {
	x, y := a.trials[of], a.trials[over]
	return float64(x.hits-y.hits) - deviations*math.Sqrt(float64(x.apart[over]))
}

// newGuarded returns an empty tree with rules on trial, the first of which is lru.
func newGuarded(m Model, capacity int64, alphas ...float64) *Adaptive {
	a := &Adaptive{Tree: NewTree(m, capacity, 0)}
	for _, alpha := range alphas {
		t := NewTree(m, capacity, alpha)
		a.try(t, t.rule)
	}
	a.guard(a.trials[0].tree.(*Tree))
	return a
}

// try puts a rule on trial.
func (a *Adaptive) try(tree Policy, r rule) {
	a.trials = append(a.trials, &trial{tree: tree, rule: r})
	for _, b := range a.trials {
		b.apart = make([]fading, len(a.trials))
	}
}

// predict makes an empty tree evict the prefix with the least expected hits per byte, as a history
// predicts, and returns it.
func (a *Adaptive) predict() *Adaptive {
	a.rule.demand = true
	a.remember()
	return a
}

// NewReuse returns an empty tree that evicts the prefix with the least expected hits per byte.
func NewReuse(m Model, capacity int64) *Adaptive { return newGuarded(m, capacity, 0).predict() }

// NewTuned returns an empty tree that begins as [NewReuse], and follows the rule that hits most:
// that one or an α.
func NewTuned(m Model, capacity int64) *Adaptive {
	a := newGuarded(m, capacity, Alphas...).predict()
	alone := (&Adaptive{Tree: NewTree(m, capacity, 0)}).predict()
	a.try(alone, alone.rule)
	a.used = len(a.trials) - 1
	return a
}

// NewAdaptive returns an empty tree with a store, by the name of its policy, which must have a
// tree. The store may be nil.
func NewAdaptive(policy string, m Model, capacity int64, s Store) (*Adaptive, error) {
	p, err := NewPolicy(policy, m, capacity)
	if err != nil {
		return nil, err
	}
	switch t := p.(type) {
	case *Adaptive:
		t.store = s
		return t, nil
	case *Tree:
		t.store = s
		return &Adaptive{Tree: t}, nil
	}
	return nil, fmt.Errorf("policy %q has no tree; use %s", policy, treePolicies)
}

// Alpha returns the α of eviction; ok is false if the policy does not choose one, or has evicted
// nothing yet.
func (a *Adaptive) Alpha() (alpha float64, ok bool) {
	return a.rule.alpha, !a.rule.demand && a.trials != nil && a.evictions > 0
}

// Lookup is [Tree.Lookup]. With a history the branch is where the prompt parts from all that was
// seen, cached or not, and beside lru where it parts from what that has.
func (a *Adaptive) Lookup(input Tokens, now float64) (hit int, marks Marks) {
	hit, marks = a.Tree.Lookup(input, now)
	return hit, a.recall(input, hit, marks)
}

// Find is [Adaptive.Lookup] without a touch.
func (a *Adaptive) Find(input Tokens) (hit int, marks Marks) {
	hit, marks = a.Tree.Find(input)
	return hit, a.recall(input, hit, marks)
}

func (a *Adaptive) recall(input Tokens, hit int, marks Marks) Marks {
	other := a.Tree
	switch {
	case a.history != nil:
		other = a.history.tree
	case a.stake != nil:
		other = a.stake.lru
	}
	marks.Branch = max(marks.Branch, other.branch(input))
	return marks.Beyond(hit)
}

// Admit admits a request that was looked up, at its time: see [Tree.Admit].
func (a *Adaptive) Admit(r Request, marks Marks) {
	if len(a.trials) > 0 {
		a.compare(r)
	}
	if a.history != nil {
		a.history.serve(r, marks)
	}
	a.Tree.Admit(r.Tokens, marks, r.At)
}

// Serve looks a request up and admits it at its time. It returns the hit.
func (a *Adaptive) Serve(r Request) int {
	hit, marks := a.Lookup(r.Input(), r.At)
	a.Admit(r, marks)
	return hit
}

// Another rule is used once it leads by this many standard deviations: few, as a wrong choice among
// rules that hit alike costs little.
const leading = 1

// compare serves a request in the trials, while the tree is about to admit it, and chooses its
// rule.
func (a *Adaptive) compare(r Request) {
	hit, _ := a.Tree.Find(r.Input())
	for _, b := range a.trials {
		b.last = b.tree.Serve(r)
		b.hits.add(float64(b.last))
	}
	a.stake.count(hit, a.trials[0].last)
	best, most := a.used, 0.0
	for i, b := range a.trials {
		for j, other := range a.trials {
			d := float64(b.last - other.last)
			b.apart[j].add(d * d)
		}
		if lead := a.lead(i, a.used, 0); lead > most && a.lead(i, a.used, leading) > 0 {
			best, most = i, lead
		}
	}
	if best != a.used {
		a.used = best
		a.follow(a.trials[best].rule)
	}
	a.stake.trust = risked * max(0, a.lead(a.used, 0, certain)-float64(a.trials[0].hits)/2)
}

package prefix

import "fmt"

// Alphas are the candidates of α.
var Alphas = []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// Adaptive is a [Tree] that changes its rule of eviction by what it would have hit. Trees of tokens
// without data serve the same requests beside it; the first has lru, and bounds what the cache may
// hit less ([stake]). [Adaptive.Serve] serves a request at once. Otherwise the caller looks it up
// when it begins, and admits it when it ends.
type Adaptive struct {
	*Tree
	trials []*trial // the first with lru; none: the rule is fixed
	used   int      // of trials, whose rule the tree has; with a history it has none of them

	largest int // hit of a request in trials, in tokens
}

// trial is a rule, on a tree beside the cache.
type trial struct {
	tree  *Tree
	hits  faded64
	total int64 // tokens hit
}

// faded64 is a sum of which half fades in 350 requests.
type faded64 float64

func (f *faded64) add(x int) { *f = faded64(float64(*f)*0.998) + faded64(x) }

// newGuarded returns an empty tree with rules on trial, the first of which is lru.
func newGuarded(m Model, capacity int64, alphas ...float64) *Adaptive {
	a := &Adaptive{Tree: NewTree(m, capacity, 0)}
	for _, alpha := range alphas {
		a.trials = append(a.trials, &trial{tree: NewTree(m, capacity, alpha)})
	}
	a.guard(a.trials[0].tree)
	return a
}

// NewReuse returns an empty tree that evicts the prefix with the least expected hits per byte, as
// its history predicts.
func NewReuse(m Model, capacity int64) *Adaptive {
	a := newGuarded(m, capacity, 0)
	a.rule.demand = true
	a.remember()
	return a
}

// NewTuned returns an empty tree that follows the α with the most hits of late. α is 0 at first.
func NewTuned(m Model, capacity int64) *Adaptive { return newGuarded(m, capacity, Alphas...) }

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
	return a.rule.alpha, a.history == nil && a.trials != nil && a.evictions > 0
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

// Another α must lead by this share of the hits and by the largest hit, so that α does not follow
// chance.
const leadShare = 0.01

// compare serves a request in the trials, while the tree is about to admit it, and chooses its
// rule.
func (a *Adaptive) compare(r Request) {
	hit, _ := a.Tree.Find(r.Input())
	for i, b := range a.trials {
		hits := b.tree.Serve(r)
		b.hits.add(hits)
		b.total += int64(hits)
		a.largest = max(a.largest, hits)
		if i == 0 {
			a.stake.count(hit, hits)
		}
	}
	best := a.used
	for i, b := range a.trials {
		if b.hits > a.trials[best].hits {
			best = i
		}
	}
	a.stake.trust = risked * float64(max(0, a.trials[a.used].total-2*a.trials[0].total))
	used := a.trials[a.used].hits
	if a.trials[best].hits-used > max(leadShare*used, faded64(a.largest)) {
		a.used, a.rule = best, a.trials[best].tree.rule
	}
}

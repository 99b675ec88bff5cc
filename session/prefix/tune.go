package prefix

import (
	"fmt"
	"slices"
)

// Alphas are the candidates of α.
var Alphas = []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// Adaptive is a [Tree] that can choose its α by replaying requests. [Adaptive.Serve] serves a
// request at once. Otherwise the caller looks it up when it begins, admits it when it ends, and
// runs the trial that Admit may return.
type Adaptive struct {
	*Tree
	tuner  tuner // nil: α is fixed
	chosen bool
}

// tuner decides when α is chosen, and by which requests.
type tuner interface {
	// before is called before the tree admits a request, which was looked up. Its replay repeats
	// the lookup, which touches nodes at the same time as before.
	before(t *Tree, r Request, marks Marks)
	// after is called after that, and returns a trial to run, or nil.
	after(t *Tree, r Request) *Trial
	// changed is called when the tree has a new α.
	changed(t *Tree)
}

// NewAdaptive returns an empty tree with a store, by the name of its policy: lru, flop:α, tuned or
// retuned. The store may be nil.
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
	return nil, fmt.Errorf("policy %q has no tree; lru, flop:α, tuned and retuned have one", policy)
}

// Alpha returns α; ok is false if it was not chosen yet, or is fixed.
func (a *Adaptive) Alpha() (alpha float64, ok bool) { return a.alpha, a.chosen }

// Admit admits a request that was looked up, at its time: see [Tree.Admit]. It returns a trial to
// run, or nil.
func (a *Adaptive) Admit(r Request, marks Marks) *Trial {
	if a.tuner == nil {
		a.Tree.Admit(r.Tokens, marks, r.At)
		return nil
	}
	a.tuner.before(a.Tree, r, marks)
	a.Tree.Admit(r.Tokens, marks, r.At)
	return a.tuner.after(a.Tree, r)
}

// Take sets α, from the next request on.
func (a *Adaptive) Take(alpha float64) {
	a.alpha, a.chosen = alpha, true
	a.tuner.changed(a.Tree)
}

// Serve looks a request up and admits it at its time, and runs a trial at once. It returns the hit.
func (a *Adaptive) Serve(r Request) int {
	hit, marks := a.Lookup(r.Input(), r.At)
	if trial := a.Admit(r, marks); trial != nil {
		alpha, _ := trial.Run(nil)
		a.Take(alpha)
	}
	return hit
}

// Trial chooses α: it has requests, and a private copy of the tree before them, so that it can run
// in the background.
type Trial struct {
	from     *Tree
	requests []Request
	better   int // percent by which another α must hit more than the current one
}

// Run replays the requests with each of [Alphas], and returns the one with the most hit tokens, the
// first of equals, if it hits enough more than the current one, which it returns otherwise. It
// calls stop, if that is not nil, before each request; ok is false if it returned true.
func (t *Trial) Run(stop func() bool) (alpha float64, ok bool) {
	hits := make([]int, len(Alphas))
	for i, a := range Alphas {
		from := t.from.Clone()
		from.alpha = a
		for _, r := range t.requests {
			if stop != nil && stop() {
				return 0, false
			}
			hits[i] += from.Serve(r)
		}
	}
	most, used := slices.Max(hits), hits[slices.Index(Alphas, t.from.alpha)]
	if most > used && 100*most >= (100+t.better)*used {
		return Alphas[slices.Index(hits, most)], true
	}
	return t.from.alpha, true
}

// recordFactor is the number of recorded requests per request before the first eviction.
const recordFactor = 5

// tunedOnce chooses α once; until then it is 0. It copies the tree before the first request that
// evicts, records that request and later ones, 5 times as many as came before, at least one, and
// tries them.
type tunedOnce struct {
	seen    int       // requests before the first that evicts
	start   *Tree     // the tree before it; nil before that, and after the choice
	record  []Request // since start
	least   int       // length of the complete record
	done    bool
	guarded bool   // otherwise α stays, as published
	guard   *guard // of a chosen α above 0; nil: none
}

// NewTuned returns an empty tree that chooses its α once. From then on it also counts the tokens
// that α = 0 would have hit, and returns to 0 once these are more.
func NewTuned(m Model, capacity int64) *Adaptive {
	a := newTunedOnce(m, capacity)
	a.tuner.(*tunedOnce).guarded = true
	return a
}

// newTunedOnce returns an empty tree whose α stays once chosen, as published.
func newTunedOnce(m Model, capacity int64) *Adaptive {
	return &Adaptive{Tree: NewTree(m, capacity, 0), tuner: &tunedOnce{}}
}

func (t *tunedOnce) before(tree *Tree, r Request, marks Marks) {
	switch {
	case t.guard != nil:
		t.guard.serve(tree, r)
	case !t.done && t.start == nil && tree.bytes+tree.growth(r.Tokens, marks) > tree.capacity:
		t.start = tree.Clone()
	}
}

func (t *tunedOnce) after(tree *Tree, r Request) *Trial {
	switch {
	case t.guard != nil && t.guard.lost():
		tree.alpha, t.guard = 0, nil
		return nil
	case t.done:
		return nil
	case t.start == nil:
		t.seen++
		return nil
	}
	if t.record = append(t.record, r); len(t.record) < recordFactor*t.seen {
		return nil
	}
	trial := &Trial{from: t.start, requests: t.record}
	t.least = len(t.record)
	t.start, t.record, t.done = nil, nil, true
	return trial
}

func (t *tunedOnce) changed(tree *Tree) {
	if t.guarded && tree.alpha > 0 {
		t.guard = &guard{plain: tree.Clone(), least: t.least}
		t.guard.plain.alpha = 0
	}
}

// guard compares α with 0 on the requests since it was chosen.
type guard struct {
	plain           *Tree // with α = 0
	hits, plainHits int   // tokens
	seen, least     int   // requests: so far, and before the first comparison
}

// serve replays with α = 0 a request that a tree is about to admit.
func (g *guard) serve(tree *Tree, r Request) {
	hit, _ := tree.Find(r.Input())
	g.hits += hit
	g.plainHits += g.plain.Serve(r)
	g.seen++
}

// lost reports whether α = 0 would have hit more.
func (g *guard) lost() bool { return g.seen >= g.least && g.plainHits > g.hits }

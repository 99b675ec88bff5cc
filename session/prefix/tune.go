package prefix

import (
	"fmt"
	"slices"
)

// Alphas are what α is chosen among.
var Alphas = []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// Adaptive is a [Tree] that may choose its α, by replaying requests. Where a request takes
// no time, [Adaptive.Serve] does all. Else it is looked up when it begins and admitted
// when it ends, and who uses the tree runs the trial that this may ask for.
type Adaptive struct {
	*Tree
	tuner  tuner // nil: α is fixed
	chosen bool
}

// tuner says when α is to be chosen, and by what.
type tuner interface {
	// admits is told of a request before the tree admits it. It was looked up, which its
	// replay does again: what a look-up touches is then at the same time as before.
	admits(t *Tree, r Request, marks Marks)
	// admitted is told that the tree has. What it returns is to be tried; nil: nothing.
	admitted(t *Tree, r Request) *Trial
	// taken is told that the tree uses another α from now on.
	taken(t *Tree)
}

// NewAdaptive is an empty tree that tells a store, by a policy's name: lru, flop:α, tuned
// or retuned. The store may be nil.
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
	return nil, fmt.Errorf("policy %q keeps no tree; lru, flop:α, tuned and retuned do", policy)
}

// Alpha is the α in use; where ok is false it was not chosen, or not yet.
func (a *Adaptive) Alpha() (alpha float64, ok bool) { return a.alpha, a.chosen }

// Admit admits a request that was looked up, at its time: see [Tree.Admit]. What it
// returns is to be tried, if it is not nil.
func (a *Adaptive) Admit(r Request, marks Marks) *Trial {
	if a.tuner == nil {
		a.Tree.Admit(r.Tokens, marks, r.At)
		return nil
	}
	a.tuner.admits(a.Tree, r, marks)
	a.Tree.Admit(r.Tokens, marks, r.At)
	return a.tuner.admitted(a.Tree, r)
}

// Take uses the α of a trial from the next request on.
func (a *Adaptive) Take(alpha float64) {
	a.alpha, a.chosen = alpha, true
	a.tuner.taken(a.Tree)
}

// Serve looks a request up and admits it, all at its time, and tries what is to be tried
// at once. It returns the hit.
func (a *Adaptive) Serve(r Request) int {
	hit, marks := a.Lookup(r.Input(), r.At)
	if trial := a.Admit(r, marks); trial != nil {
		alpha, _ := trial.Run(nil)
		a.Take(alpha)
	}
	return hit
}

// Trial is a choice of α: requests, and the tree as it was before them. Nothing else has
// this tree, so that a trial may run beside all else.
type Trial struct {
	from     *Tree
	requests []Request
	better   int // by how many percent another α must hit more than the one in use
}

// Run replays the requests with each of [Alphas]. The one with the most hit tokens, the
// first of equals, is to be used if it hits enough more than the one in use, which else
// stays. Before each request stop is asked, if it is not nil; ok is false where it stopped.
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

// recordFactor times as many requests are recorded as came before the first eviction.
const recordFactor = 5

// tunedOnce chooses α once. It is 0 until the first eviction. The tree as it was before
// the request that evicted first is kept, and that request and those after it recorded, 5
// times as many as came before it, at least one, and tried.
type tunedOnce struct {
	seen    int       // requests before the first that evicts
	start   *Tree     // the tree before it; nil before that, and after the choice
	record  []Request // since start
	least   int       // requests of the record, when it was complete
	done    bool
	guarded bool   // or else α is chosen for good, as published
	guard   *guard // of an α above 0 that was chosen; nil: there is none
}

// NewTuned returns an empty tree that chooses its α once. From then on it also counts the tokens
// that α = 0 would have hit, and goes back to it for good once these are more.
func NewTuned(m Model, capacity int64) *Adaptive {
	a := newTunedOnce(m, capacity)
	a.tuner.(*tunedOnce).guarded = true
	return a
}

// newTunedOnce returns an empty tree that chooses its α for good, as published.
func newTunedOnce(m Model, capacity int64) *Adaptive {
	return &Adaptive{Tree: NewTree(m, capacity, 0), tuner: &tunedOnce{}}
}

func (t *tunedOnce) admits(tree *Tree, r Request, marks Marks) {
	switch {
	case t.guard != nil:
		t.guard.serve(tree, r)
	case !t.done && t.start == nil && tree.bytes+tree.growth(r.Tokens, marks) > tree.capacity:
		t.start = tree.Clone()
	}
}

func (t *tunedOnce) admitted(tree *Tree, r Request) *Trial {
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

func (t *tunedOnce) taken(tree *Tree) {
	if t.guarded && tree.alpha > 0 {
		t.guard = &guard{plain: tree.Clone(), least: t.least}
		t.guard.plain.alpha = 0
	}
}

// guard compares the α in use with α = 0, on the same requests since it was chosen.
type guard struct {
	plain           *Tree // that α = 0 would have
	hits, plainHits int   // tokens
	seen, least     int   // requests: so far, and before the first comparison
}

// serve replays a request that a tree is about to admit with α = 0, too.
func (g *guard) serve(tree *Tree, r Request) {
	hit, _ := tree.Find(r.Input())
	g.hits += hit
	g.plainHits += g.plain.Serve(r)
	g.seen++
}

// lost reports whether α = 0 would have hit more.
func (g *guard) lost() bool { return g.seen >= g.least && g.plainHits > g.hits }

package prefix

import "fmt"

// Alphas are the candidates of α.
var Alphas = []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// Adaptive is a [Tree] that changes its rule of eviction by what it would have hit. Trees of tokens
// without data serve the same requests beside it. [Adaptive.Serve] serves a request at once.
// Otherwise the caller looks it up when it begins, and admits it when it ends.
type Adaptive struct {
	*Tree
	own    rule     // in use unless lru has taken over
	beside []*trial // trees beside it, the first with lru; none: the rule is fixed
	used   int      // of beside, whose rule the tree has; with a history it has none of them
	guard  guard

	largest int // hit of a request beside it, in tokens
}

// trial is a rule, on a tree beside the cache.
type trial struct {
	tree *Tree
	hits faded64
}

// faded64 is a sum of which half fades in 350 requests.
type faded64 float64

func (f *faded64) add(x int) { *f = faded64(float64(*f)*0.998) + faded64(x) }

// NewReuse returns an empty tree that evicts the prefix with the least expected hits per byte, as
// its history predicts. A tree with lru beside it takes over where it hits less.
func NewReuse(m Model, capacity int64) *Adaptive {
	a := &Adaptive{Tree: NewTree(m, capacity, 0), own: rule{demand: true}, guard: &spans{}}
	a.history = newHistory(m, capacity)
	a.beside = []*trial{{tree: NewTree(m, capacity, 0)}}
	a.rule = a.own
	return a
}

// NewTuned returns an empty tree that follows the α with the most hits of late. α is 0 at first,
// and whenever the tree hits less than with 0.
func NewTuned(m Model, capacity int64) *Adaptive {
	a := &Adaptive{Tree: NewTree(m, capacity, 0), guard: &budget{}}
	for _, alpha := range Alphas {
		a.beside = append(a.beside, &trial{tree: NewTree(m, capacity, alpha)})
	}
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
	return a.rule.alpha, a.history == nil && a.beside != nil && a.evictions > 0
}

// Lookup is [Tree.Lookup]. With a history the branch is where the prompt parts from all that was
// seen, cached or not.
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
	if a.history == nil {
		return marks
	}
	_, seen := a.history.tree.Find(input)
	marks.Branch = max(marks.Branch, seen.Branch)
	return marks.Beyond(hit)
}

// Admit admits a request that was looked up, at its time: see [Tree.Admit].
func (a *Adaptive) Admit(r Request, marks Marks) {
	if len(a.beside) > 0 {
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

// Another α must lead by this share of the hits and by this many of the largest hits, so that α
// does not follow chance.
const (
	leadShare = 0.05
	leadHits  = 3
)

// compare serves a request beside the tree, which is about to admit it, and chooses the rule.
func (a *Adaptive) compare(r Request) {
	hit, _ := a.Tree.Find(r.Input())
	plain := 0
	for i, b := range a.beside {
		hits := b.tree.Serve(r)
		b.hits.add(hits)
		a.largest = max(a.largest, hits)
		if i == 0 {
			plain = hits
		}
	}
	if a.history == nil {
		best := a.used
		for i, b := range a.beside {
			if b.hits > a.beside[best].hits {
				best = i
			}
		}
		used := a.beside[a.used].hits
		if a.beside[best].hits-used > max(leadShare*used, faded64(leadHits*a.largest)) {
			a.used = best
			a.own = a.beside[best].tree.rule
		}
	}
	if a.rule = a.own; a.guard.trails(hit, plain) {
		a.rule = rule{}
	}
}

// guard counts a request by the tokens that a tree and lru hit, and reports whether lru is to be
// used.
type guard interface{ trails(hits, plain int) bool }

// guardShare is the share of lru's hits below which lru is used.
const guardShare = 0.998

// budget uses lru while the tree has hit less. Half of the sums fade in 1,400 requests.
type budget struct{ hits, plain float64 }

func (b *budget) trails(hits, plain int) bool {
	b.hits = float64(b.hits*0.9995) + float64(hits)
	b.plain = float64(b.plain*0.9995) + float64(plain)
	return b.hits < guardShare*b.plain
}

// spans uses lru for 100 requests once the tree has hit less, and each time for twice as many: a
// rule that learns is not judged by its first requests, nor interrupted by each of its errors. The
// sums begin anew then, so that the next attempt may lose as much of what is hit until then.
type spans struct {
	hits, plain faded64
	requests    int
	until       int // lru is in use up to this request
	span        int // requests for which lru was in use last
}

// firstSpan is the number of requests before the first comparison, and of the first span of lru.
const firstSpan = 100

func (s *spans) trails(hits, plain int) bool {
	s.requests++
	s.hits.add(hits)
	s.plain.add(plain)
	if s.requests > max(s.until, firstSpan) && float64(s.hits) < guardShare*float64(s.plain) {
		s.span = max(firstSpan, 2*s.span)
		s.until = s.requests + s.span
		s.hits, s.plain = 0, 0
	}
	return s.requests <= s.until
}

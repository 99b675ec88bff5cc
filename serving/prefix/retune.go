package prefix

// retuneWindow is how many requests [Retuned] looks back over.
const retuneWindow = 500

// Retuned is a [Tree] that goes on choosing α, which is 0 at first. After every 500
// requests these are replayed, from the tree as it was before them, with each of
// [Alphas]. The one with the most hit tokens, the first of equals, is used from the next
// request on, if it hits at least 2 % more than what was used: so that α does not follow
// chance.
type Retuned struct {
	*Tree
	size    int       // of the window
	start   *Tree     // as it was before the window
	window  []Request // since start
	hits    int       // tokens, in the window
	evicted int       // before the window
	chosen  bool
}

// NewRetuned is an empty tree that will choose its α now and again.
func NewRetuned(m Model, capacity int64) *Retuned {
	return newRetuned(m, capacity, retuneWindow)
}

func newRetuned(m Model, capacity int64, window int) *Retuned {
	return &Retuned{Tree: NewTree(m, capacity, 0), size: window}
}

// Alpha is the α in use; none has been chosen yet where ok is false.
func (t *Retuned) Alpha() (alpha float64, ok bool) { return t.alpha, t.chosen }

// Serve looks a request up and admits it, all at its time. It returns the hit.
func (t *Retuned) Serve(r Request) int {
	if len(t.window) == 0 {
		t.start, t.hits, t.evicted = t.Clone(), 0, t.evictions
	}
	hit := t.Tree.Serve(r)
	t.hits += hit
	if t.window = append(t.window, r); len(t.window) == t.size {
		t.choose()
		t.start, t.window = nil, t.window[:0]
	}
	return hit
}

// choose takes another α where it is worth it. Where nothing was evicted all are equal.
func (t *Retuned) choose() {
	t.chosen = true
	if t.evictions == t.evicted {
		return
	}
	if alpha, hits := bestAlpha(t.start, t.window); hits > t.hits && 100*hits >= 102*t.hits {
		t.alpha = alpha
	}
}

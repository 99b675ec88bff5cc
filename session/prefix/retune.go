package prefix

// retuneWindow is how many requests [NewRetuned]'s trees look back over, and retuneBetter
// by how many percent another α must hit more there, so that α does not follow chance.
const (
	retuneWindow = 500
	retuneBetter = 2
)

// tunedAgain goes on choosing α, which is 0 at first: after every 500 requests by these,
// from the tree as it was before them.
type tunedAgain struct {
	size    int       // of the window
	start   *Tree     // as it was before the window
	window  []Request // since start
	evicted int       // before the window
}

// NewRetuned is an empty tree that will choose its α now and again.
func NewRetuned(m Model, capacity int64) *Adaptive { return newRetuned(m, capacity, retuneWindow) }

func newRetuned(m Model, capacity int64, window int) *Adaptive {
	return &Adaptive{Tree: NewTree(m, capacity, 0), tuner: &tunedAgain{size: window}}
}

func (t *tunedAgain) admits(tree *Tree, _ Request, _ Marks) {
	if t.start == nil {
		t.start, t.evicted = tree.Clone(), tree.evictions
	}
}

// admitted tries nothing where nothing was evicted, since all α are equal then.
func (t *tunedAgain) admitted(tree *Tree, r Request) *Trial {
	if t.window = append(t.window, r); len(t.window) < t.size {
		return nil
	}
	trial := &Trial{from: t.start, requests: t.window, better: retuneBetter}
	if tree.evictions == t.evicted {
		trial.requests = nil
	}
	t.start, t.window = nil, nil
	return trial
}

// taken lets the window that has begun meanwhile be held against what is used now.
func (t *tunedAgain) taken(tree *Tree) {
	if t.start != nil {
		t.start.alpha = tree.alpha
	}
}

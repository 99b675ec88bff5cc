package prefix

// retuneWindow is the number of requests of a trial of [NewRetuned], and retuneBetter the percent
// by which another α must hit more there, so that α does not follow noise.
const (
	retuneWindow = 500
	retuneBetter = 2
)

// tunedAgain chooses α, which is 0 at first, after every 500 requests by replaying these on the
// tree before them.
type tunedAgain struct {
	size    int       // of the window
	start   *Tree     // before the window
	window  []Request // since start
	evicted int       // evictions before the window
}

// NewRetuned returns an empty tree that chooses its α repeatedly.
func NewRetuned(m Model, capacity int64) *Adaptive { return newRetuned(m, capacity, retuneWindow) }

func newRetuned(m Model, capacity int64, window int) *Adaptive {
	return &Adaptive{Tree: NewTree(m, capacity, 0), tuner: &tunedAgain{size: window}}
}

func (t *tunedAgain) before(tree *Tree, _ Request, _ Marks) {
	if t.start == nil {
		t.start, t.evicted = tree.Clone(), tree.evictions
	}
}

// after tries no request if nothing was evicted, since all α are equal then.
func (t *tunedAgain) after(tree *Tree, r Request) *Trial {
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

// changed sets the α with which the current window is compared.
func (t *tunedAgain) changed(tree *Tree) {
	if t.start != nil {
		t.start.alpha = tree.alpha
	}
}

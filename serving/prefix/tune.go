package prefix

// Alphas are what [Tuned] chooses among.
var Alphas = []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// recordFactor times as many requests are recorded as came before the first eviction.
const recordFactor = 5

// Tuned is a [Tree] that chooses α once. It is 0 until the first eviction. The tree as it
// was before the request that evicted first is kept, and that request and those after it
// recorded, 5 times as many as came before it, at least one. The record is then replayed
// from that tree with each of [Alphas], and the one with the most hit tokens is used from
// the next request on, the first of equals.
type Tuned struct {
	*Tree
	seen   int       // requests before the first that evicts
	start  *Tree     // the tree before it; nil before that, and after the choice
	record []Request // since start
	chosen bool
}

// NewTuned is an empty tree that will choose its α.
func NewTuned(m Model, capacity int64) *Tuned { return &Tuned{Tree: NewTree(m, capacity, 0)} }

// Alpha is the α that was chosen; there is none yet where ok is false.
func (t *Tuned) Alpha() (alpha float64, ok bool) { return t.alpha, t.chosen }

// Serve looks a request up and admits it, all at its time. It returns the hit.
func (t *Tuned) Serve(r Request) int {
	if t.chosen {
		return t.Tree.Serve(r)
	}
	if t.start == nil && t.bytes+t.growth(r) > t.capacity {
		t.start = t.Clone()
	}
	hit := t.Tree.Serve(r)
	if t.start == nil {
		t.seen++
		return hit
	}
	if t.record = append(t.record, r); len(t.record) == max(1, recordFactor*t.seen) {
		t.alpha, _ = bestAlpha(t.start, t.record)
		t.chosen = true
		t.start, t.record = nil, nil
	}
	return hit
}

// bestAlpha replays requests from a tree, and returns the first α of the most hit tokens.
func bestAlpha(from *Tree, requests []Request) (best float64, most int) {
	most = -1
	for _, alpha := range Alphas {
		t, hits := from.Clone(), 0
		t.alpha = alpha
		for _, r := range requests {
			hits += t.Serve(r)
		}
		if hits > most {
			best, most = alpha, hits
		}
	}
	return best, most
}

package prove

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// held is a layout in which a value is there. Depth is the number of
// all_reduces, one after another, that it took: reductions of equal depth do
// not need each other's results and are one launch.
type held struct{ layout, depth int }

// state is what a search knows after some nodes: how the values that are still
// needed are held, and the least that it took.
type state struct {
	held     [][]held // by value
	launches int      // of all_reduce: the greatest depth
	cost     cost
	moves    *move // newest first
}

// cost is what is added up on the way. Bytes sent are times the ranks, so that
// they stay integers.
type cost struct {
	others       int // launches of reduce_scatter and all_gather
	sent, weight int64
	moved        int // values in collectives
}

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.others, d.others), cmp.Compare(c.sent, d.sent), cmp.Compare(c.weight, d.weight), cmp.Compare(c.moved, d.moved))
}

// move is one value in one collective.
type move struct {
	kind  string
	value int
	depth int // of an all_reduce: its launch
	next  *move
}

// search finds the least cost of a section. It looks for placements with no
// collective, then with one, and so on, until there are some.
func search(s *section) Minimum {
	x := explore(s)
	for i, n := range s.nodes {
		if len(x.configs[i]) == 0 {
			return stuckAt(n)
		}
	}
	for x.limit = 0; ; x.limit++ {
		x.over = false
		best, stuck := x.walk()
		switch {
		case best != nil:
			return x.minimum(best)
		case x.over: // with more collectives there may be a way
		case stuck != nil:
			return stuckAt(stuck)
		default:
			return Minimum{None: "what leaves the block cannot be made whole"}
		}
	}
}

func stuckAt(n *graph.Node) Minimum {
	return Minimum{None: fmt.Sprintf("%s: the class has no layout of its operands that %s accepts", n.Name(), n.Op.Name)}
}

// walk goes through the nodes in order and keeps, for each way in which the
// live values can be held, the cheapest way to get there. What is left to do
// depends on nothing else, so the result is exact. It returns the best state,
// or the node that no state gets past.
func (x *space) walk() (best *state, stuck *graph.Node) {
	states := []*state{x.first()}
	for i, n := range x.nodes {
		next := frontier{at: map[string]int{}}
		for _, st := range states {
			for _, c := range x.configs[i] {
				for _, to := range x.apply(st, i, c) {
					next.add(to)
				}
			}
		}
		if states = next.states; len(states) == 0 {
			return nil, n
		}
	}
	for _, st := range x.finish(states) {
		if best == nil || st.compare(best) < 0 {
			best = st
		}
	}
	return best, nil
}

func (st *state) collectives() int { return st.launches + st.cost.others }

// compare orders by the objective.
func (st *state) compare(to *state) int {
	c, d := st.cost, to.cost
	c.others, d.others = st.collectives(), to.collectives()
	return c.compare(d)
}

// first holds what comes from outside whole; parameters and states are placed
// at their first use.
func (x *space) first() *state {
	st := &state{held: make([][]held, len(x.values))}
	for v, start := range x.start {
		if start != nil && !x.stays(v) {
			st.held[v] = []held{{whole, 0}}
		}
	}
	return st
}

// frontier keeps the cheapest of the states in which the same is held.
type frontier struct {
	states []*state
	at     map[string]int
}

func (f *frontier) add(st *state) {
	key := st.key()
	i, ok := f.at[key]
	switch {
	case !ok:
		f.at[key] = len(f.states)
		f.states = append(f.states, st)
	case st.compare(f.states[i]) < 0:
		f.states[i] = st
	}
}

func (st *state) key() string {
	b := binary.AppendUvarint(nil, uint64(st.launches))
	for v, hs := range st.held {
		for _, h := range hs {
			b = binary.AppendUvarint(b, uint64(v))
			b = binary.AppendUvarint(b, uint64(h.layout))
			b = binary.AppendUvarint(b, uint64(h.depth))
		}
	}
	return string(b)
}

// apply computes node i in one way, after getting its operands to lie so in
// every way that may pay.
func (x *space) apply(st *state, i int, c config) []*state {
	n := x.nodes[i]
	if x.termsOnly(st, n, c) {
		return nil
	}
	ways := []way{{st, 0}}
	for j, arg := range n.Args {
		var next []way
		for _, w := range ways {
			for _, to := range x.obtain(w.state, x.id[arg], c.in[j]) {
				next = append(next, way{to.state, max(w.depth, to.depth)})
			}
		}
		ways = next
	}
	var out []*state
	for _, w := range ways {
		to := w.state.clone()
		for j, v := range n.Results {
			to.held[x.id[v]] = []held{{c.out[j], w.depth}}
		}
		for _, v := range slices.Concat(n.Args, n.Results) {
			if x.last[x.id[v]] <= i {
				to.held[x.id[v]] = nil
			}
		}
		out = append(out, to)
	}
	return out
}

// termsOnly: a term joins partial sums; a sum of terms alone is not in the class.
func (x *space) termsOnly(st *state, n *graph.Node, c config) bool {
	terms := false
	for j, l := range c.in {
		if l == partial {
			if st.find(x.id[n.Args[j]], partial) >= 0 {
				return false
			}
			terms = true
		}
	}
	return terms
}

// finish makes what leaves the section whole.
func (x *space) finish(states []*state) []*state {
	for v, last := range x.last {
		if last < len(x.nodes) || x.stays(v) {
			continue
		}
		var next []*state
		for _, st := range states {
			for _, w := range x.obtain(st, v, whole) {
				next = append(next, w.state)
			}
		}
		states = next
	}
	return states
}

// minimum says what the best way takes. All_reduces of one depth are one launch.
func (x *space) minimum(best *state) Minimum {
	var moves []*move
	for mv := best.moves; mv != nil; mv = mv.next {
		moves = append(moves, mv)
	}
	slices.Reverse(moves)
	var plan []string
	launch := map[int]int{}
	for _, mv := range moves {
		name := local(x.values[mv.value].Name, x.block)
		if at, ok := launch[mv.depth]; ok && mv.kind == "all_reduce" {
			plan[at] += ", " + name
			continue
		} else if mv.kind == "all_reduce" {
			launch[mv.depth] = len(plan)
		}
		plan = append(plan, mv.kind+" "+name)
	}
	return Minimum{Collectives: best.collectives(), parts: best.cost.sent, SentBytes: ceil(best.cost.sent, x.ranks), WeightBytes: best.cost.weight, Plan: plan}
}

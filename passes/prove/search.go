package prove

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// held is a layout in which a value is there. Depth is the launch of joined collectives,
// counted from 1, after which it is: those of equal depth do not need each other's
// results, and are one launch if they are of one kind.
type held struct{ layout, depth int }

// state is what a search knows after some nodes: how the values that are still
// needed are held, and the least that it took.
type state struct {
	held     [][]held // by value
	launches int      // of joined collectives: the greatest depth
	cost     cost
	moves    *move // newest first
}

// cost is what is added up on the way. Bytes sent are times the ranks, so that they stay integers.
type cost struct {
	others       int // launches of all other collectives
	sent, weight int64
	moved        int // values in collectives
}

// bytes compares all but launches.
func (c cost) bytes(d cost) int {
	return cmp.Or(cmp.Compare(c.sent, d.sent), cmp.Compare(c.weight, d.weight), cmp.Compare(c.moved, d.moved))
}

// move is one value in one collective.
type move struct {
	op    *graph.Op
	value int
	joint graph.Joint // of a joined one: its kind
	depth int         // and its launch; 0: it goes alone
	next  *move
}

// space is what a search goes through, and how far it may go.
type space struct {
	*class.Space
	fixed  map[*graph.Value]bool // placed for several sections
	phase  []int64               // of each value: what a phase of a ring sends, times the ranks
	budget *budget
	limit  int           // collectives that a walk may use
	over   bool          // it would have liked more
	kinds  []graph.Joint // of the launches of a walk, in order; none: any
	joints []graph.Joint // that the section may have
}

func newSpace(s *class.Section, fixed map[*graph.Value]bool, b *budget) *space {
	x := &space{Space: class.Explore(s), fixed: fixed, budget: b}
	for _, v := range s.Values {
		x.phase = append(x.phase, inRing(1, v.Type, s.Ranks).parts())
	}
	x.joints = x.kindsOf()
	return x
}

// search finds the least cost of a section. It looks for placements with no
// collective, then with one, and so on, until there are some.
func (x *space) search() Minimum {
	for i, n := range x.Nodes {
		if len(x.Configs[i]) == 0 {
			return stuckAt(n)
		}
	}
	for x.limit = 0; ; x.limit++ {
		x.over = false
		best, stuck := x.best(make([]graph.Joint, x.limit), nil)
		switch {
		case x.budget.spent != "":
			return Minimum{Unknown: x.budget.spent}
		case best != nil:
			return x.minimum(best)
		case x.over: // with more collectives there may be a way
		default:
			return stuckAt(stuck)
		}
	}
}

func stuckAt(n *graph.Node) Minimum {
	return Minimum{None: fmt.Sprintf("%s: the class has no layout of its operands that %s accepts", n.Name(), n.Op.Name)}
}

// walk goes through the nodes in order and keeps, for each way in which the live values can be
// held, the cheapest ways to get there. The rest of the search depends on nothing else, so the
// result is exact. It returns the best state, or the node that no state gets past.
func (x *space) walk() (best *state, stuck *graph.Node) {
	states := []*state{x.first()}
	for i, n := range x.Nodes {
		next := frontier{at: map[string][]*state{}}
		for _, st := range states {
			for _, c := range x.Configs[i] {
				for _, to := range x.apply(st, i, c) {
					next.add(to)
				}
			}
			if !x.budget.allows(len(states)+next.n, len(x.Values)) {
				return nil, n
			}
		}
		if states = next.states(); len(states) == 0 {
			return nil, n
		}
	}
	for _, st := range states {
		if best == nil || st.compare(best) < 0 {
			best = st
		}
	}
	return best, nil
}

func (st *state) collectives() int { return st.launches + st.cost.others }

// compare orders by the objective.
func (st *state) compare(to *state) int {
	return cmp.Or(cmp.Compare(st.collectives(), to.collectives()), st.cost.bytes(to.cost))
}

// first holds what comes from outside as it comes; parameters and states are placed
// at their first use.
func (x *space) first() *state {
	st := &state{held: make([][]held, len(x.Values))}
	for v, start := range x.Start {
		if start != nil && !x.Stays(v) {
			st.held[v] = []held{{x.Intern(start[0]), 0}}
		}
	}
	return st
}

// frontier keeps, of the states in which values are held in the same layouts,
// those that no other dominates.
type frontier struct {
	at    map[string][]*state
	order []string
	n     int
}

func (f *frontier) add(st *state) {
	key := st.key()
	same, ok := f.at[key]
	if !ok {
		f.order = append(f.order, key)
	}
	if slices.ContainsFunc(same, func(o *state) bool { return o.dominates(st) }) {
		return
	}
	left := slices.DeleteFunc(same, st.dominates)
	f.n += len(left) + 1 - len(same)
	f.at[key] = append(left, st)
}

// states lists what is kept, in the order in which it was found.
func (f *frontier) states() []*state {
	var out []*state
	for _, key := range f.order {
		out = append(out, f.at[key]...)
	}
	return out
}

// key is the same where values are held in the same layouts.
func (st *state) key() string {
	var b []byte
	for v, hs := range st.held {
		for _, h := range hs {
			b = binary.AppendUvarint(b, uint64(v))
			b = binary.AppendUvarint(b, uint64(h.layout))
		}
	}
	return string(b)
}

// dominates reports whether st, which holds the same, is no worse wherever both
// go on alike: its copies wait for no more collectives, and it took no more of
// either kind of launches, nor of the rest.
func (st *state) dominates(to *state) bool {
	if st.launches > to.launches || st.cost.others > to.cost.others || st.cost.bytes(to.cost) > 0 {
		return false
	}
	for v, hs := range st.held {
		for i, h := range hs {
			if h.depth > to.held[v][i].depth {
				return false
			}
		}
	}
	return true
}

// apply computes node i in one way, after getting its operands to lie so in every way that may pay.
// A value used for the last time is dropped, whole where it leaves the section.
func (x *space) apply(st *state, i int, c class.Config) []*state {
	n := x.Nodes[i]
	if x.termsOnly(st, n, c) {
		return nil
	}
	ways := []way{{st, 0}}
	for j, arg := range n.Args {
		var next []way
		for _, w := range ways {
			for _, to := range x.obtain(w.state, x.ID[arg], c.In[j]) {
				next = append(next, way{to.state, max(w.depth, to.depth)})
			}
		}
		ways = next
	}
	var out []*state
	for _, w := range ways {
		to := w.state.clone()
		for j, v := range n.Results {
			to.held[x.ID[v]] = []held{{c.Out[j], w.depth}}
		}
		out = append(out, x.end(to, i)...)
	}
	return out
}

// end lets go of the values that node i is the last to use.
func (x *space) end(st *state, i int) []*state {
	out := []*state{st}
	n := x.Nodes[i]
	for _, arg := range slices.Concat(n.Args, n.Results) {
		v := x.ID[arg]
		if x.Last[v] > i {
			continue
		}
		var next []*state
		for _, st := range out {
			ways := []way{{st, 0}}
			if st.held[v] != nil {
				ways = x.leave(st, v)
			}
			for _, w := range ways {
				to := w.state.clone()
				to.held[v] = nil
				next = append(next, to)
			}
		}
		out = next
	}
	return out
}

// leave lists the ways to have v in all the layouts in which it leaves the section.
func (x *space) leave(st *state, v int) []way {
	ways := []way{{st, 0}}
	for _, l := range x.Needed[v] {
		var next []way
		for _, w := range ways {
			next = append(next, x.obtain(w.state, v, x.Intern(l))...)
		}
		ways = next
	}
	return ways
}

// termsOnly: a term joins partial sums; a sum of terms alone is not in the class.
func (x *space) termsOnly(st *state, n *graph.Node, c class.Config) bool {
	terms := false
	for j, l := range c.In {
		if l == class.Partial {
			if st.find(x.ID[n.Args[j]], class.Partial) >= 0 {
				return false
			}
			terms = true
		}
	}
	return terms
}

// minimum says what the best way takes. Joined collectives of one depth are one launch.
func (x *space) minimum(best *state) Minimum {
	var moves []*move
	for mv := best.moves; mv != nil; mv = mv.next {
		moves = append(moves, mv)
	}
	slices.Reverse(moves)
	slices.SortStableFunc(moves, func(a, b *move) int { return cmp.Compare(a.value, b.value) }) // as in the graph
	var launches []string
	at := map[int]int{}
	for _, mv := range moves {
		name := local(x.Values[mv.value].Name, x.Block)
		if i, ok := at[mv.depth]; ok && mv.depth > 0 {
			launches[i] += ", " + name
			continue
		} else if mv.depth > 0 {
			at[mv.depth] = len(launches)
		}
		launches = append(launches, mv.op.Name+" "+name)
	}
	return Minimum{Collectives: best.collectives(), parts: best.cost.sent, SentBytes: ceil(best.cost.sent, x.Ranks), WeightBytes: best.cost.weight, Launches: launches}
}

package passes

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// The search finds how the nodes of a section are computed. It goes through them
// in order and knows of each state in what layouts the values in use are there. A
// narrow walk, which keeps the best few states, finds a way; a wide one keeps all
// that may still be cheaper, and so finds the cheapest.

const (
	narrowWalk = 64
	wideWalk   = 1 << 12
)

// cost is what is minimised, in this order. Collectives of one kind become one launch
// where they do not wait for each other and merge joins them.
type cost struct {
	launches int   // that merge joins
	others   int   // others
	sent     int64 // bytes for one token, times the number of ranks
	weights  int64 // bytes, of each parameter the largest share
	moved    int   // values in collectives
	whole    int   // values that all ranks compute, where borders split them
	nodes    int   // that convert
}

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.launches+c.others, d.launches+d.others), c.compareRest(d))
}

// compareRest compares all but launches.
func (c cost) compareRest(d cost) int {
	return cmp.Or(cmp.Compare(c.sent, d.sent), cmp.Compare(c.weights, d.weights), cmp.Compare(c.moved, d.moved), cmp.Compare(c.whole, d.whole), cmp.Compare(c.nodes, d.nodes))
}

func (c cost) plus(d cost) cost {
	return cost{c.launches + d.launches, c.others + d.others, c.sent + d.sent, c.weights + d.weights, c.moved + d.moved, c.whole + d.whole, c.nodes + d.nodes}
}

// conversion makes a copy of a value in another layout.
type conversion struct{ value, from, to int }

// decision is how a node is computed, and what is converted around it.
type decision struct {
	class.Config
	conversions []conversion
	before      *decision
}

// there is a layout in which a value exists after a number of launches.
type there struct{ layout, after int }

// state is a point of the search.
type state struct {
	copies      [][]there     // by value, by layout
	launches    []graph.Joint // that merge joins, in an order in which they can be
	cost        cost
	conversions []conversion // for the node at hand
	last        *decision
}

// search looks for the cheapest way through a space.
type search struct {
	*class.Space
	merges bool                  // collectives are joined afterwards
	shared map[*graph.Value]bool // leaves that count once for all sections
	bound  *cost                 // what is to be cheaper than it
	cut    bool                  // states were given up because there were too many
}

// solution is the cheapest way through a section. Exact: there is no cheaper one.
type solution struct {
	decisions []*decision    // by node
	layouts   []graph.Layout // by their numbers
	cost      cost
	exact     bool
}

// solve returns the cheapest way, or an error that names the node that cannot be computed.
func (s *search) solve() (*solution, error) {
	best, stuck := s.walk(narrowWalk)
	if best == nil && s.cut { // the few that were kept led nowhere
		s.cut = false
		best, stuck = s.walk(wideWalk)
	} else if best != nil && s.cut {
		s.cut, s.bound = false, &best.cost
		if better, _ := s.walk(wideWalk); better != nil {
			best = better
		}
	}
	if best == nil {
		return nil, s.stuck(stuck)
	}
	var list []*decision
	for d := best.last; d != nil; d = d.before {
		list = append(list, d)
	}
	slices.Reverse(list)
	return &solution{list, s.Layouts, best.cost, !s.cut}, nil
}

// walk goes through the nodes and keeps at most width states after each. It
// returns the best state, or the node that no state gets past.
func (s *search) walk(width int) (*state, *graph.Node) {
	states := []*state{s.first()}
	for i, n := range s.Nodes {
		next := frontier{at: map[string][]*state{}}
		for _, st := range states {
			for _, c := range s.Configs[i] {
				s.compute(st, i, c, func(to *state) {
					if s.bound == nil || to.cost.compare(*s.bound) < 0 {
						next.add(to)
					}
				})
			}
		}
		if states = next.states(); len(states) == 0 {
			return nil, n
		}
		if len(states) > width {
			s.cut = true
			slices.SortStableFunc(states, func(a, b *state) int { return a.cost.compare(b.cost) })
			states = states[:width]
		}
	}
	return slices.MinFunc(states, func(a, b *state) int { return a.cost.compare(b.cost) }), nil
}

// first has what comes from outside.
func (s *search) first() *state {
	st := &state{copies: make([][]there, len(s.Values))}
	for v, start := range s.Start {
		if start != nil && !s.Stays(v) {
			st.copies[v] = []there{{s.Intern(start[0]), 0}}
		}
	}
	return st
}

// frontier keeps states that no other makes needless, in the order in which they
// were found, so that ties fall the same way on every run.
type frontier struct {
	at   map[string][]*state // by the layouts in which values are there
	keys []string
}

func (f *frontier) add(st *state) {
	var key []byte
	for v, list := range st.copies {
		for _, c := range list {
			key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(v)), uint64(c.layout))
		}
	}
	old, ok := f.at[string(key)]
	if !ok {
		f.keys = append(f.keys, string(key))
	}
	if !slices.ContainsFunc(old, func(o *state) bool { return o.noWorse(st) }) {
		f.at[string(key)] = append(slices.DeleteFunc(old, st.noWorse), st)
	}
}

func (f *frontier) states() []*state {
	var out []*state
	for _, key := range f.keys {
		out = append(out, f.at[key]...)
	}
	return out
}

// noWorse: whatever follows, it costs st no more than o, which has the same copies.
// Its launches are among o's, in their order, and no copy waits for a later one.
func (st *state) noWorse(o *state) bool {
	a, b := st.cost, o.cost
	if a.launches > b.launches || a.others > b.others || a.compareRest(b) > 0 {
		return false
	}
	at, ok := within(st.launches, o.launches)
	if !ok {
		return false
	}
	for v, list := range st.copies {
		for i, c := range list {
			if at.of(c.after) > o.copies[v][i].after {
				return false
			}
		}
	}
	return true
}

// compute runs node i in one of its ways, and visits the states after it.
func (s *search) compute(from *state, i int, c class.Config, visit func(*state)) {
	n := s.Nodes[i]
	if s.termsOnly(from, n, c) {
		return
	}
	var operand func(st *state, j int)
	operand = func(st *state, j int) {
		if j < len(n.Args) {
			s.get(st, s.ID[n.Args[j]], c.In[j], func(st *state) { operand(st, j+1) })
			return
		}
		after := s.waits(st, n, c)
		st = st.clone()
		for k, v := range n.Results {
			st.copies[s.ID[v]] = []there{{c.Out[k], after}}
			if c.Out[k] == class.Whole && class.AtBorder(s.Border, v.Type).Kind == graph.Sharded {
				st.cost.whole++
			}
		}
		s.let(st, i, slices.Concat(n.Args, n.Results), func(st *state) {
			st.last = &decision{c, st.conversions, from.last}
			st.conversions = nil
			visit(st)
		})
	}
	operand(from, 0)
}

// waits is after how many launches the operands of n are there, as c takes them.
func (s *search) waits(st *state, n *graph.Node, c class.Config) int {
	most := 0
	for j, v := range n.Args {
		after, ok := st.find(s.ID[v], c.In[j])
		if !ok { // made of the whole, by no collective
			after, _ = st.find(s.ID[v], class.Whole)
		}
		most = max(most, after)
	}
	return most
}

// let lets go of the values that node i uses last, as they leave the section if they do.
func (s *search) let(st *state, i int, values []*graph.Value, visit func(*state)) {
	for k, value := range values {
		v := s.ID[value]
		if s.Last[v] > i || st.copies[v] == nil {
			continue
		}
		gone := func(st *state) {
			st = st.clone()
			st.copies[v] = nil
			s.let(st, i, values[k+1:], visit)
		}
		s.getAll(st, v, s.Needed[v], gone)
		return
	}
	visit(st.clone())
}

// getAll visits the states in which v is there in several layouts.
func (s *search) getAll(st *state, v int, list []graph.Layout, then func(*state)) {
	if len(list) == 0 {
		then(st)
		return
	}
	s.get(st, v, s.Intern(list[0]), func(st *state) { s.getAll(st, v, list[1:], then) })
}

// termsOnly: a term joins partial sums; a sum of terms alone is not in the class.
func (s *search) termsOnly(st *state, n *graph.Node, c class.Config) bool {
	terms := false
	for j, l := range c.In {
		if l == class.Partial {
			if _, sum := st.find(s.ID[n.Args[j]], class.Partial); sum {
				return false
			}
			terms = true
		}
	}
	return terms
}

func (st *state) clone() *state {
	to := *st
	to.copies = slices.Clone(st.copies)
	to.conversions = slices.Clone(st.conversions)
	return &to
}

// find is how long the copy of v in a layout waits.
func (st *state) find(v, layout int) (after int, ok bool) {
	for _, c := range st.copies[v] {
		if c.layout == layout {
			return c.after, true
		}
	}
	return 0, false
}

// get visits the states in which v is there in a layout: as it is, placed now, or converted.
func (s *search) get(st *state, v, want int, then func(*state)) {
	if s.Stays(v) && st.copies[v] == nil {
		s.place(st, v, want, then)
		return
	}
	if _, ok := st.find(v, want); ok {
		then(st)
		return
	}
	if want != class.Whole && (want == class.Partial && class.IsTerm(s.Border, s.Values[v].Type) || slices.Contains(s.Cuts[v], want)) {
		s.get(st, v, class.Whole, func(st *state) { then(st.convert(v, class.Whole, want)) })
	}
	s.collect(st, v, want, then)
}

// place puts a parameter or a state where it is used first.
func (s *search) place(st *state, v, want int, then func(*state)) {
	at := want
	if want == class.Partial {
		at = class.Whole // and a term of it
	}
	if !slices.ContainsFunc(s.Start[v], s.Layouts[at].Equal) {
		return
	}
	st = st.clone()
	st.copies[v] = []there{{at, 0}}
	if p := s.Values[v]; p.Def.Op.Name == "param" && !s.shared[p] {
		st.cost.weights += class.WeightBytes(p.Type, s.Layouts[at], s.Ranks)
	}
	if at != want {
		st = st.convert(v, at, want)
	}
	then(st)
}

// collect makes a copy of v by the collectives that its copies can go through.
func (s *search) collect(st *state, v, want int, then func(*state)) {
	if s.Stays(v) || !slices.Contains(s.May(v), want) || want != class.Whole && !slices.Contains(s.Cuts[v], want) {
		return
	}
	for _, c := range st.copies[v] {
		op, ok := graph.Between(s.Layouts[c.layout].Kind, s.Layouts[want].Kind)
		if ok && op.Class == graph.Collective {
			s.launch(st, op, conversion{v, c.layout, want}, c.after, then)
		}
	}
}

// convert notes a conversion.
func (st *state) convert(v, from, to int) *state {
	st = st.clone()
	st.conversions = append(st.conversions, conversion{v, from, to})
	st.cost.nodes++
	return st
}

// launch converts by a collective, whose result stays: in a launch of its own, or in
// one of its kind.
func (s *search) launch(st *state, op *graph.Op, c conversion, after int, then func(*state)) {
	st = st.convert(c.value, c.from, c.to)
	st.cost.moved++
	st.cost.sent += s.ring(op, c.value)
	j, joins := graph.JointOf(op, s.Values[c.value].Type, s.Layouts[c.from], s.Layouts[c.to])
	if !joins || !s.merges {
		st.cost.others++
		st.copy(c.value, there{c.to, after})
		then(st)
		return
	}
	st.joinOrAdd(j, after, func(st *state, at int) {
		st.copy(c.value, there{c.to, at})
		then(st)
	})
}

// copy notes a copy of v.
func (st *state) copy(v int, c there) {
	list := append(slices.Clone(st.copies[v]), c)
	slices.SortFunc(list, func(a, b there) int { return a.layout - b.layout })
	st.copies[v] = list
}

// ring is what all ranks send for one token when a value goes through a collective.
func (s *search) ring(op *graph.Op, v int) int64 {
	return graph.Sent(op, s.Values[v].Type, s.Ranks).At(oneToken)
}

// oneToken is the batch for which bytes are compared.
var oneToken = graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}

func (s *search) stuck(n *graph.Node) error {
	list := ""
	for i, v := range n.Args {
		list += fmt.Sprintf("\n  operand %d, %s, may be", i, v.Name)
		for _, l := range s.May(s.ID[v]) {
			list += " (" + layoutText(v, s.Layouts[l]) + ")"
		}
	}
	return fmt.Errorf("%s: the strategy leaves no layouts under which %s can run:%s", n.Name(), n.Op.Name, list)
}

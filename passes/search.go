package passes

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// The search finds layouts for the values of one segment (a block, or what is
// before or after the blocks) by dynamic programming over its nodes: a state is
// the set of layouts in which each live value is available.

// segment is a run of nodes with what it takes and gives.
type segment struct {
	nodes   []*graph.Node
	values  []*graph.Value // all that appear, in order of appearance
	index   map[*graph.Value]int
	choices [][]graph.Layout // by index: what the strategy allows
	given   []bool           // by index: it comes from outside, whole or as placed
	needed  []bool           // by index: it must be there whole at the end
	last    []int            // by index: the last node that uses it
}

// cost is what is minimised, in this order.
type cost struct {
	collectives int
	sent        int64 // bytes per rank for one token, times the number of ranks
	weights     int64 // bytes per rank, of the rank that has most
}

func (c cost) less(d cost) bool {
	if c.collectives != d.collectives {
		return c.collectives < d.collectives
	}
	if c.sent != d.sent {
		return c.sent < d.sent
	}
	return c.weights < d.weights
}

// config is a way to run a node: a choice for each operand and result.
type config struct{ operands, results []uint8 }

// decision is what the search decided for a node.
type decision struct {
	config
	before []conversion
	parent *decision
}

// conversion makes a value available in another layout.
type conversion struct {
	value    int
	from, to uint8
}

// state is a point of the search: have is a set of choices per value.
type state struct {
	have []uint8
	cost cost
	last *decision
}

// anyChoice stands for a result whose layout nobody uses: a new state.
const anyChoice = 0xff

// solve returns the decisions for all nodes, and the conversions at the end.
func (s *segment) solve(ranks int) ([]*decision, error) {
	first := state{have: make([]uint8, len(s.values))}
	for i := range s.values {
		if s.given[i] {
			first.have[i] = 1
		}
	}
	states := []state{first}
	for i, n := range s.nodes {
		configs, err := s.configs(n, ranks)
		if err != nil {
			return nil, err
		}
		next := frontier{index: map[string]int{}}
		for _, st := range states {
			for _, c := range configs {
				if t, ok := s.step(st, i, n, c, ranks); ok {
					next.add(t)
				}
			}
		}
		if states = next.states; len(states) == 0 {
			return nil, s.stuck(n)
		}
	}
	best, found := state{}, false
	for _, st := range states {
		if st, ok := s.end(st, ranks); ok && (!found || st.cost.less(best.cost)) {
			best, found = st, true
		}
	}
	if !found {
		return nil, fmt.Errorf("what leaves %s cannot be made whole", s.nodes[0].Name())
	}
	var list []*decision
	for d := best.last; d != nil; d = d.parent {
		list = append(list, d)
	}
	slices.Reverse(list)
	return list, nil
}

// frontier keeps the cheapest way to each set of available layouts, in the order
// in which they were found, so that ties fall the same way on every run.
type frontier struct {
	states []state
	index  map[string]int
}

func (f *frontier) add(s state) {
	key := string(s.have)
	if i, ok := f.index[key]; !ok {
		f.index[key] = len(f.states)
		f.states = append(f.states, s)
	} else if s.cost.less(f.states[i].cost) {
		f.states[i] = s
	}
}

// configs lists the ways to run a node that its rule allows.
func (s *segment) configs(n *graph.Node, ranks int) ([]config, error) {
	if n.Op.Class == graph.Leaf {
		i := s.index[n.Results[0]]
		if n.Op.Name == "input" {
			return []config{{results: []uint8{0}}}, nil
		}
		// Parameters and states are placed where they are first used.
		if s.last[i] >= 0 {
			return []config{{results: []uint8{anyChoice}}}, nil
		}
		return []config{{results: []uint8{0}}}, nil
	}
	var out []config
	operands := make([]uint8, len(n.Args))
	layouts := make([]graph.Layout, len(n.Args))
	var try func(i int)
	try = func(i int) {
		if i < len(n.Args) {
			for c, l := range s.choices[s.index[n.Args[i]]] {
				operands[i], layouts[i] = uint8(c), l
				try(i + 1)
			}
			return
		}
		if results, ok := s.results(n, layouts, ranks); ok {
			out = append(out, config{slices.Clone(operands), results})
		}
	}
	try(0)
	if len(out) == 0 {
		return nil, s.stuck(n)
	}
	return out, nil
}

// results finds the choices that the results get, if the strategy allows them.
func (s *segment) results(n *graph.Node, operands []graph.Layout, ranks int) ([]uint8, bool) {
	for i, v := range n.Args {
		for j, w := range n.Args[:i] {
			if v == w && !operands[i].Equal(operands[j]) {
				return nil, false // one operand twice
			}
		}
	}
	layouts, err := graph.LayoutsOf(n, operands, ranks)
	if err != nil {
		return nil, false
	}
	out := make([]uint8, len(layouts))
	for i, l := range layouts {
		v := s.index[n.Results[i]]
		c := slices.IndexFunc(s.choices[v], l.Equal)
		if c < 0 && (s.last[v] >= 0 || s.needed[v]) {
			return nil, false
		}
		if out[i] = uint8(c); c < 0 {
			out[i] = anyChoice
		}
	}
	return out, true
}

func (s *segment) stuck(n *graph.Node) error {
	list := ""
	for i, v := range n.Args {
		list += fmt.Sprintf("\n  operand %d, %s, may be", i, v.Name)
		for _, l := range s.choices[s.index[v]] {
			list += " (" + layoutText(v, l) + ")"
		}
	}
	return fmt.Errorf("%s: the strategy leaves no layouts under which %s can run:%s", n.Name(), n.Op.Name, list)
}

// step runs node i from a state in one of its ways.
func (s *segment) step(st state, i int, n *graph.Node, c config, ranks int) (state, bool) {
	d := &decision{config: c, parent: st.last}
	next := state{have: slices.Clone(st.have), cost: st.cost, last: d}
	for j, v := range n.Args {
		if !s.provide(&next, d, s.index[v], c.operands[j], ranks) {
			return next, false
		}
	}
	for j, v := range n.Results {
		if k := s.index[v]; c.results[j] != anyChoice {
			next.have[k] = 1 << c.results[j]
		}
	}
	for k := range next.have {
		if s.last[k] <= i && !s.needed[k] {
			next.have[k] = 0
		}
	}
	return next, true
}

// provide makes value k available in a layout: a parameter or state is placed,
// once; a value is converted from the layout that costs least.
func (s *segment) provide(st *state, d *decision, k int, want uint8, ranks int) bool {
	have := st.have[k]
	if have&(1<<want) != 0 {
		return true
	}
	v := s.values[k]
	if isPlaced(v) {
		if have != 0 || s.given[k] {
			return false
		}
		st.have[k] = 1 << want
		if v.Def.Op.Name == "param" {
			st.cost.weights += mostBytes(v, s.choices[k][want], ranks)
		}
		return true
	}
	best, from, found := cost{}, 0, false
	for h := have; h != 0; h &= h - 1 {
		i := bits.TrailingZeros8(h)
		if _, c, ok := convert(v, s.choices[k][i], s.choices[k][want], ranks); ok && (!found || c.less(best)) {
			best, from, found = c, i, true
		}
	}
	if !found {
		return false
	}
	st.cost.collectives += best.collectives
	st.cost.sent += best.sent
	st.have[k] |= 1 << want
	d.before = append(d.before, conversion{k, uint8(from), want})
	return true
}

// end makes whole what the segment must give.
func (s *segment) end(st state, ranks int) (state, bool) {
	d := &decision{parent: st.last}
	next := state{have: slices.Clone(st.have), cost: st.cost, last: d}
	for k := range s.values {
		if s.needed[k] {
			whole := slices.IndexFunc(s.choices[k], graph.Layout{}.Equal)
			if whole < 0 || !s.provide(&next, d, k, uint8(whole), ranks) {
				return next, false
			}
		}
	}
	return next, true
}

// convert names the operation that takes a value from one layout to another, and
// what it costs: a ring sends every byte (p-1)/p times per rank and direction.
func convert(v *graph.Value, from, to graph.Layout, ranks int) (op string, c cost, ok bool) {
	one := graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}
	bytes := v.Type.Bytes().At(one) * int64(ranks-1)
	switch {
	case from.Kind == graph.Partial && to.Kind == graph.Replicated:
		return "all_reduce", cost{1, 2 * bytes, 0}, true
	case from.Kind == graph.Sharded && to.Kind == graph.Replicated:
		return "all_gather", cost{1, bytes, 0}, true
	case from.Kind == graph.Partial && isSplit(v, to):
		return "reduce_scatter", cost{1, bytes, 0}, true
	case from.Kind == graph.Replicated && isSplit(v, to):
		return "shard", cost{}, true
	case from.Kind == graph.Replicated && to.Kind == graph.Partial:
		return "term", cost{}, true
	}
	return "", cost{}, false
}

// isSplit reports whether the layout is what shard and reduce_scatter give.
func isSplit(v *graph.Value, l graph.Layout) bool {
	return l.Kind == graph.Sharded && l.Equal(graph.SplitOn(l.Axis, len(v.Type.Dims[l.Axis].Fields)))
}

// mostBytes is the size of the largest share of a parameter.
func mostBytes(v *graph.Value, l graph.Layout, ranks int) int64 {
	t := v.Type
	t.Layout = l
	var most int64
	for r := range ranks {
		most = max(most, t.Local(ranks, r).Bytes().At(graph.Sizes{}))
	}
	return most
}

func layoutText(v *graph.Value, l graph.Layout) string {
	if l.Kind == graph.Replicated {
		return "whole"
	}
	t := v.Type
	t.Layout = l
	return t.LayoutString()
}

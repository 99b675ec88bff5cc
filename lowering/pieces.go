package lowering

import (
	"cmp"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// PieceTokens is how many tokens a piece has at most, by default. Weights
// are read again for each piece: that is little beside the products of 512 tokens.
const PieceTokens = 512

// A value gathered along tokens and used row by row need not exist as a whole, nor a
// partial sum that is scattered along them. The gather, what reads it, and so on up to
// values that others want, are a loop ([Step.Loop]): they run for a piece of the batch's
// tokens, and then for the next. What only a loop sees has room for a piece.

// looper finds the loops of a graph.
type looper struct {
	g     *graph.Graph
	at    map[*graph.Node]int  // when it is lowered; all of a loop at the same time
	loop  map[*graph.Node]int  // counted from 1
	users [][]*graph.Node      // by value id
	kept  map[*graph.Node]bool // fields of what only a loop sees that others need: copied
	out   []bool               // by value id: it is an output
	nodes [][]*graph.Node      // of each loop
}

func newLooper(g *graph.Graph) *looper {
	l := &looper{g: g, at: map[*graph.Node]int{}, loop: map[*graph.Node]int{}, kept: map[*graph.Node]bool{}, users: make([][]*graph.Node, g.Len()), out: make([]bool, g.Len())}
	for i, n := range g.Nodes {
		l.at[n] = i
		for _, v := range n.Args {
			l.users[v.ID] = append(l.users[v.ID], n)
		}
	}
	for _, o := range g.Outputs {
		l.out[o.Value.ID] = true
	}
	return l
}

// find finds them: those that begin with a gather, which may go on to a scatter, and then
// what comes before the scatters that are left.
func (l *looper) find() {
	for _, n := range l.g.Nodes {
		if l.loop[n] == 0 && alongTokens(n, graph.Sharded, graph.Replicated) {
			l.add(l.after(n))
		}
	}
	for _, n := range l.g.Nodes {
		if l.loop[n] == 0 && alongTokens(n, graph.Partial, graph.Sharded) {
			l.add(l.before(n))
		}
	}
	for _, n := range l.g.Nodes {
		if l.loop[n] == 0 && len(l.nodes) > 0 && n.Op.From == graph.Partial && n.Op.To == graph.Replicated {
			l.add(l.around(n))
		}
	}
}

// alongTokens reports whether a node is the collective between two layouts of which the
// sharded one has rows of tokens.
func alongTokens(n *graph.Node, from, to graph.LayoutKind) bool {
	if n.Op.Class != graph.Collective || n.Op.From != from || n.Op.To != to {
		return false
	}
	t := n.Results[0].Type
	if from == graph.Sharded {
		t = n.Args[0].Type
	}
	return t.Layout.ByBatch() && t.Dims[0].Sym == graph.Tokens
}

// byToken reports whether a rank has a row of the value for each token.
func byToken(t graph.Type) bool {
	return len(t.Dims) > 0 && t.Dims[0].Sym == graph.Tokens && !t.Layout.ByBatch()
}

// rowWise reports whether a node may be in a loop, beside gathers: it makes rows of the same rows.
func rowWise(n *graph.Node) bool {
	switch n.Op.Class {
	case graph.View:
		return byToken(n.Args[0].Type) && n.Attrs.Int("axis") > 0
	case graph.Compute:
		ok := n.Op.RowWise()
		for _, v := range n.Results {
			ok = ok && byToken(v.Type)
		}
		for _, v := range n.Args {
			ok = ok && !v.Type.Layout.ByBatch()
		}
		return ok
	}
	return alongTokens(n, graph.Partial, graph.Sharded)
}

// after is a gather and the nodes that use it row by row, or nil if a node needs all of its rows.
func (l *looper) after(gather *graph.Node) []*graph.Node {
	return l.grow([]*graph.Node{gather}, setOf(gather), 0)
}

// grow adds to nodes, from one on, what goes on with their results; nil if it cannot be
// done with those of a gather.
func (l *looper) grow(list []*graph.Node, in map[*graph.Node]bool, next int) []*graph.Node {
	for ; next < len(list); next++ {
		for _, v := range list[next].Results {
			more, ok := l.going(v, in)
			if !ok && list[next].Op.From == graph.Sharded {
				return nil
			}
			for _, n := range more {
				if !in[n] {
					in[n] = true
					list = append(list, n)
				}
			}
		}
	}
	return list
}

// around is a sum of packed rows, what makes its summands, and what goes on with some of
// its fields; the others are copied. Nil if all fields are needed as a whole.
func (l *looper) around(sum *graph.Node) []*graph.Node {
	list := l.before(sum)
	if len(list) < 2 || len(sum.Results) != 1 {
		return nil
	}
	in, v := setOf(list...), sum.Results[0]
	if users := l.users[v.ID]; len(users) == 1 && len(users[0].Args) == 1 && rowWise(users[0]) { // in f32 again
		in[users[0]] = true
		list, v = append(list, users[0]), users[0].Results[0]
	}
	if l.out[v.ID] {
		return nil
	}
	var kept []*graph.Node
	for _, n := range l.users[v.ID] {
		if n.Op.Class != graph.View || !rowWise(n) || l.loop[n] != 0 {
			return nil
		}
		in[n] = true
		if list = append(list, n); l.grows(n, in) {
			list = l.grow(list, in, len(list)-1)
		} else {
			kept = append(kept, n)
		}
	}
	if len(kept) == len(l.users[v.ID]) {
		return nil
	}
	for _, n := range kept {
		l.kept[n] = true
	}
	return list
}

// grows reports whether a node's results go on in its loop.
func (l *looper) grows(n *graph.Node, in map[*graph.Node]bool) bool {
	return !slices.ContainsFunc(n.Results, func(v *graph.Value) bool {
		_, ok := l.going(v, in)
		return !ok
	})
}

// going is who uses a value of a loop, and the gathers that they use beside it, if all may
// go on in the loop. Those that do not use a gather itself do so only with nothing
// from outside, which would live until the loop ends.
func (l *looper) going(v *graph.Value, in map[*graph.Node]bool) (list []*graph.Node, ok bool) {
	if l.out[v.ID] || !byToken(v.Type) {
		return nil, false
	}
	for _, n := range l.users[v.ID] {
		if !rowWise(n) || l.loop[n] != 0 {
			return nil, false
		}
		list = append(list, n)
		for _, w := range n.Args {
			switch {
			case in[w.Def] || !byToken(w.Type):
			case alongTokens(w.Def, graph.Sharded, graph.Replicated) && l.loop[w.Def] == 0:
				list = append(list, w.Def)
			case v.Def.Op.From != graph.Sharded:
				return nil, false
			}
		}
	}
	return list, true
}

// before is a scatter and what makes its summands, up to what could lie in place: that
// takes nothing. It is nil if the summands are needed otherwise.
func (l *looper) before(scatter *graph.Node) []*graph.Node {
	list := []*graph.Node{scatter}
	for next := 0; next < len(list); next++ {
		for _, v := range list[next].Args {
			n := v.Def
			if byToken(v.Type) && n.Op.Class == graph.Compute && rowWise(n) && l.loop[n] == 0 && !slices.Contains(list, n) &&
				(next == 0 || n.Op.InPlace == nil) && l.within(n, list) {
				list = append(list, n)
			}
		}
	}
	return list
}

// within reports whether only these use what a node gives.
func (l *looper) within(n *graph.Node, list []*graph.Node) bool {
	for _, v := range n.Results {
		if l.out[v.ID] || slices.ContainsFunc(l.users[v.ID], func(u *graph.Node) bool { return !slices.Contains(list, u) }) {
			return false
		}
	}
	return true
}

// add makes nodes a loop, when its last gather or its scatter is lowered, if all that
// they need is there then, and no node needs their results before.
func (l *looper) add(nodes []*graph.Node) {
	if len(nodes) < 2 {
		return
	}
	when := 0
	for _, n := range nodes {
		if n.Op.From == graph.Sharded {
			when = max(when, l.at[n])
		}
	}
	if when == 0 {
		when = l.at[nodes[0]]
	}
	in := setOf(nodes...)
	for _, n := range nodes {
		if slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return !in[v.Def] && !l.there(v, when) }) {
			return
		}
		for _, v := range n.Results {
			if slices.ContainsFunc(l.users[v.ID], func(u *graph.Node) bool { return !in[u] && l.at[u] <= when }) {
				return
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *graph.Node) int { return cmp.Compare(l.at[a], l.at[b]) })
	l.nodes = append(l.nodes, nodes)
	for _, n := range nodes {
		l.at[n], l.loop[n] = when, len(l.nodes)
	}
}

func setOf(nodes ...*graph.Node) map[*graph.Node]bool {
	set := map[*graph.Node]bool{}
	for _, n := range nodes {
		set[n] = true
	}
	return set
}

// there reports whether a value is there at some time, or can be: parameters, and what
// depends on them alone.
func (l *looper) there(v *graph.Value, when int) bool {
	if l.at[v.Def] < when || v.Def.Op.Class == graph.Leaf {
		return true
	}
	view := v.Def.Op.Class == graph.View
	return (view || v.Def.Op.Class == graph.Compute && !byToken(v.Type)) && l.loop[v.Def] == 0 &&
		!slices.ContainsFunc(v.Def.Args, func(w *graph.Value) bool { return !l.there(w, when) })
}

// order is the nodes as they are lowered: as the graph has them, but for loops, which
// stay together, and what these need.
func (l *looper) order() []*graph.Node {
	var out []*graph.Node
	done := map[*graph.Node]bool{}
	var emit func(n *graph.Node)
	emit = func(n *graph.Node) {
		if done[n] {
			return
		}
		done[n] = true
		for _, v := range n.Args {
			emit(v.Def)
		}
		out = append(out, n)
	}
	for i, n := range l.g.Nodes {
		k := l.loop[n]
		if k == 0 {
			emit(n)
			continue
		}
		if l.at[n] != i {
			continue
		}
		nodes := l.nodes[k-1]
		for _, m := range nodes {
			for _, v := range m.Args {
				if l.loop[v.Def] != k {
					emit(v.Def)
				}
			}
		}
		for _, m := range nodes {
			done[m] = true
		}
		out = append(out, nodes...)
	}
	return out
}

// inside reports whether only nodes of its loop use a value, as it is or a field of it.
func (l *looper) inside(v *graph.Value) bool {
	k := l.loop[v.Def]
	return k != 0 && !l.out[v.ID] && !slices.ContainsFunc(l.users[v.ID], func(n *graph.Node) bool {
		return l.loop[n] != k || n.Op.Class == graph.View && !l.kept[n] && !l.inside(n.Results[0])
	})
}

// apart reports whether a section has every loop whole, or nothing of it.
func (l *looper) apart(c *section) bool {
	return !slices.ContainsFunc(l.nodes, func(nodes []*graph.Node) bool {
		return slices.ContainsFunc(nodes, func(n *graph.Node) bool { return c.has(n) != c.has(nodes[0]) })
	})
}

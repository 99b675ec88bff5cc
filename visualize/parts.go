package visualize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// partLabel returns the label of a box of several nodes.
func (s *sheet) partLabel(b box) {
	first := b.nodes[0]
	var l label
	l.line(strings.TrimPrefix(s.part(first), first.Block()+"."), "", textSize, true)
	s.sum(&l, b.nodes)
	if s.detail == Blocks {
		for _, v := range s.leaving(b) {
			s.typeLine(&l, short(v.Name, first), v, noteSize)
		}
	}
	c := s.partFill(b.nodes)
	b.Attr("label", l.html()).Attr("fillcolor", c.fill).Attr("color", c.line)
}

// sum summarizes operations and cost of nodes.
func (d *drawing) sum(l *label, nodes []*graph.Node) {
	for _, line := range wrapped(tally(nodes), 44) {
		l.line(line, "", noteSize, false)
	}
	for _, line := range carried(nodes) {
		l.line(line, colourOf("collective").line, noteSize, true)
	}
	for _, line := range d.taken(nodes) {
		l.line(line, grey, noteSize, false)
	}
}

// summary is the label of a block.
func (d *drawing) summary(nodes []*graph.Node) *label {
	var l label
	d.sum(&l, nodes)
	return &l
}

// tally writes counts of operations: matmul ×3, silu.
func tally(nodes []*graph.Node) string {
	var names []string
	for _, n := range nodes {
		if n.Op.Class == graph.Compute {
			names = append(names, n.Op.Name)
		}
	}
	return counted(names)
}

func counted(names []string) string {
	count := map[string]int{}
	var order []string
	for _, n := range names {
		if count[n]++; count[n] == 1 {
			order = append(order, n)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return rank(a) - rank(b) })
	for i, n := range order {
		if count[n] > 1 {
			order[i] = fmt.Sprintf("%s\u00a0×%d", n, count[n])
		}
	}
	return strings.Join(order, ", ")
}

// rank sorts operations: those that mix tokens first, then products.
func rank(op string) int {
	return slices.Index([]string{"mix", "multiply", "other"}, Work(op))
}

// exchangeOf names a collective, and the axis of a mesh that it is along.
func exchangeOf(n *graph.Node) string {
	return strings.TrimSpace(n.Op.Name + " " + n.Attrs.Text("along"))
}

// carried returns collectives with their payloads.
func carried(nodes []*graph.Node) []string {
	var out []string
	for _, n := range nodes {
		if n.Op.Class == graph.Collective {
			out = append(out, fmt.Sprintf("%s %s: %s bytes", exchangeOf(n), short(n.Args[0].Name, n), payload(n)))
		}
	}
	return out
}

// taken returns the bytes of weights and states on a rank.
func (d *drawing) taken(nodes []*graph.Node) []string {
	var weights int64
	var states graph.Poly
	seen := map[*graph.Value]bool{}
	for _, n := range nodes {
		for _, v := range n.Args {
			if seen[v] {
				continue
			}
			seen[v] = true
			local := d.g.Local(v.Type, 0).Bytes()
			switch v.Def.Op.Name {
			case "param":
				weights += local.At(graph.Sizes{})
			case "state":
				states = states.Plus(local)
			}
		}
	}
	where := ""
	if d.g.Ranks > 1 {
		where = " a rank"
	}
	var out []string
	if weights > 0 {
		out = append(out, "weights "+bytesText(weights)+where)
	}
	if len(states) > 0 {
		out = append(out, "states "+states.String()+" bytes"+where)
	}
	return out
}

func bytesText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprint(n, " bytes")
}

// leaving returns the values that other nodes use.
func (s *sheet) leaving(b box) []*graph.Value {
	inside := map[*graph.Node]bool{}
	for _, n := range b.nodes {
		inside[n] = true
	}
	var out []*graph.Value
	for _, n := range b.nodes {
		for _, v := range n.Results {
			if slices.ContainsFunc(s.users[v], func(u *graph.Node) bool { return !inside[u] }) {
				out = append(out, v)
			}
		}
	}
	return out
}

// partFill returns the colour of a box: split before partial; on one rank, mixing tokens first.
func (s *sheet) partFill(nodes []*graph.Node) colour {
	weight := func(n *graph.Node) int {
		if s.g.Ranks == 1 {
			return -rank(n.Op.Name)
		}
		return slices.Index([]graph.LayoutKind{graph.Replicated, graph.Partial, graph.Sharded}, n.Results[0].Type.Layout.Kind)
	}
	return s.fill(slices.MaxFunc(nodes, func(a, b *graph.Node) int { return weight(a) - weight(b) }))
}

package graph_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/graphgen"
)

// TestRulesByElements holds what rules say of layouts against a count of elements. It reads a rule
// as the sum over all its letters, goes through every point of their ranges, and asks who holds the
// elements that meet there: a rank must have all that a result of its own is made of, and of a
// partial sum every point must be with one rank. It shares no code with derive or Extents.
func TestRulesByElements(t *testing.T) {
	graphs, least := 200, 11
	switch {
	case goldens.All():
		graphs, least = 500, 29
	case goldens.Few(t):
		graphs, least = 70, 2
	}
	accepted := map[string]int{}
	for seed := range uint64(graphs) {
		r := rand.New(rand.NewPCG(seed, 7))
		nodes := graphgen.Source(seed, graphgen.Options{}).Nodes
		nodes = append(nodes, graphgen.Source(seed, graphgen.Options{Ops: seldom(), Nodes: 3}).Nodes...)
		for _, n := range nodes {
			if n.Op.Class != graph.Compute || n.Op.Rule == nil {
				continue
			}
			e, layouts := newElements(n), graph.LayoutsFor(n)
			for range 12 {
				ranks := 2 + r.IntN(7)
				in := drawLayouts(r, n, ranks)
				out, err := layouts(in, ranks)
				if err != nil {
					continue
				}
				accepted[n.Op.Name]++
				if err := e.check(in, out, ranks); err != nil {
					t.Fatalf("seed %d: %s over %d ranks\noperands %s\nresults %s\n%v", seed, describe(n), ranks, texts(n.Args, in), texts(n.Results, out), err)
				}
			}
		}
	}
	for _, op := range graph.Ops() {
		if op.Class == graph.Compute && op.Rule != nil && !op.Parts && accepted[op.Name] < least && !strings.HasSuffix(op.Name, "quantize") {
			t.Errorf("%s: only %d layouts were accepted", op.Name, accepted[op.Name])
		}
	}
}

// seldom are the operations that no source has (see graph.Op), and those that take few of the
// layouts that are drawn.
func seldom() []string {
	names := []string{"ssd_scan", "delta_scan", "scan_output", "selective_scan_normed", "experts"}
	for _, op := range graph.Ops() {
		if op.Launches {
			names = append(names, op.Name)
		}
	}
	return names
}

func describe(n *graph.Node) string {
	text := n.Op.Name + fmt.Sprint(n.Attrs)
	for _, v := range n.Args {
		text += " " + v.Type.String()
	}
	return text
}

func texts(values []*graph.Value, layouts []graph.Layout) string {
	text := ""
	for i, v := range values {
		t := v.Type
		t.Layout = layouts[i]
		text += ", " + t.String()
	}
	return text[2:]
}

// drawLayouts shards an axis of one operand, and mostly those of others that are
// as long; sometimes operands are partial sums.
func drawLayouts(r *rand.Rand, n *graph.Node, ranks int) []graph.Layout {
	out := make([]graph.Layout, len(n.Args))
	first := n.Args[r.IntN(len(n.Args))].Type
	axis := r.IntN(len(first.Dims))
	rows := []graph.PlaceKind{graph.Whole, graph.Whole, graph.Whole, graph.Whole, graph.Even, graph.BySequence}[r.IntN(6)]
	if rows != graph.Whole {
		axis = 0
	}
	for i, v := range n.Args {
		switch kind := r.IntN(10); {
		case kind == 0 && v.Type.DType.Float():
			out[i] = graph.Layout{Kind: graph.Partial}
			continue
		case kind == 1:
			continue
		}
		for j, d := range v.Type.Dims {
			if d.Sym != 0 && j == 0 && rows != graph.Whole && out[i].Kind == graph.Replicated && r.IntN(8) > 0 {
				out[i] = graph.SplitRows(rows)
			}
			related := d.Len() > 0 && first.Dims[axis].Len() > 0 && (d.Len()%first.Dims[axis].Len() == 0 || first.Dims[axis].Len()%d.Len() == 0)
			if d.Sym == 0 && d.Len() > 0 && related && out[i].Kind == graph.Replicated && r.IntN(8) > 0 {
				out[i] = drawPlaces(r, j, d, ranks)
			}
		}
	}
	if r.IntN(6) == 0 && len(n.Op.Linear) > 0 { // a linear group
		for i := range out {
			out[i] = graph.Layout{}
		}
		for _, i := range n.Op.Linear[r.IntN(len(n.Op.Linear))] {
			out[i] = graph.Layout{Kind: graph.Partial}
		}
	}
	return out
}

func drawPlaces(r *rand.Rand, axis int, d graph.Dim, ranks int) graph.Layout {
	l := graph.Layout{Kind: graph.Sharded, Axis: axis}
	for _, f := range d.Fields {
		p := graph.Placement{Kind: graph.Split}
		switch r.IntN(8) {
		case 0:
			p = graph.Placement{}
		case 1, 2:
			if f.Units() > 0 {
				p = graph.Placement{Kind: graph.Cover, Of: f.Units() * (1 + r.IntN(4))}
			}
		}
		l.Place = append(l.Place, p)
	}
	return l
}

// elements is a node as a sum over the points of its letters.
type elements struct {
	n       *graph.Node
	in, out [][]string // letters of each axis
	free    []string   // of each result: its letters that may be cut, the rest of what it is made of all meets
	letters []byte
	size    map[byte]int
}

// point is a value for each letter.
type point [128]int

func newElements(n *graph.Node) *elements {
	e := &elements{n: n, size: map[byte]int{}}
	text := n.Op.Rule.String()
	if strings.Contains(text, "*") {
		text = strings.ReplaceAll(text, "*", "a b c d"[:2*len(n.Args[0].Type.Dims)-1])
	}
	left, right, _ := strings.Cut(strings.ReplaceAll(text, "!", ""), "->")
	e.in, e.out = lists(left), lists(right)
	for _, axes := range e.out {
		free := ""
		for _, c := range strings.Join(axes, "") {
			if !strings.Contains(text, string(c)+"!") {
				free += string(c)
			}
		}
		e.free = append(e.free, free)
	}
	e.sizes()
	for c := range e.size {
		e.letters = append(e.letters, c)
	}
	slices.Sort(e.letters)
	return e
}

// lists reads "t (g q), g n" as the letters of each axis of each operand.
func lists(text string) (out [][]string) {
	for list := range strings.SplitSeq(text, ",") {
		var axes []string
		open := false
		for _, c := range strings.ReplaceAll(list, " ", "") {
			switch {
			case c == '(':
				open = true
				axes = append(axes, "")
			case c == ')':
				open = false
			case open:
				axes[len(axes)-1] += string(c)
			default:
				axes = append(axes, string(c))
			}
		}
		out = append(out, axes)
	}
	return out
}

// sizes finds the letters' sizes; symbols are 2.
func (e *elements) sizes() {
	for c, name := range e.n.Op.Sizes {
		e.size[c] = e.n.Attrs.Int(name)
	}
	for range 8 {
		for i, axes := range e.in {
			for j, letters := range axes {
				e.solve(letters, e.n.Args[i].Type.Dims[j])
			}
		}
	}
	for i, axes := range e.in { // what is open still: heads are units
		for j, letters := range axes {
			if d := e.n.Args[i].Type.Dims[j]; e.size[letters[len(letters)-1]] == 0 && d.Len() > 0 {
				e.size[letters[len(letters)-1]] = d.Fields[0].Grain()
			}
			for k, more := range e.in {
				for l, letters := range more {
					e.solve(letters, e.n.Args[k].Type.Dims[l])
				}
			}
		}
	}
}

func (e *elements) solve(letters string, d graph.Dim) {
	n, open := 1, byte(0)
	for i := range len(letters) {
		if s, ok := e.size[letters[i]]; ok {
			n *= s
		} else if open != 0 {
			return
		} else {
			open = letters[i]
		}
	}
	switch {
	case open == 0:
	case d.Sym != 0:
		e.size[open] = 2
	case n > 0:
		e.size[open] = d.Len() / n
	}
}

// check goes through all points.
func (e *elements) check(in, out []graph.Layout, ranks int) error {
	partial := slices.ContainsFunc(in, func(l graph.Layout) bool { return l.Kind == graph.Partial })
	for i, l := range out {
		if partial && l.Kind != graph.Partial {
			return fmt.Errorf("result %d of partial sums is none", i)
		}
	}
	lacks := make([][]bool, len(out)) // of each result, by free letters and rank: some point is not there
	for i := range out {
		lacks[i] = make([]bool, e.number(i, nil)*ranks)
	}
	var err error
	e.each(func(p *point) {
		for i, l := range out {
			count := 0
			for r := range ranks {
				if e.holds(i, in, p, ranks, r) {
					count++
				} else {
					lacks[i][e.number(i, p)*ranks+r] = true
				}
			}
			if l.Kind == graph.Partial && !partial && count != 1 || partial && count != ranks {
				err = fmt.Errorf("result %d is partial and %d ranks have all that meets at %s", i, count, e.text(p))
			}
		}
	})
	if err != nil {
		return err
	}
	e.each(func(p *point) {
		for i, l := range out {
			for r := range ranks {
				if l.Kind != graph.Partial && holds(e.n.Results[i].Type, l, e.index(e.out[i], l, p), ranks, r) && lacks[i][e.number(i, p)*ranks+r] {
					err = fmt.Errorf("rank %d is to have result %d at %s and lacks what it is made of", r, i, e.text(p))
				}
			}
		}
	})
	return err
}

// number counts the free letters of result i at a point, or all points of them.
func (e *elements) number(i int, p *point) int {
	all, at := 1, 0
	for _, c := range []byte(e.free[i]) {
		all *= e.size[c]
		if p != nil {
			at = at*e.size[c] + p[c]
		}
	}
	if p == nil {
		return all
	}
	return at
}

func (e *elements) text(p *point) string {
	text := ""
	for _, c := range e.letters {
		text += fmt.Sprintf(" %c=%d", c, p[c])
	}
	return text[1:]
}

// each visits every point.
func (e *elements) each(visit func(p *point)) {
	var p point
	var rest func(i int)
	rest = func(i int) {
		if i == len(e.letters) {
			visit(&p)
			return
		}
		for v := range e.size[e.letters[i]] {
			p[e.letters[i]] = v
			rest(i + 1)
		}
	}
	rest(0)
}

// holds reports whether a rank has at a point the elements of all operands that
// result i is made of; a partial sum all have. A cache takes no queries.
func (e *elements) holds(i int, in []graph.Layout, p *point, ranks, rank int) bool {
	state := slices.ContainsFunc(e.n.Op.States, func(s graph.StatePair) bool { return s.Result == i })
	for j, v := range e.n.Args {
		query := state && strings.Contains(strings.Join(e.in[j], ""), "q") && !strings.Contains(strings.Join(e.out[i], ""), "q")
		if in[j].Kind == graph.Sharded && !query && !holds(v.Type, in[j], e.index(e.in[j], in[j], p), ranks, rank) {
			return false
		}
	}
	return true
}

// index is the element of the sharded axis at a point.
func (e *elements) index(axes []string, l graph.Layout, p *point) (at int) {
	if l.Kind == graph.Sharded {
		for _, c := range []byte(axes[l.Axis]) {
			at = at*e.size[c] + p[c]
		}
	}
	return at
}

// holds says whether a rank has an element of a value, unit by unit.
func holds(t graph.Type, l graph.Layout, x, ranks, rank int) bool {
	if l.Kind != graph.Sharded {
		return true
	}
	if t.Dims[l.Axis].Sym != 0 { // two rows, and two sequences of one
		return owner(x, 2, ranks) == rank
	}
	for i, f := range t.Dims[l.Axis].Fields {
		if x >= f.Size {
			x -= f.Size
			continue
		}
		unit := x / f.Grain()
		switch p := l.Place[i]; p.Kind {
		case graph.Split:
			return owner(unit, f.Units(), ranks) == rank
		case graph.Cover:
			for u := range p.Of {
				if u*f.Units()/p.Of == unit && owner(u, p.Of, ranks) == rank {
					return true
				}
			}
			return false
		}
		return true
	}
	panic("BUG: an element outside of its axis")
}

// owner is the first rank whose share, with those before it, goes beyond a unit.
func owner(unit, units, ranks int) int {
	for r := range ranks {
		if (r+1)*units/ranks > unit {
			return r
		}
	}
	panic("BUG: a unit without an owner")
}

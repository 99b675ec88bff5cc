package prove

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// matching says which value of the source each value of a graph is.
type matching map[*graph.Value]*graph.Value

// compare checks that g computes the source: each node of the source once, from operands that are
// the source's up to collectives and relayouts. Nodes are found by what they compute, so neither
// their names nor their order matter, but for the block in a name.
func compare(source, g *graph.Graph) (matching, error) {
	c := &comparison{m: matching{}, byText: map[string][]*graph.Node{}, done: map[*graph.Node]*graph.Node{}}
	self := matching{}
	for _, n := range source.Nodes {
		for _, v := range n.Results {
			self[v] = v
		}
		key := nodeKey(n, self)
		c.byText[key] = append(c.byText[key], n)
	}
	for _, n := range g.Nodes {
		c.node(source, n)
	}
	for _, n := range source.Nodes {
		if c.done[n] == nil {
			c.fail("%s: the source computes it by %s; the partitioned graph does not compute it", n.Name(), n.Op.Name)
		}
	}
	c.outputs(source, g)
	return c.m, errors.Join(c.errs...)
}

type comparison struct {
	m      matching
	byText map[string][]*graph.Node    // nodes of the source by what they compute
	done   map[*graph.Node]*graph.Node // of a node of the source: the first that computes it
	errs   []error
}

func (c *comparison) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// nodeKey writes what a node computes, in terms of source values.
func nodeKey(n *graph.Node, m matching) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v%s", n.Op.Name, n.Attrs, storage(n))
	if n.Op.Class == graph.Leaf {
		b.WriteString(" " + n.Name())
	}
	for _, v := range n.Args {
		if s := m[v]; s != nil {
			b.WriteString(" " + s.Name)
		} else {
			b.WriteString(" ?")
		}
	}
	for _, v := range n.Results {
		b.WriteString(" : " + bare(v.Type).String())
	}
	return b.String()
}

// storage is where a leaf is from: the checkpoint, or a state of the model.
func storage(n *graph.Node) string {
	switch {
	case n.Part != nil:
		return n.Part.String()
	case n.Storage != nil:
		return n.Storage.String()
	}
	return ""
}

// bare is a type without its layout.
func bare(t graph.Type) graph.Type { return graph.TypeOf(t.DType, t.Dims...) }

func (c *comparison) node(source *graph.Graph, n *graph.Node) {
	if transparent(n) {
		c.pass(n)
		return
	}
	same := c.byText[nodeKey(n, c.m)]
	s := pick(same, n.Name(), c.done)
	if s == nil {
		c.errs = append(c.errs, c.explain(source, n, same))
		// Go on as if it were right, so that one fault is one error.
		if v, ok := source.Value(n.Name()); ok {
			s = v.Def
		} else if len(same) > 0 {
			s = same[0]
		}
	}
	if s == nil {
		return
	}
	c.done[s] = cmp.Or(c.done[s], n)
	if s.Block() != n.Block() {
		c.fail("%s: is %s; the source has it %s as %s, and collectives are counted by block: give it a name of that block", n.Name(), place(n), place(s), s.Name())
	}
	for i, v := range n.Results {
		if i < len(s.Results) {
			c.m[v] = s.Results[i]
		}
	}
}

// pass follows what a transparent node passes on, by position; further results
// (the scales of a quantized value) belong to the first operand.
func (c *comparison) pass(n *graph.Node) {
	for i, v := range n.Results {
		s := c.m[n.Args[min(i, len(n.Args)-1)]]
		c.m[v] = s
		if s != nil && !rounds(n) && n.Op.Class == graph.Relayout && !bare(v.Type).Equal(bare(s.Type)) {
			c.fail("%s: %s gives %s; the source has %s", v.Name, n.Op.Name, bare(v.Type), s.Type)
		}
	}
}

// pick chooses among nodes that compute the same: the one of that name, or the
// first that was not found yet.
func pick(same []*graph.Node, name string, done map[*graph.Node]*graph.Node) *graph.Node {
	var first *graph.Node
	for _, s := range same {
		switch {
		case done[s] != nil:
		case s.Name() == name:
			return s
		case first == nil:
			first = s
		}
	}
	return first
}

// explain says in what a node that the source does not have differs from it.
func (c *comparison) explain(source *graph.Graph, n *graph.Node, same []*graph.Node) error {
	if len(same) > 0 {
		return fmt.Errorf("%s: computes %s of the source a second time, after %s; use the first", n.Name(), same[0].Name(), c.done[same[0]].Name())
	}
	v, ok := source.Value(n.Name())
	if !ok {
		return fmt.Errorf("%s: the source has no such %s; only collectives and relayouts may be added", n.Name(), n.Op.Name)
	}
	s := v.Def
	switch {
	case s.Op.Name != n.Op.Name:
		return fmt.Errorf("%s: is computed by %s; the source has %s", n.Name(), n.Op.Name, s.Op.Name)
	case len(s.Args) != len(n.Args):
		return fmt.Errorf("%s: %s has %d operands; in the source %d", n.Name(), n.Op.Name, len(n.Args), len(s.Args))
	case storage(s) != storage(n):
		return fmt.Errorf("%s: is read%s; in the source%s", n.Name(), storage(n), storage(s))
	case fmt.Sprint(s.Attrs) != fmt.Sprint(n.Attrs):
		return fmt.Errorf("%s: %s has %s; in the source %s", n.Name(), n.Op.Name, attributes(n), attributes(s))
	}
	for i, v := range n.Args {
		if got := c.m[v]; got != s.Args[i] {
			return fmt.Errorf("%s: %s: operand %d is %s; in the source it is %s", n.Name(), n.Op.Name, i, c.meaning(v), s.Args[i].Name)
		}
	}
	for i, v := range n.Results {
		if t := s.Results[i].Type; !bare(v.Type).Equal(t) {
			return fmt.Errorf("%s: is %s; in the source it is %s", v.Name, bare(v.Type), t)
		}
	}
	return fmt.Errorf("%s: differs from the source", n.Name())
}

// place says in which block a node is.
func place(n *graph.Node) string {
	if n.Block() == "" {
		return "outside of blocks"
	}
	return "in " + n.Block()
}

// meaning is the name of a value, and which value of the source it is if not that of its name.
func (c *comparison) meaning(v *graph.Value) string {
	s, of := c.m[v], v
	for transparent(of.Def) {
		of = passed(of)
	}
	switch {
	case s == nil:
		return v.Name + ", which the source does not have"
	case s.Name == v.Name || s.Name == of.Name:
		return v.Name
	}
	return fmt.Sprintf("%s, which computes %s of the source", v.Name, s.Name)
}

// attributes writes those of a node that are not at their defaults.
func attributes(n *graph.Node) string {
	return cmp.Or(strings.TrimSpace(n.AttrText()), "no attributes")
}

func (c *comparison) outputs(source, g *graph.Graph) {
	for _, want := range source.Outputs {
		i := slices.IndexFunc(g.Outputs, func(o graph.Output) bool { return o.Name == want.Name })
		if i < 0 {
			c.fail("output %s: the partitioned graph does not have it", want.Name)
		} else if v := g.Outputs[i].Value; c.m[v] != want.Value {
			c.fail("output %s: is %s; in the source it is %s", want.Name, c.meaning(v), want.Value.Name)
		} else if !bare(v.Type).Equal(want.Value.Type) {
			c.fail("output %s: is %s; in the source it is %s", want.Name, bare(v.Type), want.Value.Type)
		}
	}
	if len(g.Outputs) > len(source.Outputs) {
		c.fail("%d outputs; the source has %d", len(g.Outputs), len(source.Outputs))
	}
}

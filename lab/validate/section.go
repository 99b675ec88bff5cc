package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// section is the part of both graphs that is run at a time: a block, or what is outside of blocks.
type section struct {
	block             string
	source, partition half
}

// half is a section in one of the graphs.
type half struct {
	nodes  []*graph.Node  // that compute, in order
	leaves []*graph.Value // that they take, wherever these are declared
	given  []*graph.Value // that other sections compute
}

// halfOf collects the section of a block; outside of blocks, a leaf may be an output as it is. A
// value of the section that a node of another block passes back to it is passed on here, too.
func halfOf(g *graph.Graph, block string) half {
	var h half
	returns := returning(g, block)
	seen := map[*graph.Value]bool{}
	take := func(v *graph.Value) {
		switch {
		case seen[v]:
		case v.Def.Op.Class == graph.Leaf:
			h.leaves = append(h.leaves, v)
		case v.Def.Block() != block && !returns[v.Def]:
			h.given = append(h.given, v)
		}
		seen[v] = true
	}
	for _, n := range g.Nodes {
		if n.Op.Class == graph.Leaf || n.Block() != block && !returns[n] {
			continue
		}
		h.nodes = append(h.nodes, n)
		for _, v := range n.Args {
			take(v)
		}
	}
	for _, o := range g.Outputs {
		if block == "" && o.Value.Def.Op.Class == graph.Leaf {
			take(o.Value)
		}
	}
	return h
}

// returning lists the transparent nodes of other blocks between two nodes of a block.
func returning(g *graph.Graph, block string) map[*graph.Node]bool {
	out := map[*graph.Node]bool{}
	for _, n := range g.Nodes {
		if n.Block() != block {
			continue
		}
		for _, v := range n.Args {
			var way []*graph.Node
			for from, ok := passedOn(v); ok && v.Def.Block() != block; from, ok = passedOn(v) {
				way = append(way, v.Def)
				v = from
			}
			if v.Def.Op.Class == graph.Leaf || v.Def.Block() != block {
				continue
			}
			for _, m := range way {
				out[m] = true
			}
		}
	}
	return out
}

// passedOn is the operand that a transparent node passed on as v; false where no such node made v.
func passedOn(v *graph.Value) (*graph.Value, bool) {
	n := v.Def
	i := slices.Index(n.Results, v)
	if !transparent(n) || i >= len(n.Args) {
		return nil, false
	}
	return n.Args[i], true
}

// results lists what a section computes, in order.
func (h *half) results() []*graph.Value {
	var out []*graph.Value
	for _, n := range h.nodes {
		out = append(out, n.Results...)
	}
	return out
}

// states lists the states that a section keeps.
func (h *half) states() []*graph.Value {
	var out []*graph.Value
	for _, v := range h.leaves {
		if v.Def.Op.Name == "state" {
			out = append(out, v)
		}
	}
	return out
}

// origin is what a value is in the source: a value, or a field of one that was taken apart.
type origin struct {
	value *graph.Value
	field string // empty: all of it
	axis  int
}

// typ is the type that the source gives it.
func (o origin) typ() graph.Type {
	if o.field == "" {
		return o.value.Type
	}
	return fieldType(o.value.Type, o.axis, o.field)
}

func (o origin) String() string {
	if o.field == "" {
		return o.value.Name
	}
	return o.value.Name + "." + o.field
}

// transparent nodes pass on what they take, in another layout or format.
func transparent(n *graph.Node) bool {
	return n.Op.Class == graph.Collective || n.Op.Class == graph.Relayout || n.Op.Name == "quantize" || n.Op.Name == "dequantize"
}

// originOf finds what a value of the partitioned graph is in the source: what has
// its name there, or what it was passed on from.
func originOf(source *graph.Graph, v *graph.Value) (origin, bool) {
	if s, ok := source.Value(v.Name); ok {
		return origin{value: s}, true
	}
	if o, ok := fieldNamed(source, v.Name); ok {
		return o, true
	}
	if from, ok := passedOn(v); ok {
		return originOf(source, from)
	}
	return origin{}, false
}

// same is the value that v is another name for: a field of values put side by side
// is the one that was put there, and need not be there by its own name.
func same(v *graph.Value) *graph.Value {
	if n := v.Def; n.Op.Name == "field" && n.Args[0].Def.Op.Name == "concat" {
		c := n.Args[0].Def
		if i := slices.Index(strings.Split(c.Attrs.Text("names"), "|"), n.Attrs.Text("name")); i >= 0 && n.Attrs.Int("axis") == len(v.Type.Dims)-1 {
			return same(c.Args[i])
		}
	}
	return v
}

// fieldNamed finds the value NAME of which NAME.FIELD is a field.
func fieldNamed(source *graph.Graph, name string) (origin, bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return origin{}, false
	}
	v, ok := source.Value(name[:i])
	if !ok {
		return origin{}, false
	}
	for axis, d := range v.Type.Dims {
		if _, _, _, ok := d.Field(name[i+1:]); ok && len(d.Fields) > 1 {
			return origin{v, name[i+1:], axis}, true
		}
	}
	return origin{}, false
}

// leaving says which values of a graph something outside of their section takes.
func leaving(g *graph.Graph) map[*graph.Value]bool {
	out := map[*graph.Value]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			if v.Def.Op.Class != graph.Leaf && v.Def.Block() != n.Block() {
				out[same(v)] = true
			}
		}
	}
	for _, o := range g.Outputs {
		out[same(o.Value)] = true
	}
	return out
}

// blocksOf lists the sections in order of appearance, "" for what is outside of blocks.
func blocksOf(g *graph.Graph) []string {
	var out []string
	seen := map[string]bool{}
	for _, n := range g.Nodes {
		if b := n.Block(); n.Op.Class != graph.Leaf && !seen[b] {
			seen[b] = true
			out = append(out, b)
		}
	}
	if !seen[""] && slices.ContainsFunc(g.Outputs, func(o graph.Output) bool { return o.Value.Def.Op.Class == graph.Leaf }) {
		out = append(out, "")
	}
	return out
}

// key is the text of both sides of a section. Sections with the same key are the same computation
// on other tensors: names are numbers in it, and a value of the partitioned graph has that of the
// value of the source which it will be compared with.
func (r *runner) key(s *section) string {
	k := &keyWriter{runner: r, numbers: map[string]int{}, given: map[*graph.Value]bool{}}
	for _, v := range slices.Concat(s.source.given, s.partition.given) {
		k.given[v] = true
	}
	for _, h := range []*half{&s.source, &s.partition} {
		for _, n := range h.nodes {
			k.node(n)
		}
		for _, v := range h.leaves {
			k.leaf(v)
		}
	}
	return k.String()
}

type keyWriter struct {
	strings.Builder
	*runner
	numbers map[string]int
	given   map[*graph.Value]bool
}

func (k *keyWriter) number(kind, name string) string {
	id, ok := k.numbers[kind+name]
	if !ok {
		id = len(k.numbers)
		k.numbers[kind+name] = id
	}
	return fmt.Sprint(kind, id)
}

// ref is the number of a value. Inputs keep their names, since their contents
// depend on what they are for.
func (k *keyWriter) ref(v *graph.Value) string {
	switch v.Def.Op.Name {
	case "input":
		return "input " + v.Name
	case "param":
		return k.number("param", v.Name)
	}
	o, ok := k.origin(v)
	if !ok {
		return k.number("own", v.Name)
	}
	if k.given[v] {
		return k.number("value", o.value.Name) + "." + o.field + " as " + v.Type.String()
	}
	if o.value.Name != v.Name && o.field == "" { // passed on
		return k.number("passed", v.Name) + k.number("value", o.value.Name)
	}
	return k.number("value", o.value.Name) + "." + o.field
}

func (k *keyWriter) node(n *graph.Node) {
	fmt.Fprintf(k, "%s %v", n.Op.Name, n.Attrs)
	for _, v := range n.Args {
		k.WriteString(" " + k.ref(v))
	}
	for _, v := range n.Results {
		fmt.Fprintf(k, " %s : %s %v", k.ref(v), v.Type, k.leaves[v])
	}
	k.WriteByte('\n')
}

func (k *keyWriter) leaf(v *graph.Value) {
	fmt.Fprintf(k, "%s %s %s", v.Def.Op.Name, k.ref(v), v.Type)
	if v.Def.Op.Name == "param" {
		s := v.Def.Storage
		if s == nil {
			s = graph.Stored(v.Name)
		}
		for _, p := range s.Pieces {
			fmt.Fprintf(k, " %s %v", k.number("tensor", p.Tensor), []int{p.Start, p.Step, p.Count})
		}
		fmt.Fprintf(k, " %v %v %v", s.Shape, s.Perm, v.Def.Storage == nil)
	}
	k.WriteByte('\n')
}

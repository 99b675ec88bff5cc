package graphgen

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Partition draws a way to run a source on ranks: placements of its leaves, and
// collectives and relayouts wherever rules take what they give. Few are good, and
// all that check should be right. It is nil where none was found.
func Partition(seed uint64, source *graph.Graph, ranks int) *graph.Graph {
	p := &partition{Rand: rand.New(rand.NewPCG(seed, 3)), g: graph.NewGraph(source.Name, graph.PartitionedStage, ranks), copies: map[*graph.Value][]*graph.Value{}}
	for _, n := range source.Nodes {
		if n.Op.Class == graph.Leaf {
			if n.Op.Name == "input" {
				p.leaf(n.Results[0], graph.Layout{})
			}
			continue // others are placed where they are used first
		}
		if !p.node(n) {
			return nil
		}
	}
	for _, o := range source.Outputs {
		v := p.as(o.Value, graph.Layout{})
		if v == nil || p.g.AddOutput(o.Name, v) != nil {
			return nil
		}
	}
	return p.g
}

type partition struct {
	*rand.Rand
	g      *graph.Graph
	copies map[*graph.Value][]*graph.Value
	last   int
}

func (p *partition) leaf(v *graph.Value, l graph.Layout) {
	made, err := p.g.AddLeaf(v.Def.Op.Name, v.Name, graph.Type{DType: v.Type.DType, Dims: v.Type.Dims, Layout: l}, v.Def.Storage)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	made.Def.Part = v.Def.Part
	p.copies[v] = []*graph.Value{made}
}

// node draws layouts for the operands until the rule takes them.
func (p *partition) node(n *graph.Node) bool {
	choices := make([][]graph.Layout, len(n.Args))
	for i, v := range n.Args {
		choices[i] = p.reach(v)
	}
	layouts := graph.LayoutsFor(n)
	in := make([]graph.Layout, len(n.Args))
	var found [][]graph.Layout
	for range 300 {
		for i, v := range n.Args {
			in[i] = choices[i][p.IntN(len(choices[i]))]
			if first := slices.Index(n.Args, v); first < i && p.copies[v] == nil {
				in[i] = in[first] // a leaf lies in one way
			}
		}
		out, err := layouts(in, p.g.Ranks)
		if err == nil && !slices.ContainsFunc(n.Op.States, func(s graph.StatePair) bool { return !out[s.Result].Equal(in[s.Operand]) }) {
			found = append(found, slices.Clone(in))
			if slices.ContainsFunc(in, func(l graph.Layout) bool { return l.Kind != graph.Replicated }) || len(found) > 3 {
				break // rather one in which something is split
			}
		}
	}
	if len(found) == 0 {
		return false
	}
	in = found[len(found)-1]
	args := make([]*graph.Value, len(n.Args))
	for i, v := range n.Args {
		if args[i] = p.as(v, in[i]); args[i] == nil {
			return false
		}
	}
	names := make([]string, len(n.Results))
	for i, v := range n.Results {
		names[i] = v.Name
	}
	m, err := p.g.Add(n.Op.Name, n.Attrs, names, args...)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for i, v := range n.Results {
		p.copies[v] = []*graph.Value{m.Results[i]}
	}
	return true
}

// reach lists the layouts in which a value can be had.
func (p *partition) reach(v *graph.Value) []graph.Layout {
	var out []graph.Layout
	for _, c := range p.copies[v] {
		out = append(out, c.Type.Layout)
	}
	leaf := v.Def.Op.Name == "param" || v.Def.Op.Name == "state"
	if leaf && len(out) > 0 {
		return out
	}
	if !leaf && !slices.ContainsFunc(out, graph.Layout{}.Equal) {
		out = append(out, graph.Layout{})
	} else if leaf {
		out = append(out, graph.Layout{})
	}
	for axis, d := range v.Type.Dims {
		if axis == 0 && d.Sym == graph.Tokens && v.Type.DType.Float() && !leaf && p.IntN(2) == 0 {
			out = append(out, graph.SplitRows([]graph.PlaceKind{graph.Even, graph.BySequence}[p.IntN(2)]))
		}
		if d.Sym != 0 || v.Type.DType == graph.I32 {
			continue
		}
		out = append(out, graph.SplitOn(axis, len(d.Fields)))
		for range 2 {
			if leaf {
				out = append(out, p.places(axis, d))
			}
		}
	}
	if !leaf && v.Type.DType.Float() && p.IntN(4) == 0 {
		out = append(out, graph.Layout{Kind: graph.Partial})
	}
	return out
}

// places draws a placement for each field.
func (p *partition) places(axis int, d graph.Dim) graph.Layout {
	l := graph.SplitOn(axis, len(d.Fields))
	for i, f := range d.Fields {
		switch p.IntN(4) {
		case 0:
			l.Place[i] = graph.Placement{}
		case 1, 2:
			if f.Units() > 0 {
				l.Place[i] = graph.Placement{Kind: graph.Cover, Of: f.Units() * (1 + p.IntN(4))}
			}
		}
	}
	return l
}

// as gives a value in a layout, by way of a whole copy if need be; nil if it cannot be had.
func (p *partition) as(v *graph.Value, l graph.Layout) *graph.Value {
	leaf := v.Def.Op.Name == "param" || v.Def.Op.Name == "state"
	if leaf && p.copies[v] == nil {
		p.leaf(v, l)
	}
	for _, c := range p.copies[v] {
		if c.Type.Layout.Equal(l) {
			return c
		}
	}
	if leaf || l.Kind == graph.Sharded && !l.ByBatch() && !l.Equal(graph.SplitOn(l.Axis, len(v.Type.Dims[l.Axis].Fields))) {
		return nil
	}
	from := p.copies[v][p.IntN(len(p.copies[v]))]
	if op, ok := graph.Between(from.Type.Layout.Kind, l.Kind); ok && op.Class == graph.Collective && (l.Kind == graph.Replicated || p.IntN(2) == 0) {
		return p.convert(v, op, l, from)
	}
	whole := p.as(v, graph.Layout{})
	op, _ := graph.Between(graph.Replicated, l.Kind)
	return p.convert(v, op, l, whole)
}

func (p *partition) convert(v *graph.Value, op *graph.Op, l graph.Layout, from *graph.Value) *graph.Value {
	var attrs graph.Attrs
	if op.To == graph.Sharded {
		attrs = graph.CutAttrs(l)
	}
	p.last++
	n, err := p.g.Add(op.Name, attrs, []string{fmt.Sprintf("%s_c%d", v.Name, p.last)}, from)
	if err != nil {
		return nil
	}
	p.copies[v] = append(p.copies[v], n.Results[0])
	return n.Results[0]
}

package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Extract makes a graph of one block. Values that the block takes from outside become its inputs,
// with the types that it has, but parameters and states stay what they are. Values that the block
// gives to others, or the graph to its caller, become its outputs, which are called as the values.
// Values keep their names, so that the block keeps its own; an input of another block loses that
// block's, or has it with _ for dots where the name is taken. Where ranks have some rows of what
// crosses the border, they get these of a whole input, and gather them for a whole output. A
// partial sum can be neither input nor output: that is an error, and so is a block that the graph
// does not have.
func Extract(g *Graph, block string) (*Graph, error) {
	if block == "" || !slices.Contains(g.Blocks(), block) {
		return nil, fmt.Errorf("the graph has no block %s", block)
	}
	e := &extraction{from: g, block: block, out: NewGraph(g.Name+" "+block, g.Stage, g.Ranks), to: map[*Value]*Value{}, leaves: map[*Value]bool{}}
	e.out.Mesh = g.Mesh
	e.look()
	e.takeOutside()
	for _, n := range e.nodes {
		e.node(n)
	}
	e.give()
	if e.errs == nil {
		e.fail(Check(e.out))
	}
	return e.out, errors.Join(e.errs...)
}

func (e *extraction) fail(err error) {
	if err != nil {
		e.errs = append(e.errs, err)
	}
}

type extraction struct {
	from, out *Graph
	block     string
	nodes     []*Node         // of the block that compute, and the leaves that they take
	outside   []*Value        // what they take of others, in the order of the graph
	leaves    map[*Value]bool // that leave the block
	to        map[*Value]*Value
	errs      []error
}

// look finds the nodes of the block, what they take of others, and what others take of them.
func (e *extraction) look() {
	inside, taken := map[*Node]bool{}, map[*Value]bool{}
	for _, n := range e.from.Nodes {
		if inside[n] = n.Block() == e.block && n.Op.Class != Leaf; !inside[n] {
			for _, v := range n.Args {
				e.leaves[v] = e.leaves[v] || inside[v.Def]
			}
			continue
		}
		for _, v := range n.Args {
			taken[v] = true
		}
	}
	for _, o := range e.from.Outputs {
		e.leaves[o.Value] = e.leaves[o.Value] || inside[o.Value.Def]
	}
	for _, n := range e.from.Nodes {
		if v := n.Results; inside[n] || n.Op.Class == Leaf && n.Block() == e.block && taken[v[0]] {
			e.nodes = append(e.nodes, n)
		} else {
			e.outside = append(e.outside, slices.DeleteFunc(slices.Clone(v), func(v *Value) bool { return !taken[v] })...)
		}
	}
}

// takeOutside makes inputs of the values of others, in front of everything, so that
// their names do not depend on their order: names without a block come first.
func (e *extraction) takeOutside() {
	var names []string
	for _, v := range e.outside {
		if b := BlockOf(v.Name); b == "" || b == e.block {
			names = append(names, v.Name)
		}
	}
	for _, leaf := range []bool{false, true} {
		for _, v := range e.outside {
			if stays := v.Def.Op.Name == "param" || v.Def.Op.Name == "state"; stays != leaf {
				continue
			} else if stays {
				e.leaf(v.Def.Op.Name, v.Name, v, v.Def.Storage)
				continue
			}
			name := v.Name
			if b := BlockOf(v.Name); b != "" && b != e.block {
				if name = strings.TrimPrefix(name, b+"."); slices.Contains(names, name) {
					name = strings.ReplaceAll(v.Name, ".", "_")
				}
				names = append(names, name)
			}
			if v.Type.partial() {
				e.fail(fmt.Errorf("%s takes %s from outside, which is a partial sum and cannot be an input", e.block, v.Name))
				continue
			}
			e.leaf("input", name, v, nil)
		}
	}
}

func (e *extraction) leaf(op, name string, v *Value, s *Storage) {
	t := v.Type
	along, byBatch := t.RowsAlong()
	if byBatch { // an input is whole
		t = t.wholeOn(along)
	}
	made, err := e.out.AddLeaf(op, name, t, s)
	if err == nil && byBatch {
		made, err = e.relaid("shard", name+"_rows", made, e.onAxis(CutAttrs(v.Type.On(along).Layout), along))
	}
	if err != nil {
		e.fail(fmt.Errorf("%s: %w", v.Name, err))
		return
	}
	if op == "state" {
		made.Def.Part = v.Def.Part
	}
	e.to[v] = made
}

// relaid is a value in another layout.
func (e *extraction) relaid(op, name string, v *Value, a Attrs) (*Value, error) {
	n, err := e.out.Add(op, a, []string{name}, v)
	if err != nil {
		return nil, err
	}
	n.Note = "the border of the block is that of this graph"
	return n.Results[0], nil
}

// onAxis adds the axis of a mesh to attributes.
func (e *extraction) onAxis(a Attrs, along MeshAxis) Attrs {
	if e.out.Mesh != (Mesh{}) {
		a["along"] = along.String()
	}
	return a
}

func (e *extraction) node(n *Node) {
	if n.Op.Class == Leaf {
		e.leaf(n.Op.Name, n.Name(), n.Results[0], n.Storage)
		return
	}
	args, names := make([]*Value, len(n.Args)), make([]string, len(n.Results))
	for i, v := range n.Args {
		args[i] = e.to[v]
	}
	for i, v := range n.Results {
		names[i] = v.Name
	}
	if e.errs != nil { // operands may be missing
		return
	}
	m, err := e.out.Add(n.Op.Name, n.Attrs, names, args...)
	if err != nil {
		e.fail(fmt.Errorf("%s: %s: %w", n.Name(), n.Op.Name, err))
		return
	}
	m.Note = n.Note
	for i, v := range n.Results {
		e.to[v] = m.Results[i]
	}
}

// give makes outputs of what leaves the block.
func (e *extraction) give() {
	for _, n := range e.nodes {
		for _, v := range n.Results {
			if !e.leaves[v] {
				continue
			}
			if v.Type.partial() {
				e.fail(fmt.Errorf("%s leaves %s as a partial sum, which cannot be an output", v.Name, e.block))
			} else if e.errs == nil {
				out, err := e.to[v], error(nil)
				if along, ok := v.Type.RowsAlong(); ok { // an output is whole
					out, err = e.relaid("all_gather", v.Name+"_all", out, e.onAxis(Attrs{}, along))
				}
				if err == nil {
					err = e.out.AddOutput(v.Name, out)
				}
				e.fail(err)
			}
		}
	}
}

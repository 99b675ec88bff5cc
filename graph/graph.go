package graph

import (
	"fmt"
	"strings"
)

// Graph is a flat list of nodes in an order in which they can run.
type Graph struct {
	Name    string
	Stage   Stage
	Ranks   int
	Mesh    Mesh // of TP and CP, where values lie along both; zero: all ranks are along one axis
	Nodes   []*Node
	Outputs []Output

	values   map[string]*Value
	inferred memo // by Add
}

// Node is one use of an operation.
type Node struct {
	Op      *Op
	Args    []*Value
	Results []*Value
	Attrs   Attrs
	Storage *Storage // params: where the checkpoint has it
	Part    *Part    // states: the field that it is of a state of the model; nil: all of it
	Note    string   // why the node is there; a comment in text, and not compared
}

// Value is a result of a node. Its name is a path: what is before the last dot is its scope.
type Value struct {
	Name string
	Type Type
	Def  *Node
	ID   int // dense, in order of definition
	// Narrow says in which batches a device keeps the value in bf16 or in pieces: see the pass formats.
	Narrow Narrow
}

// Output is a value that the caller of the graph gets.
type Output struct {
	Name  string
	Value *Value
}

// NewGraph returns an empty graph for a number of ranks.
func NewGraph(name string, stage Stage, ranks int) *Graph {
	return &Graph{Name: name, Stage: stage, Ranks: ranks, values: map[string]*Value{}}
}

// Successor is an empty graph of the same name, with room for as many values. On as many ranks, it
// has the same mesh.
func (g *Graph) Successor(stage Stage, ranks int) *Graph {
	mesh := g.Mesh
	if ranks != g.Ranks {
		mesh = Mesh{}
	}
	return &Graph{Mesh: mesh, Name: g.Name, Stage: stage, Ranks: ranks, Nodes: make([]*Node, 0, len(g.Nodes)), values: make(map[string]*Value, len(g.values))}
}

// Value finds a value by its full name.
func (g *Graph) Value(name string) (*Value, bool) {
	v, ok := g.values[name]
	return v, ok
}

// Len is the number of values; their ids are below it.
func (g *Graph) Len() int { return len(g.values) }

// append adds a node whose results have the names and types given.
func (g *Graph) append(n *Node, names []string, types []Type) error {
	for i, name := range names {
		if !validPath(name) {
			return fmt.Errorf("%q is not a name for a value: letters, digits and _ between dots", name)
		}
		if g.values[name] != nil {
			return fmt.Errorf("a value named %s exists already", name)
		}
		v := &Value{Name: name, Type: types[i], Def: n, ID: len(g.values)}
		g.values[name] = v
		n.Results = append(n.Results, v)
	}
	g.Nodes = append(g.Nodes, n)
	return nil
}

// Add appends a node and infers the types of its results, which get the names.
func (g *Graph) Add(op string, attrs Attrs, names []string, args ...*Value) (*Node, error) {
	row, ok := byName[op]
	if !ok || row.Class == Leaf {
		return nil, Unknown(op)
	}
	for i, v := range args {
		if v == nil || g.values[v.Name] != v {
			return nil, fmt.Errorf("operand %d is not a value of this graph", i)
		}
	}
	complete, err := row.complete(attrs)
	if err != nil {
		return nil, err
	}
	n := &Node{Op: row, Args: args, Attrs: complete}
	types, err := g.inferred.infer(n, g.over())
	if err != nil {
		return nil, err
	}
	if len(names) != len(types) {
		return nil, fmt.Errorf("%d names for %d results", len(names), len(types))
	}
	return n, g.append(n, names, types)
}

// AddLeaf appends an input, a param or a state.
func (g *Graph) AddLeaf(op, name string, t Type, s *Storage) (*Value, error) {
	if err := t.Valid(); err != nil {
		return nil, err
	}
	n := &Node{Op: byName[op], Attrs: Attrs{}, Storage: s}
	if err := g.append(n, []string{name}, []Type{t}); err != nil {
		return nil, err
	}
	return n.Results[0], nil
}

// AddOutput makes a value visible to the caller of the graph.
func (g *Graph) AddOutput(name string, v *Value) error {
	for _, o := range g.Outputs {
		if o.Name == name {
			return fmt.Errorf("an output named %s exists already", name)
		}
	}
	if !validPath(name) {
		return fmt.Errorf("%q is not a name for an output", name)
	}
	g.Outputs = append(g.Outputs, Output{name, v})
	return nil
}

// Leaves lists the nodes of a leaf operation (input, param or state) in order.
func (g *Graph) Leaves(op string) []*Node {
	var out []*Node
	for _, n := range g.Nodes {
		if n.Op.Name == op {
			out = append(out, n)
		}
	}
	return out
}

// Blocks lists the layers.N scopes that hold nodes, in order of appearance.
func (g *Graph) Blocks() []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, n := range g.Nodes {
		if b := n.Block(); !seen[b] {
			seen[b] = true
			out = append(out, b)
		}
	}
	return out
}

// Name is the node's first result's name.
func (n *Node) Name() string { return n.Results[0].Name }

// Block is the block that the node belongs to, "" outside of all.
func (n *Node) Block() string { return BlockOf(n.Name()) }

// BlockOf is the layers.N scope of a name, "" when it is in none.
func BlockOf(name string) string {
	rest, ok := strings.CutPrefix(name, "layers.")
	if !ok {
		return ""
	}
	num, _, ok := strings.Cut(rest, ".")
	if !ok || num == "" || strings.Trim(num, "0123456789") != "" {
		return ""
	}
	return "layers." + num
}

// Scope is the path before the value's own name.
func (v *Value) Scope() string {
	return v.Name[:max(0, strings.LastIndexByte(v.Name, '.'))]
}

func validPath(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if !validName(part) {
			return false
		}
	}
	return true
}

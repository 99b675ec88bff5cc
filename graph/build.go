package graph

import (
	"errors"
	"fmt"
	"strconv"
)

// Builder adds nodes to a graph under a scope. The first error sticks: later
// calls do nothing and return nil, and [Builder.Graph] returns it, so that a
// model reads like its equations.
type Builder struct {
	scope string // with a dot at its end, or empty
	*building
}

type building struct {
	g   *Graph
	err error
}

// New starts the graph of a model.
func New(name string) *Builder {
	return &Builder{"", &building{g: NewGraph(name, ModelStage, 1)}}
}

// In is a builder for the scope path below this one: b.In("layers", 3, "mixer").
func (b *Builder) In(path ...any) *Builder {
	scope := b.scope
	for _, p := range path {
		scope += fmt.Sprint(p) + "."
	}
	return &Builder{scope, b.building}
}

// Graph returns the finished graph, checked, or the first error.
func (b *Builder) Graph() (*Graph, error) {
	if b.err == nil {
		b.err = Check(b.g)
	}
	if b.err != nil {
		return nil, b.err
	}
	return b.g, nil
}

// Err is the first error so far.
func (b *Builder) Err() error { return b.err }

func (b *Builder) fail(name string, err error) {
	if b.err == nil {
		b.err = fmt.Errorf("%s%s: %w", b.scope, name, err)
	}
}

// Input declares a tensor that the caller gives with every batch.
func (b *Builder) Input(name string, t Type) *Value { return b.leaf("input", name, t, nil) }

// Param declares a tensor of the checkpoint; a nil storage means one tensor
// with the parameter's full name.
func (b *Builder) Param(name string, t Type, s *Storage) *Value {
	return b.leaf("param", name, t, s)
}

// State declares what each sequence keeps between steps; the first axis of its
// type is [Seqs].
func (b *Builder) State(name string, t Type) *Value { return b.leaf("state", name, t, nil) }

func (b *Builder) leaf(op, name string, t Type, s *Storage) *Value {
	n := &Node{Op: byName[op], Attrs: Attrs{}, Storage: s}
	err := t.Valid()
	if err == nil && b.err == nil {
		err = b.g.append(n, []string{b.scope + name}, []Type{t})
	}
	if err != nil {
		b.fail(name, fmt.Errorf("%s: %w", op, err))
	}
	if b.err != nil {
		return nil
	}
	return n.Results[0]
}

// Output makes a value visible to the caller of the graph.
func (b *Builder) Output(name string, v *Value) {
	if b.err != nil {
		return
	}
	if err := b.g.addOutput(name, v); err != nil {
		b.fail(name, err)
	}
}

func (g *Graph) addOutput(name string, v *Value) error {
	for _, o := range g.Outputs {
		if o.Name == name {
			return errors.New("an output of this name exists already")
		}
	}
	if !validPath(name) {
		return fmt.Errorf("%q is no name for an output", name)
	}
	g.Outputs = append(g.Outputs, Output{name, v})
	return nil
}

// Apply adds a node. Its first result is called name, the new state of an
// operation that has one name_state, further results name_1, ….
func (b *Builder) Apply(name, op string, attrs Attrs, args ...*Value) []*Value {
	if b.err != nil {
		return make([]*Value, 4)
	}
	n, types, err := b.node(op, attrs, args)
	if err == nil {
		names := make([]string, len(types))
		for i := range types {
			names[i] = b.scope + name + resultSuffix(n.Op, i)
		}
		err = b.g.append(n, names, types)
	}
	if err != nil {
		b.fail(name, fmt.Errorf("%s: %w", op, err))
		return make([]*Value, 4)
	}
	return n.Results
}

func resultSuffix(op *Op, i int) string {
	for _, p := range op.States {
		if p.Result == i {
			return "_state"
		}
	}
	if i == 0 {
		return ""
	}
	return "_" + strconv.Itoa(i)
}

func (b *Builder) node(name string, attrs Attrs, args []*Value) (*Node, []Type, error) {
	op, ok := byName[name]
	if !ok || op.Class == Leaf {
		return nil, nil, errors.New("no such operation")
	}
	for i, v := range args {
		if v == nil || b.g.values[v.Name] != v {
			return nil, nil, fmt.Errorf("operand %d is not a value of this graph", i)
		}
	}
	complete, err := op.complete(attrs)
	if err != nil {
		return nil, nil, err
	}
	n := &Node{Op: op, Args: args, Attrs: complete}
	types, err := infer(n, b.g.Ranks)
	return n, types, err
}

package graph

import (
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
	if b.err != nil {
		return nil
	}
	v, err := b.g.AddLeaf(op, b.scope+name, t, s)
	if err != nil {
		b.fail(name, fmt.Errorf("%s: %w", op, err))
	}
	return v
}

// Output makes a value visible to the caller of the graph.
func (b *Builder) Output(name string, v *Value) {
	if b.err != nil {
		return
	}
	if err := b.g.AddOutput(name, v); err != nil {
		b.fail(name, err)
	}
}

// Apply adds a node. Its first result is called name, the new state of an
// operation that has one name_state, further results name_1, ….
func (b *Builder) Apply(name, op string, attrs Attrs, args ...*Value) []*Value {
	if b.err != nil {
		return make([]*Value, 4)
	}
	var names []string
	if row, ok := byName[op]; ok {
		for i := range row.results() {
			names = append(names, b.scope+name+resultSuffix(row, i))
		}
	}
	n, err := b.g.Add(op, attrs, names, args...)
	if err != nil {
		b.fail(name, fmt.Errorf("%s: %w", op, err))
		return make([]*Value, 4)
	}
	return n.Results
}

// results is the number of results of an operation that is not variadic.
func (op *Op) results() int {
	if op.Rule == nil {
		return 1
	}
	return len(op.Rule.out)
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

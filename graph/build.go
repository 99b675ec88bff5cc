package graph

import (
	"fmt"
	"slices"
	"strconv"
)

// Builder adds nodes to a graph under a scope. The first error sticks: later calls do nothing and
// return nil, and [Builder.Graph] returns it, so that a model reads like its equations.
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

// State declares what each sequence keeps between steps; the first axis of its type is [Seqs].
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

// Tokens makes the output [ChosenOutput]: a token chosen from each row of logits[o v], as
// the inputs [ChoiceInput] and [SeenInput], which it declares, say.
func (b *Builder) Tokens(logits *Value) {
	if b.err != nil {
		return
	}
	choice := b.Input(ChoiceInput, ChoiceType())
	seen := b.Input(SeenInput, SeenType(logits.Type.Dims[1].Len()))
	b.Output(ChosenOutput, b.Choose(ChosenOutput, logits, choice, seen))
}

// AddTokens is [Builder.Tokens] for a graph that is built.
func AddTokens(g *Graph, logits *Value) error {
	b := &Builder{"", &building{g: g}}
	b.Tokens(logits)
	return b.err
}

// Apply adds a node, whose results are called after it: see [Op.ResultNames].
func (b *Builder) Apply(name, op string, attrs Attrs, args ...*Value) []*Value {
	if b.err != nil {
		return make([]*Value, 4)
	}
	var names []string
	if row, ok := byName[op]; ok {
		names = row.ResultNames(b.scope + name)
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

// ResultNames are the names of the results of a node that is called name: the
// first is called so, new states name_state and name_state2, others name_1, ….
func (op *Op) ResultNames(name string) []string {
	out := make([]string, op.results())
	states := 0
	for i := range out {
		switch {
		case slices.ContainsFunc(op.States, func(p StatePair) bool { return p.Result == i }):
			if states++; states == 1 {
				out[i] = name + "_state"
			} else {
				out[i] = name + "_state" + strconv.Itoa(states)
			}
		case i > 0:
			out[i] = name + "_" + strconv.Itoa(i)
		default:
			out[i] = name
		}
	}
	return out
}

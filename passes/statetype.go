package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// States says in which number format states are kept, by kind. The zero value leaves
// all as they are.
type States struct {
	text    string // as it was given
	formats map[graph.StateKind]graph.DType
}

// ParseStates reads kinds and formats, such as "conv=bf16,cache=f16,ssm=bf16".
func ParseStates(text string) (States, error) {
	s := States{text, map[graph.StateKind]graph.DType{}}
	if text == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, format, ok := strings.Cut(part, "=")
		kind := graph.StateKind(name)
		switch {
		case !ok:
			return s, fmt.Errorf("states %q: %q must be KIND=FORMAT, such as conv=bf16", text, part)
		case !slices.Contains(graph.StateKinds, kind):
			return s, fmt.Errorf("states %q: unknown kind %q; it must be one of %s", text, name, kindNames(graph.StateKinds))
		case s.formats[kind] != graph.NoDType:
			return s, fmt.Errorf("states %q: %s is given twice", text, kind)
		}
		d, ok := graph.ParseDType(format)
		if !ok {
			return s, fmt.Errorf("states %q: unknown format %q; it must be f32, f16, bf16 or e4m3", text, format)
		}
		if err := kind.Takes(d); err != nil {
			return s, fmt.Errorf("states %q: %s is %w", text, kind, err)
		}
		s.formats[kind] = d
	}
	return s, nil
}

func kindNames(kinds []graph.StateKind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// stateType gives states the number formats of the options. Which kind a state is of
// says the row of the operation that updates it. Nothing else changes: operations put
// out new states in the format of the old, and all else in f32.
func stateType(g *graph.Graph, o *Options) (*graph.Graph, error) {
	kinds := kindsOf(g)
	if err := o.States.check(kinds); err != nil {
		return nil, err
	}
	r := rewrite(g, g.Stage, g.Ranks)
	for _, n := range g.Nodes {
		if err := r.copy(n); err != nil {
			return nil, err
		}
		if d := o.States.formats[kinds[n.Results[0]]]; d != graph.NoDType {
			keepAs(r.to[n.Results[0]], d)
		}
	}
	return r.finish()
}

// keepAs gives a state a format before anything takes it.
func keepAs(state *graph.Value, d graph.DType) {
	state.Type.DType = d
	if p := state.Def.Part; p != nil { // whose whole has that format, too
		whole := *p
		whole.Type.DType = d
		state.Def.Part = &whole
	}
}

// kindsOf finds the kind of each state that something takes.
func kindsOf(g *graph.Graph) map[*graph.Value]graph.StateKind {
	kinds := map[*graph.Value]graph.StateKind{}
	for _, n := range g.Nodes {
		for _, p := range n.Op.States {
			kinds[n.Args[p.Operand]] = p.Kind
		}
	}
	return kinds
}

// check refuses a kind of which the graph has no states.
func (s *States) check(kinds map[*graph.Value]graph.StateKind) error {
	var there []graph.StateKind
	for _, k := range graph.StateKinds {
		for _, have := range kinds {
			if have == k {
				there = append(there, k)
				break
			}
		}
	}
	for _, k := range graph.StateKinds {
		if s.formats[k] == graph.NoDType || slices.Contains(there, k) {
			continue
		}
		if there == nil {
			return fmt.Errorf("states %s: the graph has no states", s.text)
		}
		return fmt.Errorf("states %s: the graph has no state of kind %s; it has %s", s.text, k, kindNames(there))
	}
	return nil
}

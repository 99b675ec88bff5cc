package passes

import (
	"embed"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Strategy is a list of constraints on how values may lie over the ranks; what
// it says nothing of lies by unit ownership. It is data: a file of lines
//
//	PATTERN LAYOUT...
//	passes NAME...
//
// of which the first PATTERN that fits a value holds, and passes says which
// passes compile a model (all, unless it is there). A PATTERN is a glob for names, or
// op:NAME for results of an operation, or op:NAME/1 for parameters that are its
// operand 1. A LAYOUT is whole, partial, split:AXIS, or units (split along the
// axis of units, covered where it holds groups of them).
type Strategy struct {
	Name, Doc string
	Passes    []string
	rules     []placeRule
}

type placeRule struct {
	pattern string
	layouts []string
}

//go:embed strategies/*.place
var strategyFiles embed.FS

// Strategies are those that come with the program; the first is the default.
var Strategies = builtin("channel", "hoisted", "replicated-x", "naive", "paper-naive")

func builtin(names ...string) []*Strategy {
	var list []*Strategy
	for _, name := range names {
		text, err := strategyFiles.ReadFile("strategies/" + name + ".place")
		if err == nil {
			var s *Strategy
			if s, err = ParseStrategy(name, string(text)); err == nil {
				list = append(list, s)
				continue
			}
		}
		panic("BUG: " + err.Error())
	}
	return list
}

// FindStrategy returns a strategy of [Strategies] by name.
func FindStrategy(name string) (*Strategy, error) {
	var names []string
	for _, s := range Strategies {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("there is no strategy %q; there are %s", name, strings.Join(names, ", "))
}

// ReadStrategy reads a placement file.
func ReadStrategy(file string) (*Strategy, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseStrategy(file, string(text))
}

// ParseStrategy reads the text of a placement file; its first comment is the doc.
func ParseStrategy(name, text string) (*Strategy, error) {
	s := &Strategy{Name: name, Passes: Default}
	for i, line := range strings.Split(text, "\n") {
		line, comment, _ := strings.Cut(line, "#")
		if s.Doc == "" {
			s.Doc = strings.TrimSpace(comment)
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s: line %d: %s", name, i+1, fmt.Sprintf(format, args...))
		}
		if f[0] == "passes" {
			if _, err := Lookup(f[1:]); err != nil {
				return nil, fail("%v", err)
			}
			s.Passes = f[1:]
			continue
		}
		if _, err := path.Match(f[0], ""); err != nil {
			return nil, fail("%q is no pattern", f[0])
		}
		if len(f) < 2 {
			return nil, fail("%q has no layout; there are whole, partial, split:AXIS and units", f[0])
		}
		for _, l := range f[1:] {
			if !validLayout(l) {
				return nil, fail("%q is no layout; there are whole, partial, split:AXIS and units", l)
			}
		}
		s.rules = append(s.rules, placeRule{f[0], f[1:]})
	}
	return s, nil
}

func validLayout(text string) bool {
	axis, split := strings.CutPrefix(text, "split:")
	if split {
		_, err := strconv.Atoi(axis)
		return err == nil
	}
	return text == "whole" || text == "partial" || text == "units"
}

// layouts are those that the strategy lets a value have, in order of preference.
func (s *Strategy) layouts(v *graph.Value, uses []*graph.Node, covers groupings) ([]graph.Layout, error) {
	texts := []string{"units"}
	for _, r := range s.rules {
		if r.fits(v, uses) {
			texts = r.layouts
			break
		}
	}
	var out []graph.Layout
	for _, text := range texts {
		list, err := expand(text, v, covers)
		if err != nil {
			return nil, fmt.Errorf("%s: strategy %s: %w", v.Name, s.Name, err)
		}
		for _, l := range list {
			if !slices.ContainsFunc(out, l.Equal) {
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// fits reports whether the rule is about a value.
func (r *placeRule) fits(v *graph.Value, uses []*graph.Node) bool {
	op, ok := strings.CutPrefix(r.pattern, "op:")
	if !ok {
		match, _ := path.Match(r.pattern, v.Name)
		return match
	}
	op, operand, ok := strings.Cut(op, "/")
	if !ok {
		return v.Def.Op.Name == op
	}
	i, err := strconv.Atoi(operand)
	return err == nil && v.Def.Op.Name == "param" && slices.ContainsFunc(uses, func(n *graph.Node) bool {
		return n.Op.Name == op && i < len(n.Args) && n.Args[i] == v
	})
}

func expand(text string, v *graph.Value, covers groupings) ([]graph.Layout, error) {
	whole, partial := graph.Layout{}, graph.Layout{Kind: graph.Partial}
	if axis, ok := strings.CutPrefix(text, "split:"); ok {
		a, _ := strconv.Atoi(axis)
		if a < 0 || a >= len(v.Type.Dims) || v.Type.Dims[a].Sym != 0 {
			return nil, fmt.Errorf("axis %d of %s cannot be split", a, v.Type)
		}
		return []graph.Layout{graph.SplitOn(a, len(v.Type.Dims[a].Fields))}, nil
	}
	switch text {
	case "whole":
		return []graph.Layout{whole}, nil
	case "partial":
		return []graph.Layout{partial}, nil
	}
	if l := owned(v, covers); l != nil {
		if graph.OfGroups(v) { // a sum over a part of the group, or a copy of it
			l = append(l, whole, partial)
		}
		return l, nil
	}
	if v.Def.Op.Class == graph.Leaf {
		return []graph.Layout{whole}, nil
	}
	return []graph.Layout{whole, partial}, nil
}

// owned are the layouts of a value that has an axis of units: split along it,
// or covering the groups of units. Fields without units stay whole.
func owned(v *graph.Value, covers groupings) []graph.Layout {
	for axis, d := range v.Type.Dims {
		if !hasUnits(d) {
			continue
		}
		list := []graph.Layout{{Kind: graph.Sharded, Axis: axis}}
		for _, f := range d.Fields {
			var next []graph.Layout
			for _, p := range places(f, covers) {
				for _, l := range list {
					l.Place = append(slices.Clone(l.Place), p)
					next = append(next, l)
				}
			}
			list = next
		}
		return list
	}
	return nil
}

func places(f graph.Field, covers groupings) []graph.Placement {
	if f.Unit == 0 {
		return []graph.Placement{{Kind: graph.Whole}}
	}
	out := []graph.Placement{{Kind: graph.Split}}
	for _, of := range covers[f.Units()] {
		out = append(out, graph.Placement{Kind: graph.Cover, Of: of})
	}
	return out
}

// groupings are, for each number of groups that a value may have, the numbers of
// units that share them in some operation.
type groupings map[int][]int

// coversOf finds the groupings of every value that groups go through on their way
// to an operation that has units of them: covers are derived, not chosen.
func coversOf(g *graph.Graph) map[*graph.Value]groupings {
	out := map[*graph.Value]groupings{}
	var mark func(v *graph.Value, groups, units int)
	mark = func(v *graph.Value, groups, units int) {
		if !hasGroups(v, groups) || slices.Contains(out[v][groups], units) {
			return
		}
		if out[v] == nil {
			out[v] = groupings{}
		}
		out[v][groups] = append(out[v][groups], units)
		slices.Sort(out[v][groups])
		for _, a := range v.Def.Args {
			mark(a, groups, units)
		}
	}
	for _, n := range g.Nodes {
		if groups, units, ok := graph.Groups(n); ok && units > groups {
			for _, v := range n.Args {
				mark(v, groups, units)
			}
		}
	}
	return out
}

// hasGroups reports whether a field of v has so many units.
func hasGroups(v *graph.Value, groups int) bool {
	return slices.ContainsFunc(v.Type.Dims, func(d graph.Dim) bool {
		return slices.ContainsFunc(d.Fields, func(f graph.Field) bool { return f.Unit > 0 && f.Units() == groups })
	})
}

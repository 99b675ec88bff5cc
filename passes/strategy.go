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

// merges reports whether the strategy joins all_reduces after they are placed.
func (o *Options) merges() bool { return slices.Contains(o.Strategy.Passes, "merge") }

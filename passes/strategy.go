package passes

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/versions"
)

// Strategy is a list of constraints on how values may lie over the ranks; what
// it says nothing of lies by unit ownership. It is data: a file of lines
//
//	[optional] PATTERN LAYOUT...
//	version N
//	border PLACE
//	with PASS...
//	without PASS...
//
// The first PATTERN that fits a value holds. It is a glob for names, or op:NAME for results of an
// operation, or op:NAME/1 for parameters that are its operand 1. A PATTERN that fits nothing in the
// graph is an error, as it is mostly a slip of the pen; optional says that not every model has such
// a value. A LAYOUT is whole, partial, split:AXIS, or units (split along the axis of units, covered
// where it holds groups of them), even, sequence or parts (split along the tokens).
//
// PLACE says how tokens lie in what passes from one block to another: whole, as where
// nothing is said, even (a run of them on each rank, cut anywhere) sequence (cut where
// sequences end) or parts (a run of each sequence on each rank). In blocks, what has tokens and no
// units may be split so, too; in parts, all that has tokens is, and weights are whole.
//
// The passes are those of [Default], and with adds to them, without leaves some out.
// partition is always run.
type Strategy struct {
	Name, Doc string
	Passes    []string // in the order of the table
	rules     []placeRule
	border    graph.PlaceKind
}

type placeRule struct {
	line     int
	optional bool
	pattern  string
	layouts  []string
}

//go:embed strategies/*.place
var strategyFiles embed.FS

// Strategies are those that come with the program; the first is the default.
var Strategies = builtin("channel", "hoisted", "replicated-x", "sequence", "batch", "context", "naive", "paper-naive")

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
	return nil, fmt.Errorf("unknown strategy %q; it must be one of %s", name, strings.Join(names, ", "))
}

// ReadStrategy reads a placement file.
func ReadStrategy(file string) (*Strategy, error) {
	text, err := files.ReadPipe(file, files.Config)
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
		var err error
		switch f[0] {
		case "with", "without":
			err = s.adjust(f[0] == "with", f[1:])
		case "border":
			err = s.cross(f[1:])
		case "version":
			var n int
			if n, err = strconv.Atoi(strings.Join(f[1:], " ")); err == nil {
				err = versions.Placement.Accept(n)
			}
		default:
			err = s.rule(i+1, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, i+1, err)
		}
	}
	return s, nil
}

// cross reads how what passes from block to block lies.
func (s *Strategy) cross(f []string) error {
	place, ok := graph.Whole, false
	if len(f) == 1 {
		place, ok = borders[f[0]]
	}
	if !ok {
		return fmt.Errorf("border %s; it must be whole, even, sequence or parts", strings.Join(f, " "))
	}
	s.border = place
	return nil
}

// adjust adds passes to those of the strategy, or leaves some out.
func (s *Strategy) adjust(with bool, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("a pass is missing; it must be one of %s", strings.Join(passNames(nil), ", "))
	}
	if _, err := Lookup(names[:1]); err != nil {
		return err
	}
	name, runs := names[0], slices.Contains(s.Passes, names[0])
	switch {
	case with && runs:
		return fmt.Errorf("pass %s always runs; with is for the optional passes %s", name, strings.Join(passNames(func(p *Pass) bool { return p.Optional }), ", "))
	case !with && !runs:
		return fmt.Errorf("pass %s does not run here; remove it from without", name)
	case !with && name == "partition":
		return fmt.Errorf("pass partition cannot be left out: the strategy configures it")
	}
	s.Passes = passNames(func(p *Pass) bool { return slices.Contains(s.Passes, p.Name) != (p.Name == name) })
	if len(names) > 1 {
		return s.adjust(with, names[1:])
	}
	return nil
}

// rule reads [optional] PATTERN LAYOUT...
func (s *Strategy) rule(line int, f []string) error {
	r := placeRule{line: line}
	if r.optional = f[0] == "optional"; r.optional {
		f = f[1:]
	}
	if len(f) < 2 {
		return fmt.Errorf("%q has no layout; give whole, partial, split:AXIS, units, even, sequence or parts", strings.Join(f, " "))
	}
	r.pattern, r.layouts = f[0], f[1:]
	if _, err := path.Match(r.pattern, ""); err != nil {
		return fmt.Errorf("%q is not a valid pattern", r.pattern)
	}
	for _, l := range r.layouts {
		if !validLayout(l) {
			return fmt.Errorf("unknown layout %q; it must be whole, partial, split:AXIS, units, even, sequence or parts", l)
		}
	}
	s.rules = append(s.rules, r)
	return nil
}

func validLayout(text string) bool {
	axis, split := strings.CutPrefix(text, "split:")
	if split {
		_, err := strconv.Atoi(axis)
		return err == nil
	}
	return slices.Contains([]string{"whole", "partial", "units", "even", "sequence", "parts"}, text)
}

// partitionBy partitions a graph by a strategy of which every pattern means something.
func partitionBy(g *graph.Graph, o *Options) (*graph.Graph, error) {
	if o.across() {
		return partitionAcross(g, o)
	}
	if o.Ranks > 1 {
		if err := o.Strategy.unmatched(g, usesOf(g)); err != nil {
			return nil, err
		}
	}
	return partition(g, o)
}

// unmatched names the patterns that fit no value of the graph, also none that an
// earlier pattern takes.
func (s *Strategy) unmatched(g *graph.Graph, uses map[*graph.Value][]*graph.Node) error {
	var errs []error
	for _, r := range s.rules {
		if !r.optional && !slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool {
			return slices.ContainsFunc(n.Results, func(v *graph.Value) bool { return r.fits(v, uses[v]) })
		}) {
			errs = append(errs, fmt.Errorf("%s: line %d: no value of the graph fits the pattern %q", s.Name, r.line, r.pattern))
		}
	}
	if errs != nil {
		errs = append(errs, errors.New("a placement file says optional before a pattern that some models have no value for"))
	}
	return errors.Join(errs...)
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

package graph

import (
	"errors"
	"fmt"
	"strings"
)

// Parse reads graph text. Types of results may be left out of nodes that are not leaves; they are
// inferred. Everything from # to the end of a line is a comment; after a node it is the node's
// note. The graph may break rules that [Check] knows; what cannot be read at all is an error that
// names the line.
func Parse(text string) (*Graph, error) {
	p := &parser{}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.g == nil {
		return nil, errors.New(`no graph: the text must begin with a line such as graph "name" stage=model ranks=1`)
	}
	return p.g, nil
}

// maxNodes is that of graphs as text, far above models of thousands of layers: sums of
// their bytes are below 2^62.
const maxNodes = 1 << 18

type parser struct {
	g     *Graph
	block string
}

func (p *parser) line(line string) error {
	line, comment := uncomment(line)
	line = strings.TrimRight(line, " \t\r")
	if strings.TrimLeft(line, " \t") == "" {
		return nil
	}
	if line[0] != ' ' && line[0] != '\t' {
		p.block = ""
	}
	s, nodes := &scanner{line}, p.nodes()
	if err := p.statement(s); err != nil {
		return err
	}
	if p.nodes() > maxNodes {
		return fmt.Errorf("more than %d nodes, which is the most that Krait reads", maxNodes)
	}
	if p.nodes() > nodes {
		p.g.Nodes[nodes].Note = strings.TrimSpace(comment)
	}
	if s.blank(); s.rest != "" {
		return fmt.Errorf("unexpected %q", s.rest)
	}
	return nil
}

// nodes is how many there are so far.
func (p *parser) nodes() int {
	if p.g == nil {
		return 0
	}
	return len(p.g.Nodes)
}

// uncomment cuts a comment off, minding quoted strings.
func uncomment(line string) (rest, comment string) {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == '\\' && quoted:
			i++
		case line[i] == '#' && !quoted:
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}

func (p *parser) statement(s *scanner) error {
	if p.g == nil {
		return p.header(s)
	}
	switch {
	case s.eat("block "):
		p.block = s.word(".")
		if BlockOf(p.block+".x") != p.block {
			return fmt.Errorf("%q is not a block; a block is layers.N", p.block)
		}
		return nil
	case s.eat("output "):
		return p.output(s)
	}
	for _, op := range []string{"input", "param", "state"} {
		if s.eat(op + " ") {
			return p.leaf(s, byName[op])
		}
	}
	return p.node(s)
}

func (p *parser) header(s *scanner) error {
	if err := s.expect("graph"); err != nil {
		return err
	}
	name, err := s.quoted()
	if err != nil {
		return err
	}
	if err := s.expect("stage="); err != nil {
		return err
	}
	w := s.word("")
	stage, ok := ParseStage(w)
	if !ok {
		return fmt.Errorf("unknown stage %q", w)
	}
	if err := s.expect("ranks="); err != nil {
		return err
	}
	ranks, err := s.int()
	if err != nil {
		return err
	}
	if ranks < 1 || ranks > MaxRanks {
		return fmt.Errorf("ranks=%d; it must be from 1 to %d", ranks, MaxRanks)
	}
	p.g = NewGraph(name, stage, ranks)
	return nil
}

// name reads a value's name and completes it: relative to the block without a
// leading "/".
func (s *scanner) name(block, sigils string) (string, byte, error) {
	s.blank()
	if s.rest == "" || strings.IndexByte(sigils, s.rest[0]) < 0 {
		return "", 0, fmt.Errorf("expected a name that begins with %s, found %q", strings.Join(strings.Split(sigils, ""), " or "), s.rest)
	}
	sigil := s.rest[0]
	s.rest = s.rest[1:]
	absolute := strings.HasPrefix(s.rest, "/")
	s.rest = strings.TrimPrefix(s.rest, "/")
	w := s.word(".")
	if !validPath(w) {
		return "", 0, fmt.Errorf("%q is not a name for a value", w)
	}
	if block != "" && !absolute {
		w = block + "." + w
	}
	return w, sigil, nil
}

func (p *parser) ref(s *scanner) (*Value, error) {
	name, sigil, err := s.name(p.block, "%@")
	if err != nil {
		return nil, err
	}
	v, ok := p.g.Value(name)
	if !ok {
		return nil, fmt.Errorf("%s is not defined above", name)
	}
	if param := v.Def.Op.Name == "param"; param != (sigil == '@') {
		return nil, fmt.Errorf("%s: parameters are written @, other values %%", name)
	}
	return v, nil
}

func (p *parser) leaf(s *scanner, op *Op) error {
	sigil := "%"
	if op.Name == "param" {
		sigil = "@"
	}
	name, _, err := s.name(p.block, sigil)
	if err != nil {
		return err
	}
	if err := s.expect(":"); err != nil {
		return err
	}
	n := &Node{Op: op, Attrs: Attrs{}}
	var t Type
	if t, n.Storage, n.Part, err = s.stored(p.block); err != nil {
		return err
	}
	return p.g.append(n, []string{name}, []Type{t})
}

func (p *parser) output(s *scanner) error {
	name := s.word(".")
	if err := s.expect("="); err != nil {
		return err
	}
	v, err := p.ref(s)
	if err != nil {
		return err
	}
	return p.g.AddOutput(name, v)
}

// node reads %c %s = conv1d %x @w %s0 %/seg {…} : T, T.
func (p *parser) node(s *scanner) error {
	var names []string
	for !s.eat("=") {
		name, _, err := s.name(p.block, "%")
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	w := s.word("")
	op, ok := Lookup(w)
	if !ok || op.Class == Leaf {
		return Unknown(w)
	}
	n := &Node{Op: op}
	for s.blank(); strings.HasPrefix(s.rest, "%") || strings.HasPrefix(s.rest, "@"); s.blank() {
		v, err := p.ref(s)
		if err != nil {
			return err
		}
		n.Args = append(n.Args, v)
	}
	attrs, err := s.attrs(op)
	if err != nil {
		return err
	}
	if n.Attrs, err = op.complete(attrs); err != nil {
		return fmt.Errorf("%s: %w", op.Name, err)
	}
	types, narrow, err := p.types(s, n)
	if err != nil {
		return fmt.Errorf("%s: %w", op.Name, err)
	}
	if len(names) == 0 || len(names) != len(types) {
		return fmt.Errorf("%s: %d results named, %d types", op.Name, len(names), len(types))
	}
	if err := p.g.append(n, names, types); err != nil {
		return err
	}
	for i, v := range narrow {
		n.Results[i].Narrow = v
	}
	return nil
}

// types reads the types after ":", or infers them if none are given, and in which batches
// each value is in bf16.
func (p *parser) types(s *scanner, n *Node) (types []Type, narrow []Narrow, err error) {
	if !s.eat(":") {
		types, err = infer(n, p.g.Ranks)
		return types, nil, err
	}
	for {
		t, err := s.typ()
		if err != nil {
			return nil, nil, err
		}
		if types, narrow = append(types, t), append(narrow, s.narrow()); !s.eat(",") {
			return types, narrow, nil
		}
	}
}

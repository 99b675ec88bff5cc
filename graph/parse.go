package graph

import (
	"errors"
	"fmt"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
	"github.com/krait-ml/krait/internal/versions"
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

// parser reads graph text, line by line. Its methods but line panic with what is wrong.
type parser struct {
	g     *Graph
	block string
}

func (p *parser) line(line string) (err error) {
	defer bail.Catch(&err)
	line, comment := uncomment(line)
	line = strings.TrimRight(line, " \t\r")
	if strings.TrimLeft(line, " \t") == "" {
		return nil
	}
	if line[0] != ' ' && line[0] != '\t' {
		p.block = ""
	}
	s, nodes := &scanner{line}, p.nodes()
	p.statement(s)
	if p.nodes() > maxNodes {
		return fmt.Errorf("more than %d nodes, which is the most that Krait reads", maxNodes)
	}
	if p.nodes() > nodes {
		p.g.Nodes[nodes].Note = strings.TrimSpace(comment)
	}
	s.end()
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

func (p *parser) statement(s *scanner) {
	switch {
	case p.g == nil:
		p.header(s)
		return
	case s.eat("block "):
		p.block = s.word(".")
		if BlockOf(p.block+".x") != p.block {
			panic(fmt.Errorf("%q is not a block; a block is layers.N", p.block))
		}
		return
	case s.eat("output "):
		name := s.word(".")
		s.expect("=")
		bail.If(p.g.AddOutput(name, p.ref(s)))
		return
	}
	for _, op := range []string{"input", "param", "state"} {
		if s.eat(op + " ") {
			p.leaf(s, byName[op])
			return
		}
	}
	p.node(s)
}

func (p *parser) header(s *scanner) {
	s.expect("graph")
	name := s.quoted()
	s.expect("stage=")
	w := s.word("")
	stage, ok := ParseStage(w)
	if !ok {
		panic(fmt.Errorf("unknown stage %q", w))
	}
	s.expect("ranks=")
	ranks := s.int()
	if ranks < 1 || ranks > MaxRanks {
		panic(fmt.Errorf("ranks=%d; it must be from 1 to %d", ranks, MaxRanks))
	}
	if s.eat("version=") {
		bail.If(versions.Graph.Accept(s.int()))
	}
	p.g = NewGraph(name, stage, ranks)
	if s.eat("mesh=") {
		p.g.Mesh = bail.Of(ParseMesh(s.word("=,")))
	}
}

// name reads a value's name and completes it: relative to the block without a leading "/".
func (s *scanner) name(block, sigils string) (string, byte) {
	s.blank()
	if s.rest == "" || strings.IndexByte(sigils, s.rest[0]) < 0 {
		panic(fmt.Errorf("expected a name that begins with %s, found %q", strings.Join(strings.Split(sigils, ""), " or "), s.rest))
	}
	sigil := s.rest[0]
	s.rest = s.rest[1:]
	absolute := strings.HasPrefix(s.rest, "/")
	s.rest = strings.TrimPrefix(s.rest, "/")
	w := s.word(".")
	if !validPath(w) {
		panic(fmt.Errorf("%q is not a name for a value", w))
	}
	if block != "" && !absolute {
		w = block + "." + w
	}
	return w, sigil
}

func (p *parser) ref(s *scanner) *Value {
	name, sigil := s.name(p.block, "%@")
	v, ok := p.g.Value(name)
	if !ok {
		panic(fmt.Errorf("%s is not defined above", name))
	}
	if param := v.Def.Op.Name == "param"; param != (sigil == '@') {
		panic(fmt.Errorf("%s: parameters are written @, other values %%", name))
	}
	return v
}

func (p *parser) leaf(s *scanner, op *Op) {
	sigil := "%"
	if op.Name == "param" {
		sigil = "@"
	}
	name, _ := s.name(p.block, sigil)
	s.expect(":")
	n := &Node{Op: op, Attrs: Attrs{}}
	var t Type
	t, n.Storage, n.Part = s.stored(p.block)
	bail.If(p.g.append(n, []string{name}, []Type{t}))
}

// node reads %c %s = conv1d %x @w %s0 %/seg {…} : T, T.
func (p *parser) node(s *scanner) {
	var names []string
	for !s.eat("=") {
		name, _ := s.name(p.block, "%")
		names = append(names, name)
	}
	w := s.word("")
	op, ok := Lookup(w)
	if !ok || op.Class == Leaf {
		panic(Unknown(w))
	}
	n := &Node{Op: op}
	for s.blank(); strings.HasPrefix(s.rest, "%") || strings.HasPrefix(s.rest, "@"); s.blank() {
		n.Args = append(n.Args, p.ref(s))
	}
	types, narrow := p.typed(s, n)
	if len(names) == 0 || len(names) != len(types) {
		panic(fmt.Errorf("%s: %d results named, %d types", op.Name, len(names), len(types)))
	}
	bail.If(p.g.append(n, names, types))
	for i, v := range narrow {
		n.Results[i].Narrow = v
	}
}

// typed reads a node's attributes, and the types after ":", or infers them if none are given, and
// in which batches each value is in bf16 or in pieces.
func (p *parser) typed(s *scanner, n *Node) (types []Type, narrow []Narrow) {
	attrs := s.attrs(n.Op)
	defer bail.In(func() string { return n.Op.Name })
	n.Attrs = bail.Of(n.Op.complete(attrs))
	if !s.eat(":") {
		return bail.Of(inferOver(n, p.g.over())), nil
	}
	for {
		types, narrow = append(types, s.typ()), append(narrow, s.narrow())
		if !s.eat(",") {
			return types, narrow
		}
	}
}

package lowering

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// ParseSchedule reads what [Schedule.String] writes. What cannot be read is an
// error that names the line; whether the schedule is right is the business of
// [Schedule.Check].
func ParseSchedule(text string) (*Schedule, error) {
	p := &parser{refs: map[string]Ref{}, outputs: map[string]bool{}}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.s == nil {
		return nil, errors.New(`no schedule: the text must begin with a line such as schedule "name" rank=0 ranks=1`)
	}
	return p.s, nil
}

type parser struct {
	s       *Schedule
	refs    map[string]Ref // by the name of the value
	outputs map[string]bool
}

func (p *parser) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	if (p.s == nil) != (word == "schedule") {
		return fmt.Errorf("the first line, and no other, is the schedule's name and ranks, found %q", line)
	}
	switch word {
	case "schedule":
		return p.header(rest)
	case "region":
		return p.region(rest)
	case "buffer":
		return p.buffer(rest)
	case "view":
		return p.view(rest)
	case "init":
		return p.step(rest, Compute, &p.s.Init)
	case "record":
		return p.event(Record, rest)
	case "wait":
		return p.event(Wait, rest)
	case "output":
		return p.output(rest)
	}
	stream, err := find(streamNames[:], word)
	if err != nil {
		return err
	}
	return p.step(rest, Stream(stream), &p.s.Steps)
}

func find(names []string, word string) (int, error) {
	for i, n := range names {
		if n == word {
			return i, nil
		}
	}
	return 0, fmt.Errorf("expected one of %s, found %q", strings.Join(names, ", "), word)
}

func (p *parser) header(rest string) error {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil || quoted[0] != '"' {
		return fmt.Errorf("expected a quoted name at %q", rest)
	}
	s := &Schedule{}
	if s.Name, err = strconv.Unquote(quoted); err != nil {
		return err
	}
	if err := scan(rest[len(quoted):], " rank=%d ranks=%d", &s.Rank, &s.Ranks); err != nil {
		return err
	}
	if s.Ranks < 1 || s.Ranks > graph.MaxRanks || s.Rank < 0 || s.Rank >= s.Ranks {
		return fmt.Errorf("there is no rank %d of %d", s.Rank, s.Ranks)
	}
	p.s = s
	return nil
}

// scan is Sscanf for a text that must be exactly what it reads.
func scan(text, format string, args ...any) error {
	_, err := fmt.Sscanf(text, format, args...)
	if err == nil {
		var back []any
		for _, a := range args {
			switch a := a.(type) {
			case *int:
				back = append(back, *a)
			case *int64:
				back = append(back, *a)
			}
		}
		if fmt.Sprintf(format, back...) == text {
			return nil
		}
	}
	return fmt.Errorf("expected %q, found %q", strings.ReplaceAll(format, "%d", "N"), text)
}

func (p *parser) region(rest string) error {
	name, rest, _ := strings.Cut(rest, " ")
	space, err := find(spaceNames[:], name)
	if err != nil {
		return err
	}
	return scan(rest, "%d bytes", &p.s.Bytes[space])
}

// buffer reads x token+64 24 bytes : f32[t 6].
func (p *parser) buffer(rest string) error {
	head, typ, _ := strings.Cut(rest, " : ")
	name, place, _ := strings.Cut(head, " ")
	space, place, _ := strings.Cut(place, "+")
	i, err := find(spaceNames[:], space)
	if err != nil {
		return err
	}
	kind := "param @"
	if s := Space(i); s == State || s == Cache {
		kind = "state %"
	}
	n, err := p.leaf(kind, name, typ)
	if err != nil {
		return err
	}
	b := Buffer{Name: name, Type: n.Results[0].Type, Storage: n.Storage, Part: n.Part, Space: Space(i)}
	if err := scan(place, "%d %d bytes", &b.Offset, &b.Bytes); err != nil {
		return err
	}
	local := p.s.Local(b.Type)
	p.s.Buffers = append(p.s.Buffers, b)
	return p.define(Ref{Name: name, Type: b.Type, Buffer: len(p.s.Buffers) - 1, Stride: graph.RowElems(local.Dims)})
}

// view reads z = xz[256:512] : f32[t 256].
func (p *parser) view(rest string) error {
	head, typ, _ := strings.Cut(rest, " : ")
	name, of, _ := strings.Cut(head, " = ")
	of, place, _ := strings.Cut(of, "[")
	n, err := p.leaf("param @", name, typ)
	if err != nil {
		return err
	}
	base, err := p.ref(of)
	if err != nil {
		return err
	}
	r := Ref{Name: name, Type: n.Results[0].Type, Buffer: base.Buffer}
	if err := scan(place, "%d:%d]", &r.Offset, &r.Stride); err != nil {
		return err
	}
	return p.define(r)
}

// node reads a line of graph text, of which types, storage and attributes are
// parts of schedule text.
func (p *parser) node(line string) (*graph.Node, error) {
	g, err := graph.Parse(fmt.Sprintf("graph \"\" stage=fused ranks=%d\n%s", p.s.Ranks, line))
	if err != nil {
		_, reason, _ := strings.Cut(err.Error(), ": ")
		return nil, errors.New(reason)
	}
	if len(g.Nodes) != 1 {
		return nil, fmt.Errorf("cannot read %q", line)
	}
	return g.Nodes[0], nil
}

// leaf reads a type, and the storage or the part where there is one.
func (p *parser) leaf(kind, name, typ string) (*graph.Node, error) {
	n, err := p.node(kind + name + " : " + typ)
	if err == nil && n.Name() != name {
		err = fmt.Errorf("%q is no name for a value", name)
	}
	return n, err
}

func (p *parser) define(r Ref) error {
	if _, ok := p.refs[r.Name]; ok {
		return fmt.Errorf("%s is defined already", r.Name)
	}
	p.refs[r.Name] = r
	return nil
}

func (p *parser) ref(name string) (Ref, error) {
	r, ok := p.refs[name]
	if !ok {
		return r, fmt.Errorf("there is no tensor %q", name)
	}
	return r, nil
}

func (p *parser) list(text string) ([]Ref, error) {
	out := []Ref{}
	if text == "" {
		return out, nil
	}
	for name := range strings.SplitSeq(text, ", ") {
		r, err := p.ref(name)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// step reads c, new = conv1d x, w, past, seg {eps=1e-05}.
func (p *parser) step(rest string, stream Stream, to *[]Step) error {
	results, call, ok := strings.Cut(rest, " = ")
	if !ok {
		return fmt.Errorf("expected a result and an operation, found %q", rest)
	}
	call, attrs, braces := strings.Cut(call, " {")
	if braces {
		attrs = "{" + attrs
	}
	op, args, _ := strings.Cut(call, " ")
	n, err := p.node("%r = " + op + " " + attrs + " : f32[1]")
	if err != nil {
		return err
	}
	st := Step{Stream: stream, Op: n.Op, Attrs: n.Attrs}
	if st.Kind, err = kindOf(n.Op); err != nil {
		return err
	}
	if st.Results, err = p.list(results); err != nil {
		return err
	}
	if st.Args, err = p.list(args); err != nil {
		return err
	}
	if len(st.Results) == 0 {
		return errors.New("a step without a result")
	}
	st.Name = st.Results[0].Name
	if st.Cost, err = costOf(&st); err != nil {
		return err
	}
	*to = append(*to, st)
	return nil
}

// costOf works out again what the graph's node cost. Operands that do not fit
// the operation are an error.
func costOf(st *Step) (c graph.Cost, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: the operands do not fit: %v", st.Name, r)
		}
	}()
	n := &graph.Node{Op: st.Op, Attrs: st.Attrs}
	for _, r := range st.Args {
		n.Args = append(n.Args, &graph.Value{Name: r.Name, Type: r.Type, Def: n})
	}
	for _, r := range st.Results {
		n.Results = append(n.Results, &graph.Value{Name: r.Name, Type: r.Type, Def: n})
	}
	return n.Cost(), nil
}

func (p *parser) event(kind Kind, rest string) error {
	number, stream, _ := strings.Cut(rest, " on ")
	st := Step{Kind: kind}
	if err := scan(number, "%d", &st.Event); err != nil {
		return err
	}
	i, err := find(streamNames[:], stream)
	st.Stream = Stream(i)
	p.s.Steps = append(p.s.Steps, st)
	return err
}

func (p *parser) output(rest string) error {
	name, of, _ := strings.Cut(rest, " = ")
	r, err := p.ref(of)
	if err != nil {
		return err
	}
	if name == "" || p.outputs[name] {
		return fmt.Errorf("output %q has no name, or one that is taken", name)
	}
	p.outputs[name] = true
	p.s.Outputs = append(p.s.Outputs, Output{name, r})
	return nil
}

package lowering

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// ParseSchedule reads what [Schedule.String] writes. What cannot be read is an
// error that names the line; whether the schedule is right is the business of
// [Schedule.Check].
func ParseSchedule(text string) (*Schedule, error) {
	p := &parser{refs: map[string]Ref{}, outputs: map[string]bool{}}
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "output "); ok {
			name, _, _ := strings.Cut(rest, " = ")
			p.names = append(p.names, name)
		}
	}
	for i, line := range lines {
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
	names   []string // of all outputs, which stand at the end
}

func (p *parser) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	if (p.s == nil) != (word == "schedule") {
		return fmt.Errorf("the first line, and no other, is the schedule's name and ranks, found %q", line)
	}
	switch word {
	case "schedule":
		return p.header(rest)
	case "pieces":
		return p.pieces(rest)
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
	case "loop":
		return p.loop(rest)
	}
	return p.onStream(word, rest)
}

func (p *parser) onStream(word, rest string) error {
	stream, err := find(streamNames[:], word)
	if err != nil {
		return err
	}
	return p.step(rest, Stream(stream), &p.s.Steps)
}

// pieces reads of 512 tokens.
func (p *parser) pieces(rest string) error {
	if p.s.PieceTokens != 0 {
		return errors.New("how long pieces are is said twice")
	}
	if err := scan(rest, "of %d tokens", &p.s.PieceTokens); err != nil {
		return err
	}
	if n := p.s.PieceTokens; n < 1 || n > graph.MaxPiece {
		return fmt.Errorf("pieces of %d tokens; the size must be from 1 to %d", n, graph.MaxPiece)
	}
	return nil
}

// loop reads 1 compute y = matmul x, w.
func (p *parser) loop(rest string) error {
	number, step, _ := strings.Cut(rest, " ")
	word, step, _ := strings.Cut(step, " ")
	n := 0
	if err := scan(number, "%d", &n); err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("loop %d; they count from 1", n)
	}
	if err := p.onStream(word, step); err != nil {
		return err
	}
	p.s.Steps[len(p.s.Steps)-1].Loop = n
	return nil
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
	rest, serves, err := p.serves(rest)
	if err != nil {
		return err
	}
	head, typ, _ := strings.Cut(rest, " : ")
	head, narrow, _ := strings.Cut(head, " as ")
	name, at, _ := strings.Cut(head, " ")
	sign := strings.IndexAny(at, "+-") // below 0: in the region before
	if sign < 0 {
		return fmt.Errorf("%q is not a place of a region", at)
	}
	space, at := at[:sign], strings.TrimPrefix(at[sign:], "+")
	i, err := find(spaceNames[:], space)
	if err != nil {
		return err
	}
	b := Buffer{Name: name, Space: Space(i), For: serves}
	if b.Type, b.Storage, b.Part, err = graph.ParseStored(typ); err != nil {
		return err
	}
	if b.Narrow, err = graph.ParseNarrow(narrow); err != nil {
		return err
	}
	if err := scan(at, "%d %d bytes", &b.Offset, &b.Bytes); err != nil {
		return err
	}
	p.s.Buffers = append(p.s.Buffers, b)
	return p.define(Ref{Name: name, Type: b.Type, Buffer: len(p.s.Buffers) - 1, Stride: graph.RowElems(p.s.Local(b.Type).Dims)})
}

// view reads z = xz[256:512] : f32[t 256].
func (p *parser) view(rest string) error {
	head, typ, _ := strings.Cut(rest, " : ")
	name, of, _ := strings.Cut(head, " = ")
	of, at, _ := strings.Cut(of, "[")
	t, err := graph.ParseType(typ)
	if err != nil {
		return err
	}
	base, err := p.ref(of)
	if err != nil {
		return err
	}
	r := Ref{Name: name, Type: t, Buffer: base.Buffer}
	if err := scan(at, "%d:%d]", &r.Offset, &r.Stride); err != nil {
		return err
	}
	return p.define(r)
}

// define names a tensor.
func (p *parser) define(r Ref) error {
	if !graph.ValidName(r.Name) {
		return fmt.Errorf("%q is not a name for a value", r.Name)
	}
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
	rest, serves, err := p.serves(rest)
	if err != nil {
		return err
	}
	results, call, ok := strings.Cut(rest, " = ")
	if !ok {
		return fmt.Errorf("expected a result and an operation, found %q", rest)
	}
	call, attrs, braces := strings.Cut(call, " {")
	if braces {
		attrs = "{" + attrs
	}
	name, args, _ := strings.Cut(call, " ")
	op, ok := graph.Lookup(name)
	if !ok {
		return graph.Unknown(name)
	}
	st := Step{Stream: stream, Op: op, For: serves}
	if st.Kind, err = kindOf(op); err != nil {
		return err
	}
	if st.Attrs, err = graph.ParseAttrs(op, attrs); err != nil {
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
	if st.Cost, err = graph.CostOf(op, st.Attrs, st.ArgTypes(), typesOf(st.Results)); err != nil {
		return fmt.Errorf("%s: the operands do not fit %s: %w", st.Name, op.Name, err)
	}
	*to = append(*to, st)
	return nil
}

// serves cuts off the outputs that a line is for, where it says so at its end.
func (p *parser) serves(line string) (rest string, outputs []int, err error) {
	at := strings.LastIndex(line, " for ")
	if at < 0 || strings.ContainsAny(line[at:], `"}`) { // in a text
		return line, nil, nil
	}
	for name := range strings.SplitSeq(line[at+len(" for "):], ", ") {
		i := slices.Index(p.names, name)
		if i < 0 {
			return "", nil, fmt.Errorf("unknown output %q", name)
		}
		outputs = append(outputs, i)
	}
	return line[:at], outputs, nil
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

package lowering

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/bail"
	"github.com/krait-ml/krait/internal/versions"
)

// ParseSchedule reads what [Schedule.String] writes. What cannot be read is an error that names the
// line; whether the schedule is right is the business of [Schedule.Check].
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
		if err := p.read(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.s == nil {
		return nil, errors.New(`no schedule: the text must begin with a line such as schedule "name" rank=0 ranks=1`)
	}
	return p.s, nil
}

// parser parses a schedule, line by line. Its methods but read panic with their errors.
type parser struct {
	s       *Schedule
	refs    map[string]Ref // by the name of the value
	outputs map[string]bool
	names   []string // of all outputs, which stand at the end
}

func (p *parser) read(line string) (err error) {
	defer bail.Catch(&err)
	word, rest, _ := strings.Cut(line, " ")
	if (p.s == nil) != (word == "schedule") {
		panic(fmt.Errorf("the first line, and no other, is the schedule's name and ranks, found %q", line))
	}
	switch word {
	case "schedule":
		p.header(rest)
	case "pieces":
		p.pieces(rest)
	case "region":
		p.region(rest)
	case "buffer":
		p.buffer(rest)
	case "view":
		p.view(rest)
	case "init":
		p.step(rest, Compute, &p.s.Init)
	case "record":
		p.event(Record, rest)
	case "wait":
		p.event(Wait, rest)
	case "output":
		p.output(rest)
	case "loop":
		p.loop(rest)
	default:
		p.onStream(word, rest)
	}
	return nil
}

func (p *parser) onStream(word, rest string) {
	p.step(rest, Stream(find(streamNames[:], word)), &p.s.Steps)
}

// pieces reads of 512 tokens.
func (p *parser) pieces(rest string) {
	if p.s.PieceTokens != 0 {
		panic(errors.New("how long pieces are is said twice"))
	}
	scan(rest, "of %d tokens", &p.s.PieceTokens)
	if n := p.s.PieceTokens; n < 1 || n > graph.MaxPiece {
		panic(fmt.Errorf("pieces of %d tokens; the size must be from 1 to %d", n, graph.MaxPiece))
	}
}

// loop reads 1 compute y = matmul x, w.
func (p *parser) loop(rest string) {
	number, step, _ := strings.Cut(rest, " ")
	word, step, _ := strings.Cut(step, " ")
	n := 0
	scan(number, "%d", &n)
	if n < 1 {
		panic(fmt.Errorf("loop %d; they count from 1", n))
	}
	p.onStream(word, step)
	p.s.Steps[len(p.s.Steps)-1].Loop = n
}

func find(names []string, word string) int {
	i := slices.Index(names, word)
	if i < 0 {
		panic(fmt.Errorf("expected one of %s, found %q", strings.Join(names, ", "), word))
	}
	return i
}

func (p *parser) header(rest string) {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil || quoted[0] != '"' {
		panic(fmt.Errorf("expected a quoted name at %q", rest))
	}
	s := &Schedule{}
	s.Name = bail.Of(strconv.Unquote(quoted))
	rest = rest[len(quoted):]
	if before, version, ok := strings.Cut(rest, " version="); ok {
		bail.If(versions.Schedule.Accept(bail.Of(strconv.Atoi(version))))
		rest = before
	}
	ranks, place, meshed := strings.Cut(rest, " mesh=")
	scan(ranks, " rank=%d ranks=%d", &s.Rank, &s.Ranks)
	if s.Ranks < 1 || s.Ranks > graph.MaxRanks || s.Rank < 0 || s.Rank >= s.Ranks {
		panic(fmt.Errorf("there is no rank %d of %d", s.Rank, s.Ranks))
	}
	if meshed {
		mesh, rest, _ := strings.Cut(place, " ")
		s.Mesh = bail.Of(graph.ParseMesh(mesh))
		scan(rest, "stage=%d replica=%d", &s.Stage, &s.Replica)
		bail.If(s.checkMesh())
	}
	p.s = s
}

// scan is Sscanf for a text that must be exactly what it reads.
func scan(text, format string, args ...any) {
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
			return
		}
	}
	panic(fmt.Errorf("expected %q, found %q", strings.ReplaceAll(format, "%d", "N"), text))
}

func (p *parser) region(rest string) {
	name, rest, _ := strings.Cut(rest, " ")
	scan(rest, "%d bytes", &p.s.Bytes[find(spaceNames[:], name)])
}

// buffer reads x token+64 24 bytes : f32[t 6].
func (p *parser) buffer(rest string) {
	rest, serves := p.serves(rest)
	head, typ, _ := strings.Cut(rest, " : ")
	head, narrow, _ := strings.Cut(head, " as ")
	name, at, _ := strings.Cut(head, " ")
	sign := strings.IndexAny(at, "+-") // below 0: in the region before
	if sign < 0 {
		panic(fmt.Errorf("%q is not a place of a region", at))
	}
	space, at := at[:sign], strings.TrimPrefix(at[sign:], "+")
	b := Buffer{Name: name, Space: Space(find(spaceNames[:], space)), For: serves}
	var err error
	b.Type, b.Storage, b.Part, err = graph.ParseStored(typ)
	bail.If(err)
	b.Narrow = bail.Of(graph.ParseNarrow(narrow))
	scan(at, "%d %d bytes", &b.Offset, &b.Bytes)
	p.s.Buffers = append(p.s.Buffers, b)
	p.define(Ref{Name: name, Type: b.Type, Buffer: len(p.s.Buffers) - 1, Stride: graph.RowElems(p.s.Local(b.Type).Dims)})
}

// view reads z = xz[256:512] : f32[t 256].
func (p *parser) view(rest string) {
	head, typ, _ := strings.Cut(rest, " : ")
	name, of, _ := strings.Cut(head, " = ")
	of, at, _ := strings.Cut(of, "[")
	t := bail.Of(graph.ParseType(typ))
	base := p.ref(of)
	r := Ref{Name: name, Type: t, Buffer: base.Buffer}
	scan(at, "%d:%d]", &r.Offset, &r.Stride)
	p.define(r)
}

// define names a tensor.
func (p *parser) define(r Ref) {
	if !graph.ValidName(r.Name) {
		panic(fmt.Errorf("%q is not a name for a value", r.Name))
	}
	if _, ok := p.refs[r.Name]; ok {
		panic(fmt.Errorf("%s is defined already", r.Name))
	}
	p.refs[r.Name] = r
}

func (p *parser) ref(name string) Ref {
	r, ok := p.refs[name]
	if !ok {
		panic(fmt.Errorf("there is no tensor %q", name))
	}
	return r
}

func (p *parser) list(text string) []Ref {
	out := []Ref{}
	if text == "" {
		return out
	}
	for name := range strings.SplitSeq(text, ", ") {
		out = append(out, p.ref(name))
	}
	return out
}

// step reads c, new = conv1d x, w, past, seg {eps=1e-05}.
func (p *parser) step(rest string, stream Stream, to *[]Step) {
	rest, serves := p.serves(rest)
	if args, ok := strings.CutPrefix(rest, Send.Name+" "); ok {
		*to = append(*to, p.s.passing(Send, p.list(args), stream))
		return
	}
	if strings.HasPrefix(rest, SendStates.Name+" ") {
		*to = append(*to, p.turn(SendStates, rest))
		return
	}
	results, call, ok := strings.Cut(rest, " = ")
	if call == Receive.Name {
		*to = append(*to, p.s.passing(Receive, p.list(results), stream))
		return
	}
	if !ok {
		panic(fmt.Errorf("expected a result and an operation, found %q", rest))
	}
	if strings.HasPrefix(call, ReceiveStates.Name+" ") {
		*to = append(*to, p.turn(ReceiveStates, call))
		return
	}
	call, attrs, braces := strings.Cut(call, " {")
	if braces {
		attrs = "{" + attrs
	}
	name, args, _ := strings.Cut(call, " ")
	op, ok := graph.Lookup(name)
	if !ok {
		panic(graph.Unknown(name))
	}
	st := Step{Stream: stream, Op: op, For: serves}
	st.Kind = bail.Of(kindOf(op))
	st.Attrs = bail.Of(graph.ParseAttrs(op, attrs))
	st.Results, st.Args = p.list(results), p.list(args)
	if len(st.Results) == 0 {
		panic(errors.New("a step without a result"))
	}
	st.Name = st.Results[0].Name
	var err error
	if st.Cost, err = graph.CostOf(op, st.Attrs, st.ArgTypes(), typesOf(st.Results)); err != nil {
		panic(fmt.Errorf("%s: the operands do not fit %s: %w", st.Name, op.Name, err))
	}
	*to = append(*to, st)
}

// turn reads send_states h, seg {peer=1}, and what is right of the = of receive_states.
func (p *parser) turn(op *graph.Op, call string) Step {
	args, attrs, _ := strings.Cut(strings.TrimPrefix(call, op.Name+" "), " {")
	list := p.list(args)
	a := bail.Of(graph.ParseAttrs(op, "{"+attrs))
	return p.s.passingStates(op, list[:len(list)-1], list[len(list)-1], a.Int(peerAttr))
}

// serves cuts off the outputs that a line is for, where it says so at its end.
func (p *parser) serves(line string) (rest string, outputs []int) {
	at := strings.LastIndex(line, " for ")
	if at < 0 || strings.ContainsAny(line[at:], `"}`) { // in a text
		return line, nil
	}
	for name := range strings.SplitSeq(line[at+len(" for "):], ", ") {
		i := slices.Index(p.names, name)
		if i < 0 {
			panic(fmt.Errorf("unknown output %q", name))
		}
		outputs = append(outputs, i)
	}
	return line[:at], outputs
}

func (p *parser) event(kind Kind, rest string) {
	number, stream, _ := strings.Cut(rest, " on ")
	st := Step{Kind: kind}
	scan(number, "%d", &st.Event)
	st.Stream = Stream(find(streamNames[:], stream))
	p.s.Steps = append(p.s.Steps, st)
}

func (p *parser) output(rest string) {
	name, of, _ := strings.Cut(rest, " = ")
	r := p.ref(of)
	if name == "" || p.outputs[name] {
		panic(fmt.Errorf("output %q has no name, or one that is taken", name))
	}
	p.outputs[name] = true
	p.s.Outputs = append(p.s.Outputs, Output{name, r})
}

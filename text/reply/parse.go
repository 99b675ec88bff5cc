package reply

import (
	"encoding/json"
	"strings"
)

// Output is what a piece of an answer adds: the rest of a thought, what is said, and then calls.
type Output struct {
	Reasoning, Content string
	Calls              []Delta
}

// Delta is a part of a call: its name, or more of its arguments.
type Delta struct {
	Index     int    // of the call
	Name      string // empty but in the first part of a call
	Arguments string // JSON, joined
}

// Add adds what follows.
func (o *Output) Add(more Output) {
	o.Reasoning += more.Reasoning
	o.Content += more.Content
	for _, d := range more.Calls {
		if n := len(o.Calls); d.Name == "" && n > 0 && o.Calls[n-1].Index == d.Index {
			o.Calls[n-1].Arguments += d.Arguments
			continue
		}
		o.Calls = append(o.Calls, d)
	}
}

// Empty reports whether there is nothing.
func (o *Output) Empty() bool { return o.Reasoning == "" && o.Content == "" && len(o.Calls) == 0 }

// Parser reads an answer as it is generated. How it comes in pieces makes no difference to the
// joined outputs. It is for one answer, and not safe for concurrent use.
type Parser struct {
	c     *Config
	held  string // read and not understood yet
	step  step
	ended bool
	cut   bool // the answer was cut off

	calls int   // begun
	tool  *Tool // of the call
	some  bool  // it has arguments
	scan  scanner
}

// step takes what it can of held. It returns the next step, or nil to wait for more.
type step func(p *Parser, out *Output) step

// maxSpace is how many bytes of white space wait for what follows.
const maxSpace = 64

const spaces = " \t\r\n"

// Parser begins an answer.
func (c *Config) Parser() *Parser {
	p := &Parser{c: c, step: said}
	switch c.Thoughts {
	case May:
		p.step = opening
	case Begun:
		p.step = thinkingBegins
	}
	return p
}

// Push takes the next piece.
func (p *Parser) Push(text string) (out Output) {
	p.held += text
	for next := p.step(p, &out); next != nil; next = p.step(p, &out) {
		p.step = next
	}
	out.Reasoning, out.Content = unmarked(out.Reasoning), unmarked(out.Content)
	return out
}

// End ends the answer; cut says that it was cut off, so that what may be the beginning of a call is
// none of its content.
func (p *Parser) End(cut bool) Output {
	p.ended, p.cut = true, cut
	return p.Push("")
}

// Format is how the answer writes calls; nil: it has none.
func (p *Parser) Format() *Format { return p.c.Format }

// Calls is how many calls have begun.
func (p *Parser) Calls() int { return p.calls }

// unmarked drops what marks special tokens.
func unmarked(text string) string { return strings.ReplaceAll(text, Special, "") }

// upTo splits off what comes before a marker. If that has not come yet, the text is what cannot be
// its beginning, nor white space before it; the last of an ended text is whole.
func (p *Parser) upTo(marker string) (text string, found bool) {
	if before, after, ok := strings.Cut(p.held, marker); ok {
		p.held = after
		return trimRight(before), true
	}
	begun := overlap(p.held, marker)
	if keep := len(p.held) - begun; !p.ended {
		text = trimRight(p.held[:keep])
	} else if text = p.held; p.cut && begun > 0 {
		text = trimRight(text[:keep])
		p.held = text
	}
	p.held = p.held[len(text):]
	return text, false
}

// trimRight cuts white space off the end, maxSpace bytes at most.
func trimRight(text string) string {
	return text[:max(len(strings.TrimRight(text, spaces)), len(text)-maxSpace)]
}

// trimLeft cuts white space off the beginning, and reports whether there was no more than maxSpace.
func trimLeft(text string) (string, bool) {
	trimmed := strings.TrimLeft(text, spaces)
	return trimmed, len(text)-len(trimmed) <= maxSpace
}

// overlap is the longest beginning of a marker, but not all of it, that a text ends with.
func overlap(text, marker string) int {
	for n := min(len(text), len(marker)-1); n > 0; n-- {
		if strings.HasSuffix(text, marker[:n]) {
			return n
		}
	}
	return 0
}

// starts reports whether held begins with a text, or is a beginning of it.
func (p *Parser) starts(text string) (does, may bool) {
	return strings.HasPrefix(p.held, text), (p.held != "" || !p.ended) && strings.HasPrefix(text, p.held)
}

// opening is before an answer that may begin with a thought.
func opening(p *Parser, _ *Output) step {
	tag := p.c.marked(thinkOpen)
	trimmed, few := trimLeft(p.held)
	switch {
	case few && strings.HasPrefix(trimmed, tag):
		p.held = trimmed[len(tag):]
		return thinkingBegins
	case few && strings.HasPrefix(tag, trimmed) && (!p.ended || p.cut && trimmed != ""):
		return nil
	}
	return said
}

// skipSpace drops white space, and reports whether something else has come.
func (p *Parser) skipSpace() bool {
	p.held = strings.TrimLeft(p.held, spaces)
	return p.held != ""
}

func thinkingBegins(p *Parser, _ *Output) step {
	if !p.skipSpace() {
		return nil
	}
	return thinking
}

func thinking(p *Parser, out *Output) step {
	text, found := p.upTo(p.c.marked(thinkClose))
	out.Reasoning += text
	if !found {
		return nil
	}
	return thought
}

// thought is behind a thought.
func thought(p *Parser, _ *Output) step {
	if !p.skipSpace() {
		return nil
	}
	return said
}

// said is where the model says something, or begins calls.
func said(p *Parser, out *Output) step {
	f := p.c.Format
	switch {
	case f == nil:
		return rest(p, out)
	case f.anchored:
		trimmed, few := trimLeft(p.held)
		switch {
		case few && strings.HasPrefix(trimmed, f.trigger):
			p.held = trimmed[len(f.trigger):]
			return begun
		case few && strings.HasPrefix(f.trigger, trimmed) && (!p.ended || p.cut && trimmed != ""):
			return nil
		}
		return rest
	}
	text, found := p.upTo(f.trigger)
	out.Content += text
	if !found {
		return nil
	}
	return begun
}

// rest is content to the end.
func rest(p *Parser, out *Output) step {
	out.Content += p.held
	p.held = ""
	return nil
}

// literal takes a text, and goes on with next. Anything else, which the grammar does not allow, is
// content to the end.
func (p *Parser) literal(text string, next step) step {
	if does, may := p.starts(text); does {
		p.held = p.held[len(text):]
		return next
	} else if may || p.ended {
		return nil
	}
	return rest
}

func begun(p *Parser, _ *Output) step {
	f := p.c.Format
	return p.literal((f.open + f.before)[len(f.trigger):], name)
}

func name(p *Parser, out *Output) step {
	before, behind, found := strings.Cut(p.held, p.c.Format.between)
	switch {
	case found && (before == "" || len(before) > maxName):
		return rest
	case !found:
		if len(p.held) > maxName+len(p.c.Format.between) {
			return rest
		}
		return nil
	}
	p.held, p.tool, p.some = behind, p.c.tool(before), false
	out.Calls = append(out.Calls, Delta{Index: p.calls, Name: before})
	p.calls++
	if p.c.Format.args == asJSON {
		p.scan = scanner{}
		return object
	}
	p.argue(out, "{")
	return argument
}

// maxName bounds the name of a call.
const maxName = 256

// argue adds to the arguments of the call.
func (p *Parser) argue(out *Output, text string) {
	if n := len(out.Calls); n > 0 && out.Calls[n-1].Index == p.calls-1 {
		out.Calls[n-1].Arguments += text
	} else if text != "" {
		out.Calls = append(out.Calls, Delta{Index: p.calls - 1, Arguments: text})
	}
}

// object takes arguments that are a JSON object.
func object(p *Parser, out *Output) step {
	n, ended := p.scan.value(p.held)
	p.argue(out, p.held[:n])
	p.held = p.held[n:]
	if !ended {
		return nil
	}
	return after
}

func after(p *Parser, _ *Output) step {
	return p.literal(p.c.Format.after, next)
}

// next is behind a call: another one, or what closes them.
func next(p *Parser, _ *Output) step {
	f := p.c.Format
	return p.either(f.sep+f.before, name, f.close, closed)
}

// either goes on by one of two texts, of which none begins with the other.
func (p *Parser) either(a string, after step, b string, behind step) step {
	if p.held == "" && b != "" {
		return nil
	}
	if does, may := p.starts(a); does || may {
		return p.literal(a, after)
	}
	return p.literal(b, behind)
}

// closed is behind all calls.
func closed(p *Parser, _ *Output) step {
	if !p.skipSpace() {
		return nil
	}
	return rest
}

// argument is before an argument, or behind the last.
func argument(p *Parser, _ *Output) step {
	if p.c.Format.args == asParameters {
		return p.either(parameter, key, p.c.Format.after, completed)
	}
	switch {
	case p.held == "":
		return nil
	case strings.HasPrefix(p.held, p.c.Format.after):
		p.held = p.held[len(p.c.Format.after):]
		return completed
	case p.some:
		return p.literal(", ", key)
	}
	return key
}

// completed is behind arguments that are no JSON.
func completed(p *Parser, out *Output) step {
	p.argue(out, "}")
	return next
}

func key(p *Parser, out *Output) step {
	end := "="
	if p.c.Format.args == asParameters {
		end = ">\n"
	}
	name, rest, found := strings.Cut(p.held, end)
	if !found {
		return nil
	}
	p.held = rest
	quoted, err := json.Marshal(name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	text := string(quoted) + ": "
	if p.some {
		text = ", " + text
	}
	p.argue(out, text)
	p.some, p.scan = true, scanner{python: p.c.Format.args == asKeywords}
	if p.c.Format.args == asKeywords {
		return keyword
	}
	if a := p.property(name); a != nil && a.bare {
		p.argue(out, `"`)
		return bareValue
	}
	return jsonValue
}

// property is the argument of a name, nil if the tool has none.
func (p *Parser) property(name string) *property {
	if p.tool == nil {
		return nil
	}
	return p.tool.property(name)
}

// keyword takes a value in Python's notation, up to a comma or bracket.
func keyword(p *Parser, out *Output) step {
	n, ended := p.scan.value(p.held)
	text := p.held[:n]
	p.held = p.held[n:]
	p.argue(out, p.scan.speller.spell(text, ended))
	if !ended {
		return nil
	}
	return argument
}

// bareValue takes a string without quotes.
func bareValue(p *Parser, out *Output) step {
	text, found := p.parameterUpTo()
	p.argue(out, escaped(text))
	if !found {
		return nil
	}
	p.argue(out, `"`)
	return parameterEnds
}

// jsonValue takes a value that is JSON.
func jsonValue(p *Parser, out *Output) step {
	text, found := p.parameterUpTo()
	p.argue(out, text)
	if !found {
		return nil
	}
	return parameterEnds
}

func (p *Parser) parameterUpTo() (text string, found bool) {
	if before, after, ok := strings.Cut(p.held, parameterEnd); ok {
		p.held = after
		return before, true
	}
	keep := len(p.held) - overlap(p.held, parameterEnd)
	text, p.held = p.held[:keep], p.held[keep:]
	return text, false
}

func parameterEnds(p *Parser, _ *Output) step { return p.literal("\n", argument) }

// escaped is a text inside the quotes of a JSON string. It may end within a character.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c < ' ':
			b.WriteString(`\u00` + string("01"[c>>4]) + string("0123456789abcdef"[c&15]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// scanner finds the end of a value.
type scanner struct {
	python         bool // it may also be behind the value: a comma or bracket
	depth          int
	quoted, escape bool
	speller        speller
}

// value returns how many bytes of the text are of the value, and whether it ends there.
func (s *scanner) value(text string) (n int, ended bool) {
	for i := range len(text) {
		c := text[i]
		switch {
		case s.quoted:
			s.quoted = c != '"' || s.escape
			s.escape = c == '\\' && !s.escape
			continue
		case s.python && s.depth == 0 && (c == ',' || c == ')'):
			return i, true
		case c == '"':
			s.quoted = true
		case c == '{' || c == '[' || c == '(':
			s.depth++
		case c == '}' || c == ']' || c == ')':
			if s.depth--; s.depth <= 0 && !s.python {
				return i + 1, true
			}
		}
	}
	return len(text), false
}

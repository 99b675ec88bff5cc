package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// deepest is how deep what is written may be nested, and deepestCall how deep calls may.
const deepest, deepestCall = 200, 100

// parser parses tokens by recursive descent. Its methods panic with an [*Error], which Parse
// returns.
type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int // around
	// Whether the macro around uses these names.
	varargs, kwargs bool
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != end {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{Line: p.peek().line, Message: fmt.Sprintf(format, args...)}
}

// is reports whether the next token is that, and take takes it then.
func (p *parser) is(k kind, text string) bool { t := p.peek(); return t.kind == k && t.text == text }

func (p *parser) take(k kind, text string) bool {
	if p.is(k, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) want(k kind, text string) {
	if !p.take(k, text) {
		panic(p.fail("%q is expected, found %s", text, p.peek()))
	}
}

func (p *parser) wantName() string {
	if p.peek().kind != name {
		panic(p.fail("a name is expected, found %s", p.peek()))
	}
	return p.next().text
}

// list calls one for each item up to a closing bracket; commas are between items.
func (p *parser) list(close string, one func()) {
	for !p.take(op, close) {
		if one(); !p.take(op, ",") && !p.is(op, close) {
			panic(p.fail(`"," or %q is expected, found %s`, close, p.peek()))
		}
	}
}

// deeper counts how deep the parser is, for [deepest]; what it returns counts back.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > deepest {
		panic(p.fail("it is nested more than %d deep", deepest))
	}
	return func() { p.depth-- }
}

// body parses statements up to a tag of one of these names, whose name it takes.
func (p *parser) body(ends ...string) (list []node, by string) {
	defer p.deeper()()
	for {
		switch t := p.next(); t.kind {
		case end:
			if len(ends) == 0 {
				return list, ""
			}
			panic(p.fail("the template ends, and %s is missing", strings.Join(ends, " or ")))
		case text:
			list = append(list, textNode{t.text})
		case outBegin:
			list = append(list, outNode{p.tuple(), t.line})
			p.want(outEnd, "}}")
		case tagBegin:
			word := p.wantName()
			if slices.Contains(ends, word) {
				return list, word
			}
			list = append(list, p.statement(word, t.line)...)
		}
	}
}

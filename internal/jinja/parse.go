package jinja

import "fmt"

// deepest is how deep what is written may be nested, and deepestCall how deep calls may.
const deepest, deepestCall = 200, 100

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

func (p *parser) want(k kind, text string) error {
	if !p.take(k, text) {
		return p.fail("%q is expected, found %s", text, p.peek())
	}
	return nil
}

func (p *parser) wantName() (string, error) {
	if p.peek().kind != name {
		return "", p.fail("a name is expected, found %s", p.peek())
	}
	return p.next().text, nil
}

// deeper counts how deep the parser is, for [deepest].
func (p *parser) deeper() (func(), error) {
	if p.depth++; p.depth > deepest {
		return nil, p.fail("it is nested more than %d deep", deepest)
	}
	return func() { p.depth-- }, nil
}

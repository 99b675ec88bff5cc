package jinja

import (
	"slices"
	"strconv"
)

// postfix parses fields, items and calls of what is before them. A chain of them is
// evaluated from its end, so that it counts as nested.
func (p *parser) postfix(x expr) expr {
	for n := 0; p.peek().kind == op; n++ {
		p.chained(n)
		t := p.peek()
		switch t.text {
		case ".":
			p.at++
			switch field := p.next(); field.kind {
			case name:
				x = attrExpr{x, field.text, t.line}
			case integer:
				n, _ := strconv.Atoi(field.text)
				x = itemExpr{x, literal{n}, t.line}
			default:
				p.at--
				p.wantName()
			}
		case "[":
			p.at++
			x = p.subscript(x, t.line)
		case "(":
			x = &callExpr{x, p.arguments(), t.line}
		default:
			return x
		}
	}
	return x
}

// chained refuses a chain of more than [deepest] filters, fields and calls.
func (p *parser) chained(n int) {
	if n > deepest {
		panic(p.fail("it is nested more than %d deep", deepest))
	}
}

func (p *parser) subscript(x expr, line int) expr {
	var parts [3]expr
	n, slice := 0, false
	for !p.is(op, "]") {
		if p.take(op, ":") {
			if slice, n = true, n+1; n > 2 {
				panic(p.fail("a slice has three parts"))
			}
			continue
		}
		if parts[n] = p.tuple(); !p.is(op, ":") && !p.is(op, "]") {
			p.want(op, "]")
		}
	}
	p.at++
	switch {
	case slice:
		return sliceExpr{x, parts[0], parts[1], parts[2], line}
	case parts[0] == nil:
		panic(p.fail("an index is expected"))
	}
	return itemExpr{x, parts[0], line}
}

// arguments parses those of a call, in brackets.
func (p *parser) arguments() (a arguments) {
	p.want(op, "(")
	p.list(")", func() {
		switch t := p.peek(); {
		case p.take(op, "*"): // of items, as many arguments
			a.list = append(a.list, p.condition())
		case p.take(op, "**"): // of keys and values, those with names
			a.dict = append(a.dict, p.condition())
		case t.kind == name && p.tokens[p.at+1].kind == op && p.tokens[p.at+1].text == "=":
			p.at += 2
			a.names, a.args = append(a.names, t.text), append(a.args, p.condition())
		case len(a.names) > 0:
			panic(p.fail("an argument without a name follows one with one"))
		default:
			a.args = append(a.args, p.condition())
		}
	})
	return a
}

// filtered parses filters and tests of what is before them.
func (p *parser) filtered(x expr) expr {
	for n := 0; ; n++ {
		p.chained(n)
		switch line := p.peek().line; {
		case p.take(op, "|"):
			x = filterExpr{x, p.oneFilter()}
		case p.is(name, "is"):
			x = p.test(x)
		case p.is(op, "("):
			x = &callExpr{x, p.arguments(), line}
		default:
			return x
		}
	}
}

// filters parses filters after each other.
func (p *parser) filters() (list []filterCall) {
	for {
		p.chained(len(list))
		if list = append(list, p.oneFilter()); !p.take(op, "|") {
			return list
		}
	}
}

func (p *parser) oneFilter() filterCall {
	c := filterCall{line: p.peek().line, name: p.wantName()}
	if c.f = filters[c.name]; c.f == nil {
		panic(p.fail("there is no filter %q", c.name))
	}
	if p.is(op, "(") {
		c.args = p.arguments()
	}
	return c
}

func (p *parser) test(x expr) expr {
	t := testExpr{of: x, line: p.next().line}
	t.negate = p.take(name, "not")
	t.name = p.wantName()
	if t.f = tests[t.name]; t.f == nil {
		panic(p.fail("there is no test %q", t.name))
	}
	switch next := p.peek(); {
	case p.is(op, "("):
		t.args = p.arguments()
	case next.kind == name && !slices.Contains([]string{"else", "or", "and", "is", "if", "not", "in", "recursive"}, next.text),
		next.kind == str, next.kind == integer, next.kind == float, p.is(op, "["), p.is(op, "{"):
		t.args.args = []expr{p.postfix(p.primary())}
	}
	return t
}

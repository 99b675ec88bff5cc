package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple parses an expression, or several with commas between them.
func (p *parser) tuple() expr { return p.tupleOf(p.condition) }

func (p *parser) tupleOf(one func() expr) expr {
	x := one()
	if !p.is(op, ",") {
		return x
	}
	t := tupleExpr{[]expr{x}}
	for p.take(op, ",") {
		if k := p.peek().kind; k == outEnd || k == tagEnd || p.is(op, ")") {
			break
		}
		t.items = append(t.items, one())
	}
	return t
}

func (p *parser) condition() expr {
	defer p.deeper()()
	x := p.or()
	for p.take(name, "if") {
		c := condExpr{then: x, cond: p.or()}
		if p.take(name, "else") {
			c.other = p.condition()
		}
		x = c
	}
	return x
}

func (p *parser) or() expr  { return p.logic(p.and, "or") }
func (p *parser) and() expr { return p.logic(p.not, "and") }

func (p *parser) logic(one func() expr, word string) expr {
	a := one()
	for p.take(name, word) {
		a = logicExpr{word == "or", a, one()}
	}
	return a
}

func (p *parser) not() expr {
	if !p.is(name, "not") {
		return p.compare()
	}
	defer p.deeper()()
	line := p.next().line
	return unaryExpr{"not", p.not(), line}
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() expr {
	x := p.sum()
	c := compareExpr{first: x, line: p.peek().line}
	for {
		word := ""
		switch t := p.peek(); {
		case t.kind == op && slices.Contains(comparisons, t.text), t.kind == name && t.text == "in":
			word = t.text
			p.at++
		case t.kind == name && t.text == "not" && p.tokens[p.at+1].text == "in":
			word = "not in"
			p.at += 2
		case len(c.ops) == 0:
			return x
		default:
			return c
		}
		c.ops, c.rest = append(c.ops, word), append(c.rest, p.sum())
	}
}

// left parses operators that group to the left.
func (p *parser) left(one func() expr, ops ...string) expr {
	a := one()
	for p.peek().kind == op && slices.Contains(ops, p.peek().text) {
		t := p.next()
		a = binaryExpr{t.text, a, one(), t.line}
	}
	return a
}

func (p *parser) sum() expr { return p.left(p.concat, "+", "-") }

func (p *parser) concat() expr {
	x := p.product()
	if !p.is(op, "~") {
		return x
	}
	c := concatExpr{[]expr{x}, p.peek().line}
	for p.take(op, "~") {
		c.items = append(c.items, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.left(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.left(func() expr { return p.unary(true) }, "**") }

func (p *parser) unary(filtered bool) expr {
	var x expr
	if t := p.peek(); t.kind == op && (t.text == "-" || t.text == "+") {
		defer p.deeper()()
		p.at++
		x = unaryExpr{t.text, p.unary(false), t.line}
	} else {
		x = p.primary()
	}
	if x = p.postfix(x); !filtered {
		return x
	}
	return p.filtered(x)
}

func (p *parser) primary() expr {
	switch t := p.peek(); t.kind {
	case name:
		p.at++
		switch t.text {
		case "true", "True":
			return literal{true}
		case "false", "False":
			return literal{false}
		case "none", "None":
			return literal{nil}
		}
		p.varargs, p.kwargs = p.varargs || t.text == "varargs", p.kwargs || t.text == "kwargs"
		return variable{t.text}
	case str:
		var b strings.Builder // neighbours are one string
		for p.peek().kind == str {
			b.WriteString(p.next().text)
		}
		return literal{b.String()}
	case integer:
		n, err := strconv.Atoi(t.text)
		if err != nil {
			panic(p.fail("the number %s is too large", t.text))
		}
		p.at++
		return literal{n}
	case float:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			panic(p.fail("the number %s is too large", t.text))
		}
		p.at++
		return literal{f}
	case op:
		switch t.text {
		case "(":
			return p.bracketed()
		case "[":
			return p.listOf()
		case "{":
			return p.dict()
		}
	}
	panic(p.fail("an expression is expected, found %s", p.peek()))
}

func (p *parser) bracketed() expr {
	p.at++
	if p.take(op, ")") {
		return tupleExpr{}
	}
	x := p.tuple()
	p.want(op, ")")
	return x
}

func (p *parser) listOf() expr {
	p.at++
	var x listExpr
	p.list("]", func() { x.items = append(x.items, p.condition()) })
	return x
}

func (p *parser) dict() expr {
	p.at++
	var d dictExpr
	p.list("}", func() {
		d.keys = append(d.keys, p.condition())
		p.want(op, ":")
		d.values = append(d.values, p.condition())
	})
	return d
}

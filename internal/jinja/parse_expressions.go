package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple parses an expression, or several with commas between them.
func (p *parser) tuple() (expr, error) { return p.tupleOf(p.condition) }

func (p *parser) tupleOf(one func() (expr, error)) (expr, error) {
	x, err := one()
	if err != nil || !p.is(op, ",") {
		return x, err
	}
	t := tupleExpr{[]expr{x}}
	for p.take(op, ",") {
		if k := p.peek().kind; k == outEnd || k == tagEnd || p.is(op, ")") {
			break
		}
		if x, err = one(); err != nil {
			return nil, err
		}
		t.items = append(t.items, x)
	}
	return t, nil
}

func (p *parser) condition() (expr, error) {
	up, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	x, err := p.or()
	for err == nil && p.take(name, "if") {
		c := condExpr{then: x}
		if c.cond, err = p.or(); err == nil && p.take(name, "else") {
			c.other, err = p.condition()
		}
		x = c
	}
	return x, err
}

func (p *parser) or() (expr, error)  { return p.logic(p.and, "or") }
func (p *parser) and() (expr, error) { return p.logic(p.not, "and") }

func (p *parser) logic(one func() (expr, error), word string) (expr, error) {
	a, err := one()
	for err == nil && p.take(name, word) {
		var b expr
		b, err = one()
		a = logicExpr{word == "or", a, b}
	}
	return a, err
}

func (p *parser) not() (expr, error) {
	if !p.is(name, "not") {
		return p.compare()
	}
	up, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer up()
	line := p.next().line
	x, err := p.not()
	return unaryExpr{"not", x, line}, err
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() (expr, error) {
	x, err := p.sum()
	c := compareExpr{first: x, line: p.peek().line}
	for err == nil {
		word := ""
		switch t := p.peek(); {
		case t.kind == op && slices.Contains(comparisons, t.text), t.kind == name && t.text == "in":
			word = t.text
			p.at++
		case t.kind == name && t.text == "not" && p.tokens[p.at+1].text == "in":
			word = "not in"
			p.at += 2
		}
		if word == "" {
			break
		}
		var y expr
		y, err = p.sum()
		c.ops, c.rest = append(c.ops, word), append(c.rest, y)
	}
	if len(c.ops) == 0 {
		return x, err
	}
	return c, err
}

// left parses operators that group to the left.
func (p *parser) left(one func() (expr, error), ops ...string) (expr, error) {
	a, err := one()
	for err == nil && p.peek().kind == op && slices.Contains(ops, p.peek().text) {
		t := p.next()
		var b expr
		b, err = one()
		a = binaryExpr{t.text, a, b, t.line}
	}
	return a, err
}

func (p *parser) sum() (expr, error) { return p.left(p.concat, "+", "-") }

func (p *parser) concat() (expr, error) {
	x, err := p.product()
	if err != nil || !p.is(op, "~") {
		return x, err
	}
	c := concatExpr{[]expr{x}, p.peek().line}
	for err == nil && p.take(op, "~") {
		x, err = p.product()
		c.items = append(c.items, x)
	}
	return c, err
}

func (p *parser) product() (expr, error) { return p.left(p.power, "*", "/", "//", "%") }
func (p *parser) power() (expr, error) {
	return p.left(func() (expr, error) { return p.unary(true) }, "**")
}

func (p *parser) unary(filtered bool) (x expr, err error) {
	if t := p.peek(); t.kind == op && (t.text == "-" || t.text == "+") {
		up, err := p.deeper()
		if err != nil {
			return nil, err
		}
		defer up()
		p.at++
		if x, err = p.unary(false); err != nil {
			return nil, err
		}
		x = unaryExpr{t.text, x, t.line}
	} else if x, err = p.primary(); err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !filtered {
		return x, err
	}
	return p.filtered(x)
}

func (p *parser) primary() (expr, error) {
	switch t := p.peek(); t.kind {
	case name:
		p.at++
		switch t.text {
		case "true", "True":
			return literal{true}, nil
		case "false", "False":
			return literal{false}, nil
		case "none", "None":
			return literal{nil}, nil
		}
		p.varargs, p.kwargs = p.varargs || t.text == "varargs", p.kwargs || t.text == "kwargs"
		return variable{t.text}, nil
	case str:
		var b strings.Builder // neighbours are one string
		for p.peek().kind == str {
			b.WriteString(p.next().text)
		}
		return literal{b.String()}, nil
	case integer:
		n, err := strconv.Atoi(t.text)
		if err != nil {
			return nil, p.fail("the number %s is too large", t.text)
		}
		p.at++
		return literal{n}, nil
	case float:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, p.fail("the number %s is too large", t.text)
		}
		p.at++
		return literal{f}, nil
	case op:
		switch t.text {
		case "(":
			return p.bracketed()
		case "[":
			p.at++
			items, err := p.items("]")
			return listExpr{items}, err
		case "{":
			return p.dict()
		}
	}
	return nil, p.fail("an expression is expected, found %s", p.peek())
}

func (p *parser) bracketed() (expr, error) {
	p.at++
	if p.take(op, ")") {
		return tupleExpr{}, nil
	}
	x, err := p.tuple()
	if err == nil {
		err = p.want(op, ")")
	}
	return x, err
}

// items parses expressions with commas between them, up to a bracket.
func (p *parser) items(close string) (list []expr, err error) {
	for !p.take(op, close) {
		x, err := p.condition()
		if err != nil {
			return nil, err
		}
		if list = append(list, x); !p.take(op, ",") && !p.is(op, close) {
			return nil, p.fail(`"," or %q is expected, found %s`, close, p.peek())
		}
	}
	return list, nil
}

func (p *parser) dict() (expr, error) {
	p.at++
	var d dictExpr
	for !p.take(op, "}") {
		k, err := p.condition()
		if err == nil {
			err = p.want(op, ":")
		}
		if err != nil {
			return nil, err
		}
		v, err := p.condition()
		if err != nil {
			return nil, err
		}
		if d.keys, d.values = append(d.keys, k), append(d.values, v); !p.take(op, ",") && !p.is(op, "}") {
			return nil, p.fail(`"," or "}" is expected, found %s`, p.peek())
		}
	}
	return d, nil
}

package jinja

import (
	"slices"
	"strconv"
)

// postfix parses fields, items and calls of what is before them. A chain of them is
// evaluated from its end, so that it counts as nested.
func (p *parser) postfix(x expr) (expr, error) {
	for n := 0; p.peek().kind == op; n++ {
		if n > deepest {
			return nil, p.fail("it is nested more than %d deep", deepest)
		}
		t := p.peek()
		var err error
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
				return nil, p.fail("a name is expected, found %s", p.peek())
			}
		case "[":
			p.at++
			x, err = p.subscript(x, t.line)
		case "(":
			c := &callExpr{f: x, line: t.line}
			c.args, err = p.arguments()
			x = c
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (p *parser) subscript(x expr, line int) (expr, error) {
	var parts [3]expr
	n, slice := 0, false
	for !p.is(op, "]") {
		if p.take(op, ":") {
			if slice, n = true, n+1; n > 2 {
				return nil, p.fail("a slice has three parts")
			}
			continue
		}
		v, err := p.tuple()
		if err != nil {
			return nil, err
		}
		if parts[n] = v; !p.is(op, ":") && !p.is(op, "]") {
			return nil, p.fail(`"]" is expected, found %s`, p.peek())
		}
	}
	p.at++
	switch {
	case slice:
		return sliceExpr{x, parts[0], parts[1], parts[2], line}, nil
	case parts[0] == nil:
		return nil, p.fail("an index is expected")
	}
	return itemExpr{x, parts[0], line}, nil
}

// arguments parses those of a call, in brackets.
func (p *parser) arguments() (a arguments, err error) {
	if err := p.want(op, "("); err != nil {
		return a, err
	}
	for !p.take(op, ")") {
		stars := ""
		if t := p.peek(); t.kind == op && (t.text == "*" || t.text == "**") {
			stars = p.next().text
		}
		if t := p.peek(); stars != "" {
			// of items, as many arguments; of keys and values, those with names
		} else if t.kind == name && p.tokens[p.at+1].kind == op && p.tokens[p.at+1].text == "=" {
			p.at += 2
			a.names = append(a.names, t.text)
		} else if len(a.names) > 0 {
			return a, p.fail("an argument without a name follows one with one")
		}
		x, err := p.condition()
		if err != nil {
			return a, err
		}
		switch stars {
		case "*":
			a.list = append(a.list, x)
		case "**":
			a.dict = append(a.dict, x)
		default:
			a.args = append(a.args, x)
		}
		if !p.take(op, ",") && !p.is(op, ")") {
			return a, p.fail(`"," or ")" is expected, found %s`, p.peek())
		}
	}
	return a, nil
}

// filtered parses filters and tests of what is before them.
func (p *parser) filtered(x expr) (expr, error) {
	for n := 0; ; n++ {
		if n > deepest {
			return nil, p.fail("it is nested more than %d deep", deepest)
		}
		var err error
		switch {
		case p.take(op, "|"):
			f := filterExpr{of: x}
			f.filterCall, err = p.oneFilter()
			x = f
		case p.is(name, "is"):
			x, err = p.test(x)
		case p.is(op, "("):
			c := &callExpr{f: x, line: p.peek().line}
			c.args, err = p.arguments()
			x = c
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filters parses filters after each other.
func (p *parser) filters() (list []filterCall, err error) {
	for {
		f, err := p.oneFilter()
		if err != nil {
			return nil, err
		}
		if list = append(list, f); !p.take(op, "|") {
			return list, nil
		}
		if len(list) > deepest {
			return nil, p.fail("there are more than %d filters", deepest)
		}
	}
}

func (p *parser) oneFilter() (f filterCall, err error) {
	f.line = p.peek().line
	if f.name, err = p.wantName(); err != nil {
		return f, err
	}
	if f.f = filters[f.name]; f.f == nil {
		return f, p.fail("there is no filter %q", f.name)
	}
	if p.is(op, "(") {
		f.args, err = p.arguments()
	}
	return f, err
}

func (p *parser) test(x expr) (expr, error) {
	t := testExpr{of: x, line: p.next().line}
	t.negate = p.take(name, "not")
	var err error
	if t.name, err = p.wantName(); err != nil {
		return nil, err
	}
	if t.f = tests[t.name]; t.f == nil {
		return nil, p.fail("there is no test %q", t.name)
	}
	switch next := p.peek(); {
	case p.is(op, "("):
		t.args, err = p.arguments()
	case next.kind == name && !slices.Contains([]string{"else", "or", "and", "is", "if", "not", "in", "recursive"}, next.text),
		next.kind == str, next.kind == integer, next.kind == float, p.is(op, "["), p.is(op, "{"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args = arguments{args: []expr{arg}}
	}
	return t, err
}

package jinja

import (
	"slices"
	"strings"
)

// body parses statements up to a tag of one of these names, whose name it takes.
func (p *parser) body(ends ...string) (list []node, by string, err error) {
	up, err := p.deeper()
	if err != nil {
		return nil, "", err
	}
	defer up()
	for {
		switch t := p.next(); t.kind {
		case end:
			if len(ends) == 0 {
				return list, "", nil
			}
			return nil, "", p.fail("the template ends, and %s is missing", strings.Join(ends, " or "))
		case text:
			list = append(list, textNode{t.text})
		case outBegin:
			x, err := p.tuple()
			if err == nil {
				err = p.want(outEnd, "}}")
			}
			if err != nil {
				return nil, "", err
			}
			list = append(list, outNode{x, t.line})
		case tagBegin:
			word, err := p.wantName()
			if err != nil {
				return nil, "", err
			}
			if slices.Contains(ends, word) {
				return list, word, nil
			}
			n, err := p.statement(word, t.line)
			if err != nil {
				return nil, "", err
			}
			list = append(list, n...)
		}
	}
}

// ended parses statements up to the end of the tag they are in.
func (p *parser) ended(word string) ([]node, error) {
	list, _, err := p.body(word)
	if err == nil {
		if word == "endmacro" && p.peek().kind == name { // its name may be said again
			p.next()
		}
		err = p.want(tagEnd, "%}")
	}
	return list, err
}

func (p *parser) statement(word string, line int) ([]node, error) {
	one := func(n node, err error) ([]node, error) { return []node{n}, err }
	switch word {
	case "if":
		return one(p.ifs(line))
	case "for":
		return one(p.loop(line))
	case "set":
		return one(p.set(line))
	case "macro":
		return one(p.macro())
	case "call":
		return one(p.callBlock(line))
	case "filter":
		return one(p.filterBlock(line))
	case "with":
		return one(p.with(line))
	case "generation": // marks what a model says, for training
		if err := p.want(tagEnd, "%}"); err != nil {
			return nil, err
		}
		return p.ended("endgeneration")
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.fail("%s is outside of a loop", word)
		}
		is := errBreak
		if word == "continue" {
			is = errContinue
		}
		return []node{jumpNode{is}}, p.want(tagEnd, "%}")
	case "include", "import", "from", "extends", "block":
		return nil, p.fail("%s is not supported: a template is one text, and reads no files", word)
	}
	return nil, p.fail("there is no statement %q here", word)
}

func (p *parser) ifs(line int) (node, error) {
	n := ifNode{line: line}
	for word := "if"; word != "endif"; {
		if word != "else" {
			x, err := p.condition()
			if err != nil {
				return nil, err
			}
			n.conds = append(n.conds, x)
		}
		if err := p.want(tagEnd, "%}"); err != nil {
			return nil, err
		}
		ends := []string{"elif", "else", "endif"}
		if word == "else" {
			ends = ends[2:]
		}
		list, by, err := p.body(ends...)
		if err != nil {
			return nil, err
		}
		n.body, word = append(n.body, list), by
	}
	return n, p.want(tagEnd, "%}")
}

func (p *parser) loop(line int) (node, error) {
	n := forNode{line: line}
	var err error
	if n.targets, err = p.names(); err != nil {
		return nil, err
	}
	if err := p.want(name, "in"); err != nil {
		return nil, err
	}
	if n.in, err = p.tupleOf(p.or); err != nil { // "if" is the loop's
		return nil, err
	}
	if p.take(name, "if") {
		if n.filter, err = p.condition(); err != nil {
			return nil, err
		}
	}
	n.recursive = p.take(name, "recursive")
	if err := p.want(tagEnd, "%}"); err != nil {
		return nil, err
	}
	p.loops++
	list, by, err := p.body("endfor", "else")
	p.loops--
	if n.body = list; err == nil && by == "else" {
		if err = p.want(tagEnd, "%}"); err == nil {
			n.orElse, _, err = p.body("endfor")
		}
	}
	if err != nil {
		return nil, err
	}
	return n, p.want(tagEnd, "%}")
}

// names parses a name, or several with commas between them, in brackets or not.
func (p *parser) names() ([]target, error) {
	bracket := p.take(op, "(")
	var list []target
	for {
		x, err := p.wantName()
		if err != nil {
			return nil, err
		}
		if list = append(list, target{name: x}); !p.take(op, ",") || p.peek().kind != name || p.is(name, "in") {
			break
		}
	}
	if bracket {
		return list, p.want(op, ")")
	}
	return list, nil
}

func (p *parser) set(line int) (node, error) {
	var to []target
	bracket := p.take(op, "(")
	for {
		t, err := p.target()
		if err != nil {
			return nil, err
		}
		if to = append(to, t); !p.take(op, ",") || p.peek().kind != name {
			break
		}
	}
	if bracket {
		if err := p.want(op, ")"); err != nil {
			return nil, err
		}
	}
	if p.take(op, "=") {
		x, err := p.tuple()
		if err != nil {
			return nil, err
		}
		return setNode{line, to, x}, p.want(tagEnd, "%}")
	}
	if len(to) > 1 {
		return nil, p.fail(`"=" is expected, found %s`, p.peek())
	}
	n := setBlock{line: line, to: to[0]}
	var err error
	if p.take(op, "|") {
		if n.filters, err = p.filters(); err != nil {
			return nil, err
		}
	}
	if err := p.want(tagEnd, "%}"); err != nil {
		return nil, err
	}
	n.body, err = p.ended("endset")
	return n, err
}

func (p *parser) target() (t target, err error) {
	if t.name, err = p.wantName(); err == nil && p.take(op, ".") {
		t.field, err = p.wantName()
	}
	return t, err
}

func (p *parser) macro() (node, error) {
	d := &macroDef{}
	var err error
	if d.name, err = p.wantName(); err == nil {
		err = p.params(d)
	}
	if err == nil {
		err = p.want(tagEnd, "%}")
	}
	if err == nil {
		err = p.macroBody(d, "endmacro")
	}
	return macroNode{d}, err
}

func (p *parser) macroBody(d *macroDef, word string) (err error) {
	outer := *p
	p.loops, p.varargs, p.kwargs = 0, false, false
	d.body, err = p.ended(word)
	d.varargs, d.kwargs = p.varargs, p.kwargs
	p.loops, p.varargs, p.kwargs = outer.loops, outer.varargs, outer.kwargs
	return err
}

// params parses parameters in brackets.
func (p *parser) params(d *macroDef) error {
	if err := p.want(op, "("); err != nil {
		return err
	}
	for !p.take(op, ")") {
		x, err := p.wantName()
		if err != nil {
			return err
		}
		d.params = append(d.params, x)
		if p.take(op, "=") {
			x, err := p.condition()
			if err != nil {
				return err
			}
			d.defaults = append(d.defaults, x)
		} else if len(d.defaults) > 0 {
			return p.fail("a parameter without a default follows one with one")
		}
		if !p.take(op, ",") && !p.is(op, ")") {
			return p.fail(`"," or ")" is expected, found %s`, p.peek())
		}
	}
	return nil
}

func (p *parser) callBlock(line int) (node, error) {
	d := &macroDef{name: "caller"}
	if p.is(op, "(") {
		if err := p.params(d); err != nil {
			return nil, err
		}
	}
	x, err := p.condition()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.fail("call needs a macro that is called")
	}
	if err := p.want(tagEnd, "%}"); err != nil {
		return nil, err
	}
	return callNode{line, call, d}, p.macroBody(d, "endcall")
}

func (p *parser) filterBlock(line int) (node, error) {
	n := filterNode{line: line}
	var err error
	if n.filters, err = p.filters(); err == nil {
		err = p.want(tagEnd, "%}")
	}
	if err == nil {
		n.body, err = p.ended("endfilter")
	}
	return n, err
}

func (p *parser) with(line int) (node, error) {
	n := withNode{line: line}
	for p.peek().kind == name {
		x, err := p.wantName()
		if err == nil {
			err = p.want(op, "=")
		}
		if err != nil {
			return nil, err
		}
		v, err := p.condition()
		if err != nil {
			return nil, err
		}
		n.names, n.xs = append(n.names, x), append(n.xs, v)
		if !p.take(op, ",") {
			break
		}
	}
	err := p.want(tagEnd, "%}")
	if err == nil {
		n.body, err = p.ended("endwith")
	}
	return n, err
}

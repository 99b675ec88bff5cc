package jinja

func (p *parser) tagEnd() { p.want(tagEnd, "%}") }

// block parses the rest of a tag, and statements up to the end of the tag with this name.
func (p *parser) block(word string) []node {
	p.tagEnd()
	list, _ := p.body(word)
	if word == "endmacro" && p.peek().kind == name { // its name may be said again
		p.next()
	}
	p.tagEnd()
	return list
}

func (p *parser) statement(word string, line int) []node {
	switch word {
	case "if":
		return []node{p.ifs(line)}
	case "for":
		return []node{p.loop(line)}
	case "set":
		return []node{p.set(line)}
	case "macro":
		d := &macroDef{name: p.wantName()}
		p.params(d)
		p.macroBody(d, "endmacro")
		return []node{macroNode{d}}
	case "call":
		return []node{p.callBlock(line)}
	case "filter":
		return []node{filterNode{line, p.filters(), p.block("endfilter")}}
	case "with":
		return []node{p.with(line)}
	case "generation": // marks what a model says, for training
		return p.block("endgeneration")
	case "break", "continue":
		if p.loops == 0 {
			panic(p.fail("%s is outside of a loop", word))
		}
		p.tagEnd()
		return []node{jumpNode{word}}
	case "include", "import", "from", "extends", "block":
		panic(p.fail("%s is not supported: a template is one text, and reads no files", word))
	}
	panic(p.fail("there is no statement %q here", word))
}

func (p *parser) ifs(line int) node {
	n := ifNode{line: line}
	for word := "if"; word != "endif"; {
		if word != "else" {
			n.conds = append(n.conds, p.condition())
		}
		p.tagEnd()
		ends := []string{"elif", "else", "endif"}
		if word == "else" {
			ends = ends[2:]
		}
		var list []node
		list, word = p.body(ends...)
		n.body = append(n.body, list)
	}
	p.tagEnd()
	return n
}

func (p *parser) loop(line int) node {
	n := forNode{line: line, targets: p.names()}
	p.want(name, "in")
	n.in = p.tupleOf(p.or) // "if" is the loop's
	if p.take(name, "if") {
		n.filter = p.condition()
	}
	n.recursive = p.take(name, "recursive")
	p.tagEnd()
	p.loops++
	list, by := p.body("endfor", "else")
	p.loops--
	n.body = list
	if by == "else" {
		p.tagEnd()
		n.orElse, _ = p.body("endfor")
	}
	p.tagEnd()
	return n
}

// names parses a name, or several with commas between them, in brackets or not.
func (p *parser) names() []target {
	bracket := p.take(op, "(")
	list := []target{{name: p.wantName()}}
	for p.take(op, ",") && p.peek().kind == name && !p.is(name, "in") {
		list = append(list, target{name: p.wantName()})
	}
	if bracket {
		p.want(op, ")")
	}
	return list
}

func (p *parser) set(line int) node {
	bracket := p.take(op, "(")
	to := []target{p.target()}
	for p.take(op, ",") && p.peek().kind == name {
		to = append(to, p.target())
	}
	if bracket {
		p.want(op, ")")
	}
	if p.take(op, "=") {
		x := p.tuple()
		p.tagEnd()
		return setNode{line, to, x}
	}
	if len(to) > 1 {
		panic(p.fail(`"=" is expected, found %s`, p.peek()))
	}
	n := setBlock{line: line, to: to[0]}
	if p.take(op, "|") {
		n.filters = p.filters()
	}
	n.body = p.block("endset")
	return n
}

func (p *parser) target() target {
	t := target{name: p.wantName()}
	if p.take(op, ".") {
		t.field = p.wantName()
	}
	return t
}

func (p *parser) macroBody(d *macroDef, word string) {
	outer := *p
	p.loops, p.varargs, p.kwargs = 0, false, false
	d.body = p.block(word)
	d.varargs, d.kwargs = p.varargs, p.kwargs
	p.loops, p.varargs, p.kwargs = outer.loops, outer.varargs, outer.kwargs
}

// params parses parameters in brackets.
func (p *parser) params(d *macroDef) {
	p.want(op, "(")
	p.list(")", func() {
		d.params = append(d.params, p.wantName())
		if p.take(op, "=") {
			d.defaults = append(d.defaults, p.condition())
		} else if len(d.defaults) > 0 {
			panic(p.fail("a parameter without a default follows one with one"))
		}
	})
}

func (p *parser) callBlock(line int) node {
	d := &macroDef{name: "caller"}
	if p.is(op, "(") {
		p.params(d)
	}
	call, ok := p.condition().(*callExpr)
	if !ok {
		panic(p.fail("call needs a macro that is called"))
	}
	p.macroBody(d, "endcall")
	return callNode{line, call, d}
}

func (p *parser) with(line int) node {
	n := withNode{line: line}
	for more := true; more && p.peek().kind == name; more = p.take(op, ",") {
		n.names = append(n.names, p.wantName())
		p.want(op, "=")
		n.xs = append(n.xs, p.condition())
	}
	n.body = p.block("endwith")
	return n
}

package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// deepest is how deep what is written may be nested, and deepestCall how deep calls may.
const deepest, deepestCall = 200, 100

type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int // around
	// Whether the macro around uses these names.
	varargs, kwargs bool

	tests  map[string]test
	filter map[string]filter
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
		return one(p.macro(line))
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
func (p *parser) names() ([]string, error) {
	bracket := p.take(op, "(")
	var list []string
	for {
		x, err := p.wantName()
		if err != nil {
			return nil, err
		}
		if list = append(list, x); !p.take(op, ",") || p.peek().kind != name || p.is(name, "in") {
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

func (p *parser) macro(line int) (node, error) {
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
	return macroNode{line, d}, err
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

func (p *parser) or() (expr, error) {
	a, err := p.and()
	for err == nil && p.take(name, "or") {
		var b expr
		b, err = p.and()
		a = logicExpr{true, a, b}
	}
	return a, err
}

func (p *parser) and() (expr, error) {
	a, err := p.not()
	for err == nil && p.take(name, "and") {
		var b expr
		b, err = p.not()
		a = logicExpr{false, a, b}
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
		return variable{t.text, t.line}, nil
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
	if f.f = p.filter[f.name]; f.f == nil {
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
	if t.f = p.tests[t.name]; t.f == nil {
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

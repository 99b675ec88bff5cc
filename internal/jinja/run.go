package jinja

import (
	"errors"
	"fmt"
)

// deepestRun bounds how deep evaluation goes, so that the stack does not run out.
const deepestRun = 4000

// run runs statements, up to a break or continue.
func (s *state) run(list []node) {
	if s.depth++; s.depth > deepestRun {
		panic(errDepth)
	}
	for _, n := range list {
		s.step(1)
		if n.run(s); s.jump != "" {
			break
		}
	}
	s.depth--
}

func (n textNode) run(s *state) { s.write(n.text) }

func (n outNode) run(s *state) {
	s.line = n.line
	s.write(s.text(s.eval(n.x)))
}

func (n ifNode) run(s *state) {
	s.line = n.line
	for i, x := range n.conds {
		if truth(s.eval(x)) {
			s.run(n.body[i])
			return
		}
	}
	if len(n.body) > len(n.conds) {
		s.run(n.body[len(n.conds)])
	}
}

func (n forNode) run(s *state) {
	s.line = n.line
	n.loop(s, s.eval(n.in), 0)
}

// loop runs the body for the items of a value.
func (n forNode) loop(s *state, over any, depth int) {
	list := s.items(over)
	if n.filter != nil {
		list = n.filtered(s, list)
	}
	if len(list) == 0 {
		s.inScope(func() { s.run(n.orElse) })
		return
	}
	outer := s.vars
	l := &loop{list: list, depth: depth}
	if n.recursive {
		l.again = func(over any) string {
			if s.calls++; s.calls > deepestCall {
				panic(errDepth)
			}
			inner := s.vars
			s.vars = outer
			text := s.captured(func() { n.loop(s, over, depth+1) })
			s.vars = inner
			s.calls--
			return text
		}
	}
	for l.at = range list {
		s.step(2)
		s.vars = &scope{up: outer}
		s.bind(n.targets, list[l.at])
		s.vars.set("loop", l)
		s.run(n.body)
		jump := s.jump
		if s.jump = ""; jump == "break" {
			break
		}
	}
	s.vars = outer
}

func (n forNode) filtered(s *state, list []any) (out []any) {
	for _, x := range list {
		s.inScope(func() {
			s.bind(n.targets, x)
			if truth(s.eval(n.filter)) {
				s.makes(16)
				out = append(out, x)
			}
		})
	}
	return out
}

// bind sets a target to a value, or several to its items.
func (s *state) bind(to []target, v any) {
	if len(to) == 1 {
		s.set(to[0], v)
		return
	}
	list := s.items(v)
	if len(list) != len(to) {
		panic(fmt.Errorf("%d names for %d items", len(to), len(list)))
	}
	for i, t := range to {
		s.set(t, list[i])
	}
}

func (n setNode) run(s *state) {
	s.line = n.line
	s.bind(n.targets, s.eval(n.x))
}

func (s *state) set(t target, v any) {
	if t.field == "" {
		s.vars.set(t.name, v)
		return
	}
	of, _ := s.vars.find(t.name)
	ns, ok := of.(*namespace)
	if !ok {
		panic(fmt.Errorf("%s is %s; fields can be set of a namespace only", t.name, kindOf(of)))
	}
	s.makes(32)
	ns.Set(t.field, v)
}

func (n setBlock) run(s *state) {
	s.line = n.line
	if v := s.block(n.body, n.filters); s.jump == "" {
		s.set(n.to, v)
	}
}

// block is what statements write, put through filters, unless a loop around ends there.
func (s *state) block(body []node, filters []filterCall) any {
	v := any(s.captured(func() { s.inScope(func() { s.run(body) }) }))
	for _, f := range filters {
		if s.jump == "" {
			v = f.apply(s, v)
		}
	}
	return v
}

func (n filterNode) run(s *state) {
	s.line = n.line
	if v := s.block(n.body, n.filters); s.jump == "" {
		s.write(s.text(v))
	}
}

func (n withNode) run(s *state) {
	s.line = n.line
	values := s.all(n.xs)
	s.inScope(func() {
		for i, name := range n.names {
			s.vars.set(name, values[i])
		}
		s.run(n.body)
	})
}

func (n jumpNode) run(s *state) { s.jump = n.word }

func (n macroNode) run(s *state) { s.vars.set(n.name, n.bind(s)) }

func (n callNode) run(s *state) {
	s.line = n.line
	f, a := s.eval(n.call.f), s.arguments(n.call.args)
	a.named = append(a.named, namedArg{"caller", n.def.bind(s)})
	s.write(s.text(s.call(f, a)))
}

// bind makes a function of a macro, which sees the variables around it.
func (d *macroDef) bind(s *state) function {
	around := s.vars
	return function{"macro " + d.name, func(s *state, a call) any {
		if s.calls++; s.calls > deepestCall {
			panic(errDepth)
		}
		outer := s.vars
		s.vars = &scope{up: around}
		d.pass(s, a)
		text := s.captured(func() { s.run(d.body) })
		s.vars = outer
		s.calls--
		return text
	}}
}

// pass sets the parameters.
func (d *macroDef) pass(s *state, a call) {
	given := map[string]any{}
	var rest tuple
	for i, v := range a.args {
		if i >= len(d.params) {
			rest = append(rest, v)
			continue
		}
		given[d.params[i]] = v
	}
	others := NewDict()
	for _, n := range a.named {
		if _, twice := given[n.name]; twice {
			panic(fmt.Errorf("macro %s: %s is given twice", d.name, n.name))
		}
		given[n.name] = n.v
	}
	for i, p := range d.params {
		v, ok := given[p]
		delete(given, p)
		if k := i - (len(d.params) - len(d.defaults)); !ok && k >= 0 {
			v = s.eval(d.defaults[k])
		} else if !ok {
			v = undefined{p}
		}
		s.vars.set(p, v)
	}
	if caller, ok := given["caller"]; ok {
		s.vars.set("caller", caller)
		delete(given, "caller")
	}
	for _, n := range a.named {
		if v, ok := given[n.name]; ok {
			others.Set(n.name, v)
		}
	}
	if len(rest) > 0 && !d.varargs {
		panic(fmt.Errorf("macro %s: %d arguments; it takes at most %d", d.name, len(a.args), len(d.params)))
	}
	if len(others.keys) > 0 && !d.kwargs {
		panic(fmt.Errorf("macro %s: there is no argument %q", d.name, others.keys[0]))
	}
	s.vars.set("varargs", rest)
	s.vars.set("kwargs", others)
}

// loop is the variable loop.
type loop struct {
	list    []any
	at      int
	depth   int
	again   func(over any) string
	changed []any
	asked   bool
}

func (l *loop) field(name string) (any, bool) {
	n := len(l.list)
	switch name {
	case "index":
		return l.at + 1, true
	case "index0":
		return l.at, true
	case "revindex":
		return n - l.at, true
	case "revindex0":
		return n - l.at - 1, true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return n, true
	case "depth":
		return l.depth + 1, true
	case "depth0":
		return l.depth, true
	case "previtem":
		if l.at == 0 {
			return undefined{"there is no previous item"}, true
		}
		return l.list[l.at-1], true
	case "nextitem":
		if l.at == n-1 {
			return undefined{"there is no next item"}, true
		}
		return l.list[l.at+1], true
	case "cycle":
		return function{"loop.cycle", func(_ *state, a call) any {
			if len(a.args) == 0 {
				panic(errors.New("loop.cycle needs an item"))
			}
			return a.args[l.at%len(a.args)]
		}}, true
	case "changed":
		return function{"loop.changed", func(s *state, a call) any {
			same := s.same(tuple(l.changed), tuple(a.args), 0)
			changed := !l.asked || !same
			l.changed, l.asked = a.args, true
			return changed
		}}, true
	}
	return nil, false
}

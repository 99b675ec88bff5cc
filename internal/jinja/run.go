package jinja

import (
	"errors"
	"fmt"
)

// What ends an iteration of a loop.
var errBreak, errContinue = errors.New("break"), errors.New("continue")

// deepestRun bounds how deep evaluation goes, so that the stack does not run out.
const deepestRun = 4000

// run runs statements.
func (s *state) run(list []node) error {
	if s.depth++; s.depth > deepestRun {
		return errDepth
	}
	defer func() { s.depth-- }()
	for _, n := range list {
		if err := s.step(1); err != nil {
			return err
		}
		if err := n.run(s); err != nil {
			return err
		}
	}
	return nil
}

func (n textNode) run(s *state) error { return s.write(n.text) }

func (n outNode) run(s *state) error {
	v, err := s.eval(n.x)
	if err == nil {
		err = s.show(v)
	}
	return at(n.line, err)
}

// show writes a value.
func (s *state) show(v any) error {
	text, err := s.text(v)
	if err != nil {
		return err
	}
	return s.write(text)
}

func (n ifNode) run(s *state) error {
	for i, x := range n.conds {
		v, err := s.eval(x)
		if err != nil {
			return at(n.line, err)
		}
		if truth(v) {
			return at(n.line, s.run(n.body[i]))
		}
	}
	if len(n.body) > len(n.conds) {
		return at(n.line, s.run(n.body[len(n.conds)]))
	}
	return nil
}

func (n forNode) run(s *state) error {
	v, err := s.eval(n.in)
	if err == nil {
		err = n.loop(s, v, 0)
	}
	return at(n.line, err)
}

// loop runs the body for the items of a value.
func (n forNode) loop(s *state, over any, depth int) error {
	list, err := s.items(over)
	if err == nil && n.filter != nil {
		list, err = n.filtered(s, list)
	}
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return s.inScope(func() error { return s.run(n.orElse) })
	}
	outer := s.vars
	defer func() { s.vars = outer }()
	l := &loop{list: list, depth: depth}
	if n.recursive {
		l.again = func(over any) (string, error) {
			if s.calls++; s.calls > deepestCall {
				return "", errDepth
			}
			defer func() { s.calls-- }()
			inner := s.vars
			s.vars = outer
			text, err := s.captured(func() error { return n.loop(s, over, depth+1) })
			s.vars = inner
			return text, err
		}
	}
	for l.at = range list {
		if err := s.step(2); err != nil {
			return err
		}
		s.vars = &scope{up: outer}
		if err := s.bind(n.targets, list[l.at]); err != nil {
			return err
		}
		s.vars.set("loop", l)
		if err := s.run(n.body); err == errBreak {
			break
		} else if err != nil && err != errContinue {
			return err
		}
	}
	return nil
}

func (n forNode) filtered(s *state, list []any) (out []any, err error) {
	for _, x := range list {
		err := s.inScope(func() error {
			if err := s.bind(n.targets, x); err != nil {
				return err
			}
			v, err := s.eval(n.filter)
			if err == nil && truth(v) {
				out = append(out, x)
				err = s.makes(16)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bind sets a target to a value, or several to its items.
func (s *state) bind(to []target, v any) error {
	if len(to) == 1 {
		return s.set(to[0], v)
	}
	list, err := s.items(v)
	if err != nil {
		return err
	}
	if len(list) != len(to) {
		return fmt.Errorf("%d names for %d items", len(to), len(list))
	}
	for i, t := range to {
		if err := s.set(t, list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n setNode) run(s *state) error {
	v, err := s.eval(n.x)
	if err == nil {
		err = s.bind(n.targets, v)
	}
	return at(n.line, err)
}

func (s *state) set(t target, v any) error {
	if t.field == "" {
		s.vars.set(t.name, v)
		return nil
	}
	of, _ := s.vars.find(t.name)
	ns, ok := of.(*namespace)
	if !ok {
		return fmt.Errorf("%s is %s; fields can be set of a namespace only", t.name, kindOf(of))
	}
	ns.Set(t.field, v)
	return s.makes(32)
}

func (n setBlock) run(s *state) error {
	v, err := s.block(n.body, n.filters)
	if err == nil {
		err = s.set(n.to, v)
	}
	return at(n.line, err)
}

// block is what statements write, put through filters.
func (s *state) block(body []node, filters []filterCall) (any, error) {
	text, err := s.captured(func() error { return s.inScope(func() error { return s.run(body) }) })
	v := any(text)
	for i := 0; err == nil && i < len(filters); i++ {
		v, err = filters[i].apply(s, v)
	}
	return v, err
}

func (n filterNode) run(s *state) error {
	v, err := s.block(n.body, n.filters)
	if err == nil {
		err = s.show(v)
	}
	return at(n.line, err)
}

func (n withNode) run(s *state) error {
	var values []any
	for _, x := range n.xs {
		v, err := s.eval(x)
		if err != nil {
			return at(n.line, err)
		}
		values = append(values, v)
	}
	return s.inScope(func() error {
		for i, name := range n.names {
			s.vars.set(name, values[i])
		}
		return s.run(n.body)
	})
}

func (n jumpNode) run(*state) error { return n.is }

func (n macroNode) run(s *state) error {
	s.vars.set(n.name, n.bind(s))
	return nil
}

func (n callNode) run(s *state) error {
	f, err := s.eval(n.call.f)
	if err != nil {
		return at(n.line, err)
	}
	a, err := s.arguments(n.call.args)
	if err != nil {
		return at(n.line, err)
	}
	a.named = append(a.named, namedArg{"caller", n.def.bind(s)})
	v, err := s.call(f, a)
	if err == nil {
		err = s.show(v)
	}
	return at(n.line, err)
}

// bind makes a function of a macro, which sees the variables around it.
func (d *macroDef) bind(s *state) function {
	around := s.vars
	return function{"macro " + d.name, func(s *state, a call) (any, error) {
		if s.calls++; s.calls > deepestCall {
			return nil, errDepth
		}
		outer := s.vars
		defer func() { s.calls--; s.vars = outer }()
		s.vars = &scope{up: around}
		if err := d.pass(s, a); err != nil {
			return nil, fmt.Errorf("macro %s: %w", d.name, err)
		}
		return s.captured(func() error { return s.run(d.body) })
	}}
}

// pass sets the parameters.
func (d *macroDef) pass(s *state, a call) error {
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
			return fmt.Errorf("%s is given twice", n.name)
		}
		given[n.name] = n.v
	}
	for i, p := range d.params {
		v, ok := given[p]
		delete(given, p)
		if k := i - (len(d.params) - len(d.defaults)); !ok && k >= 0 {
			var err error
			if v, err = s.eval(d.defaults[k]); err != nil {
				return err
			}
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
		return fmt.Errorf("%d arguments; it takes at most %d", len(a.args), len(d.params))
	}
	if len(others.keys) > 0 && !d.kwargs {
		return fmt.Errorf("there is no argument %q", others.keys[0])
	}
	s.vars.set("varargs", rest)
	s.vars.set("kwargs", others)
	return nil
}

// loop is the variable loop.
type loop struct {
	list    []any
	at      int
	depth   int
	again   func(over any) (string, error)
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
		return function{"loop.cycle", func(_ *state, a call) (any, error) {
			if len(a.args) == 0 {
				return nil, errors.New("loop.cycle needs an item")
			}
			return a.args[l.at%len(a.args)], nil
		}}, true
	case "changed":
		return function{"loop.changed", func(s *state, a call) (any, error) {
			same, err := s.same(tuple(l.changed), tuple(a.args), 0)
			changed := !l.asked || !same
			l.changed, l.asked = a.args, true
			return changed, err
		}}, true
	}
	return nil, false
}

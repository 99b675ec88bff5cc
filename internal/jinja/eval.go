package jinja

import "strings"

// eval evaluates an expression.
func (s *state) eval(x expr) any {
	if s.depth++; s.depth > deepestRun {
		panic(errDepth)
	}
	s.step(1)
	v := x.eval(s)
	s.depth--
	return v
}

// all evaluates several.
func (s *state) all(xs []expr) []any {
	out := make([]any, len(xs))
	for i, x := range xs {
		out[i] = s.eval(x)
	}
	s.makes(16 * len(xs))
	return out
}

func (x literal) eval(*state) any { return x.v }

func (x variable) eval(s *state) any {
	if v, ok := s.vars.find(x.name); ok {
		return v
	}
	return undefined{x.name}
}

func (x listExpr) eval(s *state) any {
	return s.all(x.items)
}

func (x tupleExpr) eval(s *state) any {
	return tuple(s.all(x.items))
}

func (x dictExpr) eval(s *state) any {
	d := NewDict()
	for i, k := range x.keys {
		key := hashable(s.eval(k))
		d.set(key, s.eval(x.values[i]))
	}
	s.makes(64 * len(x.keys))
	return d
}

func (x logicExpr) eval(s *state) any {
	a := s.eval(x.a)
	if truth(a) == x.or {
		return a
	}
	return s.eval(x.b)
}

func (x condExpr) eval(s *state) any {
	switch {
	case truth(s.eval(x.cond)):
		return s.eval(x.then)
	case x.other == nil:
		return undefined{"the value of an if without else"}
	}
	return s.eval(x.other)
}

func (x concatExpr) eval(s *state) any {
	var b strings.Builder
	for _, item := range x.items {
		t := s.text(s.eval(item))
		s.line = x.line
		s.makes(len(t))
		b.WriteString(t)
	}
	return b.String()
}

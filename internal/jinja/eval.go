package jinja

import "strings"

// eval evaluates an expression.
func (s *state) eval(x expr) (any, error) {
	if s.depth++; s.depth > deepestRun {
		return nil, errDepth
	}
	defer func() { s.depth-- }()
	if err := s.step(1); err != nil {
		return nil, err
	}
	return x.eval(s)
}

// all evaluates several.
func (s *state) all(xs []expr) ([]any, error) {
	out := make([]any, len(xs))
	for i, x := range xs {
		var err error
		if out[i], err = s.eval(x); err != nil {
			return nil, err
		}
	}
	return out, s.makes(16 * len(xs))
}

func (x literal) eval(*state) (any, error) { return x.v, nil }

func (x variable) eval(s *state) (any, error) {
	if v, ok := s.vars.find(x.name); ok {
		return v, nil
	}
	return undefined{x.name}, nil
}

func (x listExpr) eval(s *state) (any, error) {
	list, err := s.all(x.items)
	return list, err
}

func (x tupleExpr) eval(s *state) (any, error) {
	list, err := s.all(x.items)
	return tuple(list), err
}

func (x dictExpr) eval(s *state) (any, error) {
	d := NewDict()
	for i, k := range x.keys {
		key, err := s.eval(k)
		if err == nil {
			key, err = hashable(key)
		}
		if err != nil {
			return nil, err
		}
		v, err := s.eval(x.values[i])
		if err != nil {
			return nil, err
		}
		d.set(key, v)
	}
	return d, s.makes(64 * len(x.keys))
}

func (x logicExpr) eval(s *state) (any, error) {
	a, err := s.eval(x.a)
	if err != nil || truth(a) == x.or {
		return a, err
	}
	return s.eval(x.b)
}

func (x condExpr) eval(s *state) (any, error) {
	c, err := s.eval(x.cond)
	switch {
	case err != nil:
		return nil, err
	case truth(c):
		return s.eval(x.then)
	case x.other == nil:
		return undefined{"the value of an if without else"}, nil
	}
	return s.eval(x.other)
}

func (x concatExpr) eval(s *state) (any, error) {
	var b strings.Builder
	for _, item := range x.items {
		v, err := s.eval(item)
		if err != nil {
			return nil, err
		}
		t, err := s.text(v)
		if err == nil {
			err = s.makes(len(t))
		}
		if err != nil {
			return nil, at(x.line, err)
		}
		b.WriteString(t)
	}
	return b.String(), nil
}

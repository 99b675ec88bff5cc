package jinja

import (
	"errors"
	"fmt"
)

func (x *callExpr) eval(s *state) (any, error) {
	f, err := s.eval(x.f)
	if err != nil {
		return nil, err
	}
	a, err := s.arguments(x.args)
	if err != nil {
		return nil, err
	}
	v, err := s.call(f, a)
	return v, at(x.line, err)
}

func (s *state) arguments(x arguments) (a call, err error) {
	list, err := s.all(x.args)
	if err != nil {
		return a, err
	}
	n := len(list) - len(x.names)
	a.args = list[:n:n]
	for i, name := range x.names {
		a.named = append(a.named, namedArg{name, list[n+i]})
	}
	return a, s.spread(x, &a)
}

// spread adds the arguments that lists and dictionaries give.
func (s *state) spread(x arguments, a *call) error {
	for _, e := range x.list {
		v, err := s.eval(e)
		if err != nil {
			return err
		}
		items, err := s.items(v)
		if err != nil {
			return err
		}
		a.args = append(a.args, items...)
		if err := s.makes(16 * len(items)); err != nil {
			return err
		}
	}
	for _, e := range x.dict {
		v, err := s.eval(e)
		if err != nil {
			return err
		}
		d, ok := v.(*Dict)
		if !ok {
			return fmt.Errorf("%s follows **, and is not a dictionary", kindOf(v))
		}
		for _, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				return fmt.Errorf("%s is not a name of an argument", kindOf(k))
			}
			a.named = append(a.named, namedArg{name, d.values[k]})
		}
		if err := s.makes(32 * len(d.keys)); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) call(f any, a call) (any, error) {
	switch f := f.(type) {
	case function:
		return f.call(s, a)
	case *loop:
		if f.again == nil {
			return nil, errors.New("loop is called, and is not recursive")
		}
		if len(a.args) != 1 || len(a.named) > 0 {
			return nil, errors.New("loop is called with one argument")
		}
		return f.again(a.args[0])
	case undefined:
		return nil, f.err()
	}
	return nil, fmt.Errorf("%s cannot be called", kindOf(f))
}

func (x filterExpr) eval(s *state) (any, error) {
	v, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	return x.apply(s, v)
}

func (f filterCall) apply(s *state, v any) (any, error) {
	a, err := s.arguments(f.args)
	if err == nil {
		v, err = f.f(s, v, a)
	}
	if err != nil {
		return nil, at(f.line, named("filter "+f.name, err))
	}
	return v, nil
}

// named says where an error is from, unless it says so, or is one of limits.
func named(what string, err error) error {
	var e *Error
	var raised *Raised
	if errors.As(err, &e) || errors.As(err, &raised) || limit(err) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

func limit(err error) bool {
	return errors.Is(err, errWork) || errors.Is(err, errMemory) || errors.Is(err, errOutput) || errors.Is(err, errDepth)
}

func (x testExpr) eval(s *state) (any, error) {
	v, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	a, err := s.arguments(x.args)
	if err != nil {
		return nil, err
	}
	ok, err := x.f(s, v, a)
	if err != nil {
		return nil, at(x.line, named("test "+x.name, err))
	}
	return ok != x.negate, nil
}

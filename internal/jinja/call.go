package jinja

import (
	"errors"
	"fmt"
	"runtime"
)

func (x *callExpr) eval(s *state) any {
	f, a := s.eval(x.f), s.arguments(x.args)
	s.line = x.line
	return s.call(f, a)
}

func (s *state) arguments(x arguments) (a call) {
	list := s.all(x.args)
	n := len(list) - len(x.names)
	a.args = list[:n:n]
	for i, name := range x.names {
		a.named = append(a.named, namedArg{name, list[n+i]})
	}
	s.spread(x, &a)
	return a
}

// spread adds the arguments that lists and dictionaries give.
func (s *state) spread(x arguments, a *call) {
	for _, e := range x.list {
		items := s.items(s.eval(e))
		a.args = append(a.args, items...)
		s.makes(16 * len(items))
	}
	for _, e := range x.dict {
		v := s.eval(e)
		d, ok := v.(*Dict)
		if !ok {
			panic(fmt.Errorf("%s follows **, and is not a dictionary", kindOf(v)))
		}
		for _, k := range d.keys {
			name, ok := k.(string)
			if !ok {
				panic(fmt.Errorf("%s is not a name of an argument", kindOf(k)))
			}
			a.named = append(a.named, namedArg{name, d.values[k]})
		}
		s.makes(32 * len(d.keys))
	}
}

func (s *state) call(f any, a call) any {
	switch f := f.(type) {
	case function:
		return f.call(s, a)
	case *loop:
		if f.again == nil {
			panic(errors.New("loop is called, and is not recursive"))
		}
		if len(a.args) != 1 || len(a.named) > 0 {
			panic(errors.New("loop is called with one argument"))
		}
		return f.again(a.args[0])
	case undefined:
		panic(f.err())
	}
	panic(fmt.Errorf("%s cannot be called", kindOf(f)))
}

func (x filterExpr) eval(s *state) any { return x.apply(s, s.eval(x.of)) }

func (f filterCall) apply(s *state, v any) any {
	a := s.arguments(f.args)
	s.line = f.line
	defer naming("filter " + f.name)
	return f.f(s, v, a)
}

// naming prefixes the error of a panic with where it is from, unless it is one of limits.
func naming(what string) {
	switch e := recover().(type) {
	case nil:
	case runtime.Error:
		panic(e)
	case error:
		if limit(e) {
			panic(e)
		}
		panic(fmt.Errorf("%s: %w", what, e))
	default:
		panic(e)
	}
}

func limit(err error) bool {
	return err == errWork || err == errMemory || err == errOutput || err == errDepth
}

func (x testExpr) eval(s *state) any {
	v, a := s.eval(x.of), s.arguments(x.args)
	s.line = x.line
	defer naming("test " + x.name)
	return x.f(s, v, a) != x.negate
}

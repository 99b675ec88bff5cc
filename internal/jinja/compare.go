package jinja

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

func (x compareExpr) eval(s *state) any {
	a := s.eval(x.first)
	for i, op := range x.ops {
		b := s.eval(x.rest[i])
		s.line = x.line
		if !s.compare(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (s *state) compare(op string, a, b any) bool {
	switch op {
	case "==", "!=":
		return s.same(a, b, 0) == (op == "==")
	case "in", "not in":
		return s.in(a, b) == (op == "in")
	}
	c := s.order(a, b, 0)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// in reports whether a is in b.
func (s *state) in(a, b any) bool {
	switch b := b.(type) {
	case string:
		t, ok := a.(string)
		if !ok {
			panic(fmt.Errorf("%s is looked for in a string", kindOf(a)))
		}
		s.reads(len(b))
		return strings.Contains(b, t)
	case *Dict:
		_, ok := b.get(a)
		return ok
	case undefined:
		return false
	}
	list, ok := sequence(b)
	if !ok {
		panic(fmt.Errorf("%s has nothing in it", kindOf(b)))
	}
	return slices.ContainsFunc(list, func(x any) bool { return s.same(a, x, 0) })
}

// same compares two values.
func (s *state) same(a, b any, depth int) bool {
	if depth > deepest {
		panic(errDepth)
	}
	s.step(1)
	if x, ok := numeric(a); ok {
		y, ok := numeric(b)
		return ok && x == y
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case string:
		y, ok := b.(string)
		if !ok || len(x) != len(y) {
			return false
		}
		s.reads(len(x))
		return x == y
	case []any:
		y, ok := b.([]any)
		return s.sameItems(x, y, ok, depth)
	case tuple:
		y, ok := b.(tuple)
		return s.sameItems(x, y, ok, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		for _, k := range x.keys {
			if v, ok := y.values[k]; !ok || !s.same(x.values[k], v, depth+1) {
				return false
			}
		}
		return true
	case *namespace:
		return any(x) == b
	case *loop:
		return any(x) == b
	}
	return false
}

func (s *state) sameItems(x, y []any, ok bool, depth int) bool {
	return ok && slices.EqualFunc(x, y, func(a, b any) bool { return s.same(a, b, depth+1) })
}

// order compares two values that have an order: below 0, 0, or above.
func (s *state) order(a, b any, depth int) int {
	if depth > deepest {
		panic(errDepth)
	}
	s.step(1)
	x, ok1 := numeric(a)
	y, ok2 := numeric(b)
	if ok1 && ok2 {
		return cmp.Compare(x, y)
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			s.reads(min(len(x), len(y)))
			return strings.Compare(x, y)
		}
	}
	p, ok1 := sequence(a)
	q, ok2 := sequence(b)
	if !ok1 || !ok2 {
		if u, ok := a.(undefined); ok {
			panic(u.err())
		}
		if u, ok := b.(undefined); ok {
			panic(u.err())
		}
		panic(fmt.Errorf("%s and %s have no order", kindOf(a), kindOf(b)))
	}
	return slices.CompareFunc(p, q, func(a, b any) int { return s.order(a, b, depth+1) })
}

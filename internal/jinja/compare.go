package jinja

import (
	"fmt"
	"strings"
)

func (x compareExpr) eval(s *state) (any, error) {
	a, err := s.eval(x.first)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := s.eval(x.rest[i])
		if err != nil {
			return nil, err
		}
		ok, err := s.compare(op, a, b)
		if err != nil || !ok {
			return false, at(x.line, err)
		}
		a = b
	}
	return true, nil
}

func (s *state) compare(op string, a, b any) (bool, error) {
	switch op {
	case "==", "!=":
		same, err := s.same(a, b, 0)
		return same == (op == "=="), err
	case "in", "not in":
		in, err := s.in(a, b)
		return in == (op == "in"), err
	}
	c, err := s.order(a, b, 0)
	if err != nil {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

// in reports whether a is in b.
func (s *state) in(a, b any) (bool, error) {
	switch b := b.(type) {
	case string:
		t, ok := a.(string)
		if !ok {
			return false, fmt.Errorf("%s is looked for in a string", kindOf(a))
		}
		return strings.Contains(b, t), s.reads(len(b))
	case *Dict:
		_, ok := b.get(a)
		return ok, nil
	case undefined:
		return false, nil
	}
	list, ok := sequence(b)
	if !ok {
		return false, fmt.Errorf("%s has nothing in it", kindOf(b))
	}
	for _, x := range list {
		if eq, err := s.same(a, x, 0); eq || err != nil {
			return eq, err
		}
	}
	return false, nil
}

// same compares two values.
func (s *state) same(a, b any, depth int) (bool, error) {
	if depth > deepest {
		return false, errDepth
	}
	if err := s.step(1); err != nil {
		return false, err
	}
	if x, ok := numeric(a); ok {
		y, ok := numeric(b)
		return ok && x == y, nil
	}
	switch x := a.(type) {
	case nil:
		return b == nil, nil
	case undefined:
		_, ok := b.(undefined)
		return ok, nil
	case string:
		y, ok := b.(string)
		if !ok || len(x) != len(y) {
			return false, nil
		}
		return x == y, s.reads(len(x))
	case []any:
		y, ok := b.([]any)
		return s.sameItems(x, y, ok, depth)
	case tuple:
		y, ok := b.(tuple)
		return s.sameItems(x, y, ok, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false, nil
		}
		for _, k := range x.keys {
			v, ok := y.values[k]
			if !ok {
				return false, nil
			}
			if eq, err := s.same(x.values[k], v, depth+1); !eq || err != nil {
				return false, err
			}
		}
		return true, nil
	case *namespace:
		return any(x) == b, nil
	case *loop:
		return any(x) == b, nil
	}
	return false, nil
}

func (s *state) sameItems(x, y []any, ok bool, depth int) (bool, error) {
	if !ok || len(x) != len(y) {
		return false, nil
	}
	for i := range x {
		if eq, err := s.same(x[i], y[i], depth+1); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// order compares two values that have an order: below 0, 0, or above.
func (s *state) order(a, b any, depth int) (int, error) {
	if depth > deepest {
		return 0, errDepth
	}
	if err := s.step(1); err != nil {
		return 0, err
	}
	x, ok1 := numeric(a)
	y, ok2 := numeric(b)
	if ok1 && ok2 {
		switch {
		case x < y:
			return -1, nil
		case x > y:
			return 1, nil
		}
		return 0, nil
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), s.reads(min(len(x), len(y)))
		}
	}
	p, ok1 := sequence(a)
	q, ok2 := sequence(b)
	if !ok1 || !ok2 {
		if u, ok := a.(undefined); ok {
			return 0, u.err()
		}
		if u, ok := b.(undefined); ok {
			return 0, u.err()
		}
		return 0, fmt.Errorf("%s and %s have no order", kindOf(a), kindOf(b))
	}
	for i := range min(len(p), len(q)) {
		if c, err := s.order(p[i], q[i], depth+1); c != 0 || err != nil {
			return c, err
		}
	}
	return len(p) - len(q), nil
}

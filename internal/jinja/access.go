package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

func (x attrExpr) eval(s *state) any {
	of := s.eval(x.of)
	s.line = x.line
	return s.attribute(of, x.name)
}

// attribute is of.name: a method, or else an item.
func (s *state) attribute(of any, name string) any {
	if f, ok := method(of, name); ok {
		return f
	}
	switch of := of.(type) {
	case undefined:
		panic(of.err())
	case *loop:
		if v, ok := of.field(name); ok {
			return v
		}
	case *namespace:
		if v, ok := of.get(name); ok {
			return v
		}
	case *Dict:
		if v, ok := of.get(name); ok {
			return v
		}
	}
	return undefined{fmt.Sprintf("the field %q of %s", name, kindOf(of))}
}

func (x itemExpr) eval(s *state) any {
	of := s.eval(x.of)
	key := s.eval(x.key)
	s.line = x.line
	return s.item(of, key)
}

// item is of[key]: an item, or else a method.
func (s *state) item(of, key any) any {
	if u, ok := of.(undefined); ok {
		panic(u.err())
	}
	if d, ok := of.(*Dict); ok {
		if v, ok := d.get(key); ok {
			return v
		}
	}
	n, isInt := key.(int)
	if list, ok := sequence(of); ok && isInt {
		if n < 0 {
			n += len(list)
		}
		if n >= 0 && n < len(list) {
			return list[n]
		}
	}
	if t, ok := of.(string); ok && isInt {
		s.reads(len(t))
		all := utf8.RuneCountInString(t)
		if n < 0 {
			n += all
		}
		if n >= 0 && n < all {
			return string([]rune(t)[n])
		}
	}
	if name, ok := key.(string); ok {
		if _, isDict := of.(*Dict); !isDict {
			return s.attribute(of, name)
		}
		if f, ok := method(of, name); ok {
			return f
		}
	}
	var w writer
	s.repr(&w, key, 0, true)
	return undefined{fmt.Sprintf("the item %s of %s", cut(w.String()), kindOf(of))}
}

// cut is a text that is short enough for an error.
func cut(t string) string {
	if len(t) > 60 {
		return strings.ToValidUTF8(t[:60], "") + "…"
	}
	return t
}

func (x sliceExpr) eval(s *state) any {
	of := s.eval(x.of)
	var bounds [3]*int
	for i, e := range []expr{x.from, x.to, x.step} {
		if e == nil {
			continue
		}
		v := s.eval(e)
		switch n := v.(type) {
		case nil:
		case int:
			bounds[i] = &n
		default:
			s.line = x.line
			panic(fmt.Errorf("a slice needs integers, and has %s", kindOf(v)))
		}
	}
	s.line = x.line
	return s.slice(of, bounds)
}

func (s *state) slice(of any, bounds [3]*int) any {
	switch of := of.(type) {
	case string:
		s.makes(5 * len(of))
		return string(cutOut([]rune(of), bounds))
	case []any:
		list := cutOut(of, bounds)
		s.makes(16 * len(list))
		return list
	case tuple:
		list := cutOut(of, bounds)
		s.makes(16 * len(list))
		return list
	case undefined:
		panic(of.err())
	}
	panic(fmt.Errorf("%s cannot be sliced", kindOf(of)))
}

// cutOut is a slice as Python has it.
func cutOut[T any, L ~[]T](list L, bounds [3]*int) L {
	n, step := len(list), 1
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		panic(errors.New("a slice of step 0"))
	}
	lo, hi := 0, n // what bounds are kept within
	if step < 0 {
		lo, hi = -1, n-1
	}
	bound := func(b *int, def int) int {
		if b == nil {
			return def
		}
		i := *b
		if i < 0 {
			i += n
		}
		return max(lo, min(i, hi))
	}
	from, to := bound(bounds[0], lo), bound(bounds[1], hi)
	if step < 0 {
		from, to = bound(bounds[0], hi), bound(bounds[1], lo)
	}
	out := L{}
	for i := range steps(from, to, step) {
		out = append(out, list[i])
	}
	return out
}

package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

func (x attrExpr) eval(s *state) (any, error) {
	of, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	v, err := s.attribute(of, x.name)
	return v, at(x.line, err)
}

// attribute is of.name: a method, or else an item.
func (s *state) attribute(of any, name string) (any, error) {
	if f, ok := method(of, name); ok {
		return f, nil
	}
	switch of := of.(type) {
	case undefined:
		return nil, of.err()
	case *loop:
		if v, ok := of.field(name); ok {
			return v, nil
		}
	case *namespace:
		if v, ok := of.get(name); ok {
			return v, nil
		}
	case *Dict:
		if v, ok := of.get(name); ok {
			return v, nil
		}
	}
	return undefined{fmt.Sprintf("the field %q of %s", name, kindOf(of))}, nil
}

func (x itemExpr) eval(s *state) (any, error) {
	of, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	key, err := s.eval(x.key)
	if err != nil {
		return nil, err
	}
	v, err := s.item(of, key)
	return v, at(x.line, err)
}

// item is of[key]: an item, or else a method.
func (s *state) item(of, key any) (any, error) {
	if u, ok := of.(undefined); ok {
		return nil, u.err()
	}
	if d, ok := of.(*Dict); ok {
		if v, ok := d.get(key); ok {
			return v, nil
		}
	}
	n, isInt := key.(int)
	if list, ok := sequence(of); ok && isInt {
		if n < 0 {
			n += len(list)
		}
		if n >= 0 && n < len(list) {
			return list[n], nil
		}
	}
	if t, ok := of.(string); ok && isInt {
		if err := s.reads(len(t)); err != nil {
			return nil, err
		}
		all := utf8.RuneCountInString(t)
		if n < 0 {
			n += all
		}
		if n >= 0 && n < all {
			return string([]rune(t)[n]), nil
		}
	}
	if name, ok := key.(string); ok {
		if _, isDict := of.(*Dict); !isDict {
			return s.attribute(of, name)
		}
		if f, ok := method(of, name); ok {
			return f, nil
		}
	}
	var w writer
	if err := s.repr(&w, key, 0, true); err != nil {
		return nil, err
	}
	return undefined{fmt.Sprintf("the item %s of %s", cut(w.String()), kindOf(of))}, nil
}

// cut is a text that is short enough for an error.
func cut(t string) string {
	if len(t) > 60 {
		return strings.ToValidUTF8(t[:60], "") + "…"
	}
	return t
}

func (x sliceExpr) eval(s *state) (any, error) {
	of, err := s.eval(x.of)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int
	for i, e := range []expr{x.from, x.to, x.step} {
		if e == nil {
			continue
		}
		v, err := s.eval(e)
		if err != nil {
			return nil, err
		}
		switch n := v.(type) {
		case nil:
		case int:
			bounds[i] = &n
		default:
			return nil, at(x.line, fmt.Errorf("a slice needs integers, and has %s", kindOf(v)))
		}
	}
	v, err := s.slice(of, bounds)
	return v, at(x.line, err)
}

func (s *state) slice(of any, bounds [3]*int) (any, error) {
	switch of := of.(type) {
	case string:
		runes := []rune(of)
		if err := s.makes(5 * len(of)); err != nil {
			return nil, err
		}
		list, err := cutOut(runes, bounds)
		return string(list), err
	case []any:
		list, err := cutOut(of, bounds)
		return list, errors.Join(err, s.makes(16*len(list)))
	case tuple:
		list, err := cutOut(of, bounds)
		return list, errors.Join(err, s.makes(16*len(list)))
	case undefined:
		return nil, of.err()
	}
	return nil, fmt.Errorf("%s cannot be sliced", kindOf(of))
}

// cutOut is a slice as Python has it.
func cutOut[T any, L ~[]T](list L, bounds [3]*int) (L, error) {
	n, step := len(list), 1
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, errors.New("a slice of step 0")
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
	return out, nil
}

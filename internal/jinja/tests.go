package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// test asks something about a value.
type test func(s *state, v any, a call) bool

// tests maps names to tests ("x is NAME").
var tests map[string]test

func init() {
	tests = map[string]test{
		"defined":     asking(func(v any) bool { _, not := v.(undefined); return !not }),
		"undefined":   asking(func(v any) bool { _, not := v.(undefined); return not }),
		"none":        asking(func(v any) bool { return v == nil }),
		"boolean":     asking(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":        asking(func(v any) bool { return v == true }),
		"false":       asking(func(v any) bool { return v == false }),
		"integer":     asking(func(v any) bool { _, ok := v.(int); return ok }),
		"float":       asking(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":      asking(func(v any) bool { _, ok := numeric(v); return ok }),
		"string":      asking(func(v any) bool { _, ok := v.(string); return ok }),
		"mapping":     asking(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"sequence":    asking(isIterable),
		"iterable":    asking(isIterable),
		"callable":    asking(func(v any) bool { _, ok := v.(function); return ok }),
		"lower":       asking(func(v any) bool { t, ok := v.(string); return ok && t == strings.ToLower(t) && hasCase(t) }),
		"upper":       asking(func(v any) bool { t, ok := v.(string); return ok && t == strings.ToUpper(t) && hasCase(t) }),
		"escaped":     asking(func(any) bool { return false }),
		"odd":         dividing(func(n, _ int) bool { return n%2 != 0 }, 0),
		"even":        dividing(func(n, _ int) bool { return n%2 == 0 }, 0),
		"divisibleby": dividing(func(n, by int) bool { return by != 0 && n%by == 0 }, 1),
		"sameas":      comparing("=="),
		"in":          comparing("in"),
		"filter":      asking(func(v any) bool { t, _ := v.(string); return filters[t] != nil }),
		"test":        asking(func(v any) bool { t, _ := v.(string); return tests[t] != nil }),
	}
	for op, names := range map[string]string{"==": "eq equalto ==", "!=": "ne !=", "<": "lt lessthan <", "<=": "le <=", ">": "gt greaterthan >", ">=": "ge >="} {
		for name := range strings.FieldsSeq(names) {
			tests[name] = comparing(op)
		}
	}
}

func asking(f func(any) bool) test {
	return func(s *state, v any, a call) bool {
		a.want("")
		if t, ok := v.(string); ok {
			s.reads(len(t))
		}
		return f(v)
	}
}

func isIterable(v any) bool {
	switch v.(type) {
	case string, *Dict, undefined:
		return true
	}
	_, ok := sequence(v)
	return ok
}

func hasCase(t string) bool {
	return strings.ContainsFunc(t, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) })
}

func dividing(f func(n, by int) bool, args int) test {
	return func(_ *state, v any, a call) bool {
		n, ok := v.(int)
		if !ok {
			panic(fmt.Errorf("%s is not an integer", kindOf(v)))
		}
		if len(a.args) != args || len(a.named) > 0 {
			panic(fmt.Errorf("%d arguments, and it takes %d", len(a.args)+len(a.named), args))
		}
		by := 0
		if args > 0 {
			if by, ok = a.args[0].(int); !ok || by == 0 {
				panic(errors.New("its argument is an integer, and not 0"))
			}
		}
		return f(n, by)
	}
}

func comparing(op string) test {
	return func(s *state, v any, a call) bool {
		if len(a.args) != 1 || len(a.named) > 0 {
			panic(errors.New("it takes one argument"))
		}
		return s.compare(op, v, a.args[0])
	}
}

package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func batch(s *state, v any, a call) any {
	var count, fill any
	a.want("linecount fill_with", &count, &fill)
	n, ok := count.(int)
	if !ok || n < 1 {
		panic(errors.New("it needs a number above 0"))
	}
	list := s.items(v)
	s.makes(48 * len(list))
	out := []any{}
	for c := range slices.Chunk(list, n) {
		out = append(out, slices.Clone(c))
	}
	if k := len(out) - 1; k >= 0 && fill != nil {
		s.makes(16 * min(n, s.limits.Memory))
		for c := out[k].([]any); len(c) < n; out[k] = c {
			c = append(c, fill)
		}
	}
	return out
}

func dictSort(s *state, v any, a call) any {
	var sensitive, by, reversed any = false, "key", false
	a.want("case_sensitive by reverse", &sensitive, &by, &reversed)
	d, ok := v.(*Dict)
	if !ok {
		panic(fmt.Errorf("%s is not a dictionary", kindOf(v)))
	}
	at := 0
	if by == "value" {
		at = 1
	}
	return s.sorted(s.pairs(d), func(x any) any { return folded(x.(tuple)[at], truth(sensitive)) }, truth(reversed))
}

// folded is a text in small letters, unless case counts.
func folded(v any, sensitive bool) any {
	if t, ok := v.(string); ok && !sensitive {
		return strings.ToLower(t)
	}
	return v
}

// sorted is a list in the order of keys.
func (s *state) sorted(list []any, key func(any) any, reversed bool) []any {
	type pair struct{ key, v any }
	s.makes(64 * len(list))
	pairs := make([]pair, len(list))
	for i, v := range list {
		pairs[i] = pair{key(v), v}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if reversed {
			a, b = b, a
		}
		return s.order(a.key, b.key, 0)
	})
	out := make([]any, len(list))
	for i, p := range pairs {
		out[i] = p.v
	}
	return out
}

func (s *state) pairs(d *Dict) []any {
	out := make([]any, len(d.keys))
	for i, k := range d.keys {
		out[i] = tuple{k, d.values[k]}
	}
	s.makes(64 * len(out))
	return out
}

func items(s *state, v any, a call) any {
	a.want("")
	switch v := v.(type) {
	case undefined:
		return []any{}
	case *Dict:
		return s.pairs(v)
	}
	panic(fmt.Errorf("%s is not a dictionary", kindOf(v)))
}

func first(s *state, v any, a call) any {
	a.want("")
	for _, x := range s.items(v) {
		return x
	}
	return undefined{"the first item of nothing"}
}

func last(s *state, v any, a call) any {
	a.want("")
	for _, x := range slices.Backward(s.items(v)) {
		return x
	}
	return undefined{"the last item of nothing"}
}

func join(s *state, v any, a call) any {
	var by, attribute any = "", nil
	a.want("d attribute", &by, &attribute)
	list := s.items(v)
	sep, get := s.text(by), s.getter(attribute)
	var w writer
	for i, x := range list {
		if i > 0 {
			s.put(&w, sep)
		}
		s.put(&w, s.text(get(x)))
	}
	return w.String()
}

// getter finds an attribute, a.b.0, of a value; nil: the value itself.
func (s *state) getter(attribute any) func(any) any {
	return func(v any) any {
		if attribute == nil {
			return v
		}
		if n, ok := attribute.(int); ok {
			return s.item(v, n)
		}
		path, ok := attribute.(string)
		if !ok {
			panic(fmt.Errorf("an attribute that is %s", kindOf(attribute)))
		}
		for part := range strings.SplitSeq(path, ".") {
			var key any = part
			if n, err := strconv.Atoi(part); err == nil {
				key = n
			}
			s.step(1)
			v = s.item(v, key)
		}
		return v
	}
}

func toList(s *state, v any, a call) any {
	a.want("")
	list := s.items(v)
	s.makes(16 * len(list))
	return slices.Concat([]any{}, list)
}

func mapFilter(s *state, v any, a call) any {
	list := s.items(v)
	apply := s.mapped(a)
	out := make([]any, len(list))
	for i, x := range list {
		s.makes(16)
		out[i] = apply(x)
	}
	return out
}

// mapped is what map does to each item: an attribute, or a filter.
func (s *state) mapped(a call) func(any) any {
	if len(a.args) == 0 {
		var attribute, def any
		a.want("attribute default", &attribute, &def)
		get := s.getter(attribute)
		return func(v any) any {
			v = get(v)
			if _, not := v.(undefined); not && def != nil {
				return def
			}
			return v
		}
	}
	name, _ := a.args[0].(string)
	f := filters[name]
	if f == nil {
		panic(fmt.Errorf("there is no filter %q", cut(name)))
	}
	rest := call{a.args[1:], a.named}
	return func(v any) any {
		if s.depth++; s.depth > deepestRun {
			panic(errDepth)
		}
		defer func() { s.depth-- }()
		return f(s, v, rest)
	}
}

// best is the filter max, or min for a sign below 0.
func best(sign int) filter {
	return func(s *state, v any, a call) any {
		var sensitive, attribute any = false, nil
		a.want("case_sensitive attribute", &sensitive, &attribute)
		list := s.items(v)
		var out, key any = undefined{"the best of nothing"}, nil
		get := s.getter(attribute)
		for i, x := range list {
			k := folded(get(x), truth(sensitive))
			if i == 0 || sign*s.order(k, key, 0) > 0 {
				out, key = x, k
			}
		}
		return out
	}
}

// selecting is select, reject, selectattr or rejectattr.
func selecting(byAttr, keep bool) filter {
	return func(s *state, v any, a call) any {
		var attribute any
		if byAttr {
			if len(a.args) == 0 {
				panic(errors.New("it needs an attribute"))
			}
			attribute, a.args = a.args[0], a.args[1:]
		}
		is := func(_ *state, v any, _ call) bool { return truth(v) }
		if len(a.args) > 0 {
			name, _ := a.args[0].(string)
			if is = tests[name]; is == nil {
				panic(fmt.Errorf("there is no test %q", cut(name)))
			}
			a.args = a.args[1:]
		}
		list := s.items(v)
		get, out := s.getter(attribute), []any{}
		for _, x := range list {
			s.makes(16)
			if is(s, get(x), a) == keep {
				out = append(out, x)
			}
		}
		return out
	}
}

func reverse(s *state, v any, a call) any {
	a.want("")
	if t, ok := v.(string); ok {
		r := []rune(t)
		slices.Reverse(r)
		s.makes(5 * len(t))
		return string(r)
	}
	list := slices.Concat([]any{}, s.items(v))
	slices.Reverse(list)
	s.makes(16 * len(list))
	return list
}

func sortFilter(s *state, v any, a call) any {
	var reversed, sensitive, attribute any = false, false, nil
	a.want("reverse case_sensitive attribute", &reversed, &sensitive, &attribute)
	list := s.items(v)
	get := s.getter(attribute)
	return s.sorted(list, func(x any) any { return folded(get(x), truth(sensitive)) }, truth(reversed))
}

func sum(s *state, v any, a call) any {
	var attribute, total any = nil, 0
	a.want("attribute start", &attribute, &total)
	list := s.items(v)
	get := s.getter(attribute)
	for _, x := range list {
		s.step(1)
		total = s.binary("+", total, get(x))
	}
	return total
}

func unique(s *state, v any, a call) any {
	var sensitive, attribute any = false, nil
	a.want("case_sensitive attribute", &sensitive, &attribute)
	list := s.items(v)
	get, out, seen := s.getter(attribute), []any{}, map[any]bool{}
	for _, x := range list {
		s.makes(64)
		if k := hashable(folded(get(x), truth(sensitive))); !seen[k] {
			seen[k] = true
			out = append(out, x)
		}
	}
	return out
}

package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func batch(s *state, v any, a call) (any, error) {
	var count, fill any
	if err := a.want("linecount fill_with", &count, &fill); err != nil {
		return nil, err
	}
	n, ok := count.(int)
	if !ok || n < 1 {
		return nil, errors.New("it needs a number above 0")
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	if err := s.makes(48 * len(list)); err != nil {
		return nil, err
	}
	out := []any{}
	for c := range slices.Chunk(list, n) {
		out = append(out, slices.Clone(c))
	}
	if k := len(out) - 1; k >= 0 && fill != nil {
		if err := s.makes(16 * min(n, s.limits.Memory)); err != nil {
			return nil, err
		}
		for c := out[k].([]any); len(c) < n; out[k] = c {
			c = append(c, fill)
		}
	}
	return out, nil
}

func dictSort(s *state, v any, a call) (any, error) {
	var sensitive, by, reversed any = false, "key", false
	if err := a.want("case_sensitive by reverse", &sensitive, &by, &reversed); err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s is not a dictionary", kindOf(v))
	}
	at := 0
	if by == "value" {
		at = 1
	}
	list, err := s.pairs(d)
	if err != nil {
		return nil, err
	}
	return s.sorted(list, func(x any) (any, error) { return folded(x.(tuple)[at], truth(sensitive)), nil }, truth(reversed))
}

// folded is a text in small letters, unless case counts.
func folded(v any, sensitive bool) any {
	if t, ok := v.(string); ok && !sensitive {
		return strings.ToLower(t)
	}
	return v
}

// sorted is a list in the order of keys.
func (s *state) sorted(list []any, key func(any) (any, error), reversed bool) ([]any, error) {
	type pair struct{ key, v any }
	if err := s.makes(64 * len(list)); err != nil {
		return nil, err
	}
	pairs := make([]pair, len(list))
	for i, v := range list {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		pairs[i] = pair{k, v}
	}
	var failed error
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if failed != nil {
			return 0
		}
		c, err := s.order(a.key, b.key, 0)
		failed = err
		if reversed {
			return -c
		}
		return c
	})
	out := make([]any, len(list))
	for i, p := range pairs {
		out[i] = p.v
	}
	return out, failed
}

func (s *state) pairs(d *Dict) ([]any, error) {
	out := make([]any, len(d.keys))
	for i, k := range d.keys {
		out[i] = tuple{k, d.values[k]}
	}
	return out, s.makes(64 * len(out))
}

func items(s *state, v any, a call) (any, error) {
	if err := a.want(""); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case undefined:
		return []any{}, nil
	case *Dict:
		list, err := s.pairs(v)
		return list, err
	}
	return nil, fmt.Errorf("%s is not a dictionary", kindOf(v))
}

func first(s *state, v any, a call) (any, error) {
	list, err := s.items(v)
	if err != nil || len(list) == 0 {
		return undefined{"the first item of nothing"}, errors.Join(err, a.want(""))
	}
	return list[0], a.want("")
}

func last(s *state, v any, a call) (any, error) {
	list, err := s.items(v)
	if err != nil || len(list) == 0 {
		return undefined{"the last item of nothing"}, errors.Join(err, a.want(""))
	}
	return list[len(list)-1], a.want("")
}

func join(s *state, v any, a call) (any, error) {
	var by, attribute any = "", nil
	if err := a.want("d attribute", &by, &attribute); err != nil {
		return nil, err
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	sep, err := s.text(by)
	if err != nil {
		return nil, err
	}
	get := s.getter(attribute)
	var w writer
	for i, x := range list {
		if i > 0 {
			if err := s.put(&w, sep); err != nil {
				return nil, err
			}
		}
		if x, err = get(x); err != nil {
			return nil, err
		}
		t, err := s.text(x)
		if err == nil {
			err = s.put(&w, t)
		}
		if err != nil {
			return nil, err
		}
	}
	return w.String(), nil
}

// getter finds an attribute, a.b.0, of a value; nil: the value itself.
func (s *state) getter(attribute any) func(any) (any, error) {
	return func(v any) (any, error) {
		if attribute == nil {
			return v, nil
		}
		if n, ok := attribute.(int); ok {
			return s.item(v, n)
		}
		path, ok := attribute.(string)
		if !ok {
			return nil, fmt.Errorf("an attribute that is %s", kindOf(attribute))
		}
		for part := range strings.SplitSeq(path, ".") {
			var key any = part
			if n, err := strconv.Atoi(part); err == nil {
				key = n
			}
			var err error
			if err = s.step(1); err == nil {
				v, err = s.item(v, key)
			}
			if err != nil {
				return nil, err
			}
		}
		return v, nil
	}
}

func toList(s *state, v any, a call) (any, error) {
	if err := a.want(""); err != nil {
		return nil, err
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]any{}, list), s.makes(16 * len(list))
}

func mapFilter(s *state, v any, a call) (any, error) {
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	apply, err := s.mapped(a)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(list))
	for i, x := range list {
		if err := s.makes(16); err != nil {
			return nil, err
		}
		if out[i], err = apply(x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// mapped is what map does to each item: an attribute, or a filter.
func (s *state) mapped(a call) (func(any) (any, error), error) {
	if len(a.args) == 0 {
		var attribute, def any
		if err := a.want("attribute default", &attribute, &def); err != nil {
			return nil, err
		}
		get := s.getter(attribute)
		return func(v any) (any, error) {
			v, err := get(v)
			if _, not := v.(undefined); err == nil && not && def != nil {
				return def, nil
			}
			return v, err
		}, nil
	}
	name, _ := a.args[0].(string)
	f := filters[name]
	if f == nil {
		return nil, fmt.Errorf("there is no filter %q", cut(name))
	}
	rest := call{a.args[1:], a.named}
	return func(v any) (any, error) {
		if s.depth++; s.depth > deepestRun {
			return nil, errDepth
		}
		defer func() { s.depth-- }()
		return f(s, v, rest)
	}, nil
}

// best is the filter max, or min for a sign below 0.
func best(sign int) filter {
	return func(s *state, v any, a call) (any, error) {
		var sensitive, attribute any = false, nil
		if err := a.want("case_sensitive attribute", &sensitive, &attribute); err != nil {
			return nil, err
		}
		list, err := s.items(v)
		if err != nil {
			return nil, err
		}
		var out, key any = undefined{"the best of nothing"}, nil
		get := s.getter(attribute)
		for i, x := range list {
			k, err := get(x)
			if err != nil {
				return nil, err
			}
			k = folded(k, truth(sensitive))
			c := 1
			if i > 0 {
				if c, err = s.order(k, key, 0); err != nil {
					return nil, err
				}
				c *= sign
			}
			if c > 0 {
				out, key = x, k
			}
		}
		return out, nil
	}
}

// selecting is select, reject, selectattr or rejectattr.
func selecting(byAttr, keep bool) filter {
	return func(s *state, v any, a call) (any, error) {
		var attribute any
		if byAttr {
			if len(a.args) == 0 {
				return nil, errors.New("it needs an attribute")
			}
			attribute, a.args = a.args[0], a.args[1:]
		}
		is := func(_ *state, v any, _ call) (bool, error) { return truth(v), nil }
		if len(a.args) > 0 {
			name, _ := a.args[0].(string)
			if is = tests[name]; is == nil {
				return nil, fmt.Errorf("there is no test %q", cut(name))
			}
			a.args = a.args[1:]
		}
		list, err := s.items(v)
		if err != nil {
			return nil, err
		}
		get, out := s.getter(attribute), []any{}
		for _, x := range list {
			y, err := get(x)
			if err != nil {
				return nil, err
			}
			ok, err := is(s, y, a)
			if err == nil {
				err = s.makes(16)
			}
			if err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, x)
			}
		}
		return out, nil
	}
}

func reverse(s *state, v any, a call) (any, error) {
	if err := a.want(""); err != nil {
		return nil, err
	}
	if t, ok := v.(string); ok {
		r := []rune(t)
		slices.Reverse(r)
		return string(r), s.makes(5 * len(t))
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	list = slices.Concat([]any{}, list)
	slices.Reverse(list)
	return list, s.makes(16 * len(list))
}

func sortFilter(s *state, v any, a call) (any, error) {
	var reversed, sensitive, attribute any = false, false, nil
	if err := a.want("reverse case_sensitive attribute", &reversed, &sensitive, &attribute); err != nil {
		return nil, err
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	get := s.getter(attribute)
	return s.sorted(list, func(x any) (any, error) {
		k, err := get(x)
		return folded(k, truth(sensitive)), err
	}, truth(reversed))
}

func sum(s *state, v any, a call) (any, error) {
	var attribute, total any = nil, 0
	if err := a.want("attribute start", &attribute, &total); err != nil {
		return nil, err
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	get := s.getter(attribute)
	for _, x := range list {
		if x, err = get(x); err == nil {
			total, err = s.binary("+", total, x)
		}
		if err == nil {
			err = s.step(1)
		}
		if err != nil {
			return nil, err
		}
	}
	return total, nil
}

func unique(s *state, v any, a call) (any, error) {
	var sensitive, attribute any = false, nil
	if err := a.want("case_sensitive attribute", &sensitive, &attribute); err != nil {
		return nil, err
	}
	list, err := s.items(v)
	if err != nil {
		return nil, err
	}
	get, out, seen := s.getter(attribute), []any{}, map[any]bool{}
	for _, x := range list {
		k, err := get(x)
		if err == nil {
			k, err = hashable(folded(k, truth(sensitive)))
		}
		if err == nil {
			err = s.makes(64)
		}
		if err != nil {
			return nil, err
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, x)
		}
	}
	return out, nil
}

package jinja

import (
	"errors"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filter changes a value.
type filter func(s *state, v any, a call) (any, error)

// filters are those that there are. It is filled at the start, since some look up others.
var filters map[string]filter

func init() {
	filters = map[string]filter{
		"abs": absolute, "attr": attr, "batch": batch, "capitalize": texts(capitalize), "center": center, "count": length, "d": orDefault, "default": orDefault,
		"dictsort": dictSort, "e": texts(html5), "escape": texts(html5), "first": first, "float": toFloat, "format": formatFilter, "indent": indentFilter,
		"int": toInt, "items": items, "join": join, "last": last, "length": length, "list": toList, "lower": texts(strings.ToLower), "map": mapFilter,
		"max": best(1), "min": best(-1), "reject": selecting(false, false), "rejectattr": selecting(true, false), "replace": replace, "reverse": reverse,
		"round": round, "safe": texts(func(t string) string { return t }), "select": selecting(false, true), "selectattr": selecting(true, true), "sort": sortFilter, "string": texts(func(t string) string { return t }),
		"sum": sum, "title": texts(title), "tojson": toJSON, "trim": trim, "truncate": truncate, "unique": unique, "upper": texts(strings.ToUpper), "wordcount": wordCount,
	}
}

// texts is a filter of a function of texts.
func texts(f func(string) string) filter {
	return func(s *state, v any, a call) (any, error) {
		if err := a.want(""); err != nil {
			return nil, err
		}
		t, err := s.text(v)
		if err != nil {
			return nil, err
		}
		return f(t), s.makes(2 * len(t))
	}
}

func html5(t string) string {
	return strings.ReplaceAll(html.EscapeString(t), "\r", "\r")
}

func capitalize(t string) string {
	r, n := utf8.DecodeRuneInString(t)
	if n == 0 {
		return t
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(t[n:])
}

func title(t string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\''
		defer func() { inside = letter }()
		if inside {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, t)
}

func absolute(_ *state, v any, a call) (any, error) {
	if n, ok := v.(int); ok && n != math.MinInt {
		return max(n, -n), a.want("")
	}
	f, ok := numeric(v)
	if !ok {
		return nil, fmt.Errorf("%s has no absolute value", kindOf(v))
	}
	return math.Abs(f), a.want("")
}

func attr(s *state, v any, a call) (any, error) {
	var name any
	if err := a.want("name", &name); err != nil {
		return nil, err
	}
	t, ok := name.(string)
	if !ok {
		return nil, errors.New("it needs a name")
	}
	return s.attribute(v, t)
}

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

func center(s *state, v any, a call) (any, error) {
	var width any = 80
	if err := a.want("width", &width); err != nil {
		return nil, err
	}
	n, ok := width.(int)
	t, err := s.text(v)
	if err != nil || !ok {
		return nil, errors.Join(err, errors.New("its width is a number"))
	}
	missing := max(n-utf8.RuneCountInString(t), 0)
	left := missing/2 + missing&n&1 // as Python does
	before, err := s.repeat(" ", left)
	if err != nil {
		return nil, err
	}
	after, err := s.repeat(" ", missing-left)
	if err != nil {
		return nil, err
	}
	return before.(string) + t + after.(string), s.makes(len(t))
}

func length(s *state, v any, a call) (any, error) {
	if err := a.want(""); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), s.reads(len(v))
	case *Dict:
		return len(v.keys), nil
	case undefined:
		return 0, nil
	}
	if list, ok := sequence(v); ok {
		return len(list), nil
	}
	return nil, fmt.Errorf("%s has no length", kindOf(v))
}

func orDefault(_ *state, v any, a call) (any, error) {
	var def, boolean any = "", false
	if err := a.want("default_value boolean", &def, &boolean); err != nil {
		return nil, err
	}
	if _, not := v.(undefined); not || truth(boolean) && !truth(v) {
		return def, nil
	}
	return v, nil
}

func dictSort(s *state, v any, a call) (any, error) {
	var sensitive, by, reversed any = false, "key", false
	if err := a.want("case_sensitive by reverse", &sensitive, &by, &reversed); err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("%s is no dictionary", kindOf(v))
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
	return nil, fmt.Errorf("%s is no dictionary", kindOf(v))
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

func toFloat(_ *state, v any, a call) (any, error) {
	var def any = 0.0
	if err := a.want("default", &def); err != nil {
		return nil, err
	}
	if f, ok := numeric(v); ok {
		return f, nil
	}
	if t, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(t), 64); err == nil {
			return f, nil
		}
	}
	return def, nil
}

func toInt(_ *state, v any, a call) (any, error) {
	var def, base any = 0, 10
	if err := a.want("default base", &def, &base); err != nil {
		return nil, err
	}
	switch n := v.(type) {
	case int:
		return n, nil
	case string:
		b, _ := base.(int)
		if b < 2 || b > 36 {
			return nil, errors.New("its base is 2 to 36")
		}
		t := strings.TrimSpace(n)
		if i, err := strconv.ParseInt(t, b, 64); err == nil {
			return int(i), nil
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil && math.Abs(f) < 1<<53 {
			return int(f), nil
		}
		return def, nil
	}
	if f, ok := numeric(v); ok && math.Abs(f) < 1<<62 {
		return int(f), nil
	}
	return def, nil
}

func formatFilter(s *state, v any, a call) (any, error) {
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	if len(a.named) > 0 {
		return nil, errors.New("arguments with names are not supported")
	}
	return s.format(t, tuple(a.args))
}

func indentFilter(s *state, v any, a call) (any, error) {
	var width, firstToo, blank any = 4, false, false
	if err := a.want("width first blank", &width, &firstToo, &blank); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	by, ok := width.(string)
	if n, isInt := width.(int); isInt {
		x, err := s.repeat(" ", n)
		if err != nil {
			return nil, err
		}
		by, ok = x.(string), true
	}
	if !ok {
		return nil, errors.New("its width is a number or a string")
	}
	var b strings.Builder
	for i, line := range strings.Split(t, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		if (i > 0 || truth(firstToo)) && (line != "" || truth(blank)) {
			if err := s.makes(len(by)); err != nil {
				return nil, err
			}
			b.WriteString(by)
		}
		b.WriteString(line)
	}
	return b.String(), s.makes(17*(1+strings.Count(t, "\n")) + len(t))
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

func replace(s *state, v any, a call) (any, error) {
	var old, with, count any = nil, nil, nil
	if err := a.want("old new count", &old, &with, &count); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	from, ok1 := old.(string)
	to, ok2 := with.(string)
	if !ok1 || !ok2 {
		return nil, errors.New("it needs two strings")
	}
	n, limited := count.(int)
	if !limited {
		n = -1
	}
	return s.replaced(t, from, to, n)
}

// replaced is a text in which the first n places have another, or all where n is below 0.
func (s *state) replaced(t, from, to string, n int) (any, error) {
	if err := s.reads(len(t)); err != nil {
		return nil, err
	}
	places := strings.Count(t, from)
	if n >= 0 {
		places = min(places, n)
	}
	if len(to) > 0 && places > s.limits.Memory/len(to) {
		return nil, errMemory
	}
	if err := s.makes(len(t) + places*len(to)); err != nil {
		return nil, err
	}
	return strings.Replace(t, from, to, n), nil
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

func round(_ *state, v any, a call) (any, error) {
	var precision, how any = 0, "common"
	if err := a.want("precision method", &precision, &how); err != nil {
		return nil, err
	}
	f, ok := numeric(v)
	n, ok2 := precision.(int)
	if !ok || !ok2 || n < -300 || n > 300 {
		return nil, fmt.Errorf("%s cannot be rounded so", kindOf(v))
	}
	by := math.Pow(10, float64(n))
	switch how {
	case "common":
		if n >= 0 {
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', n, 64), 64)
			return f, nil
		}
		return math.RoundToEven(f*by) / by, nil
	case "ceil":
		return math.Ceil(f*by) / by, nil
	case "floor":
		return math.Floor(f*by) / by, nil
	}
	return nil, errors.New("its method is common, ceil or floor")
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

func trim(s *state, v any, a call) (any, error) {
	var chars any
	if err := a.want("chars", &chars); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	return strip(s, t, chars, true, true)
}

// strip takes white space, or other characters, off the ends of a text.
func strip(s *state, t string, chars any, left, right bool) (any, error) {
	is := space
	switch c := chars.(type) {
	case nil:
	case string:
		is = func(r rune) bool { return strings.ContainsRune(c, r) }
		if err := s.reads(len(c) * len(t)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%s is stripped off a string", kindOf(chars))
	}
	if left {
		t = strings.TrimLeftFunc(t, is)
	}
	if right {
		t = strings.TrimRightFunc(t, is)
	}
	return t, s.makes(len(t))
}

func truncate(s *state, v any, a call) (any, error) {
	var limit, kill, end, leeway any = 255, false, "...", 5
	if err := a.want("length killwords end leeway", &limit, &kill, &end, &leeway); err != nil {
		return nil, err
	}
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	n, ok1 := limit.(int)
	tail, ok2 := end.(string)
	slack, ok3 := leeway.(int)
	if !ok1 || !ok2 || !ok3 || n < utf8.RuneCountInString(tail) || slack < 0 {
		return nil, errors.New("it needs a length, not below that of its end")
	}
	r := []rune(t)
	if err := s.makes(5 * len(t)); err != nil {
		return nil, err
	}
	if len(r)-slack <= n {
		return t, nil
	}
	t = string(r[:n-utf8.RuneCountInString(tail)])
	if i := strings.LastIndexByte(t, ' '); i >= 0 && !truth(kill) {
		t = t[:i]
	}
	return t + tail, nil
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

func wordCount(s *state, v any, a call) (any, error) {
	t, err := s.text(v)
	if err != nil {
		return nil, err
	}
	return len(strings.FieldsFunc(t, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' })), errors.Join(s.makes(16*len(t)), a.want(""))
}

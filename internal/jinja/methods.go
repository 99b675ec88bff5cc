package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method is a method of a value, if it has one of that name. Those that would change the
// value are refused when they are called.
func method(v any, name string) (function, bool) {
	var m func(s *state, a call) any
	switch v := v.(type) {
	case string:
		if f := stringMethods[name]; f != nil {
			m = func(s *state, a call) any {
				defer naming(name)
				s.reads(len(v))
				return f(s, v, a)
			}
		}
	case *Dict:
		m = bound(dictMethods[name], v)
	case []any:
		m = bound(listMethods[name], v)
	}
	return function{"method " + name, m}, m != nil
}

// bound returns a method of v; nil if m is nil.
func bound[T any](m func(*state, T, call) any, v T) func(*state, call) any {
	if m == nil {
		return nil
	}
	return func(s *state, a call) any { return m(s, v, a) }
}

// changing is a method that the sandbox refuses.
func changing[T any](what string) func(*state, T, call) any {
	return func(*state, T, call) any {
		panic(fmt.Errorf("%s would change what the template was given; only namespaces can be changed", what))
	}
}

var dictMethods = map[string]func(*state, *Dict, call) any{
	"get": func(_ *state, d *Dict, a call) any {
		var key, def any
		a.want("key default", &key, &def)
		if v, ok := d.get(key); ok {
			return v
		}
		return def
	},
	"keys": func(s *state, d *Dict, a call) any {
		a.want("")
		s.makes(16 * len(d.keys))
		return slices.Concat([]any{}, d.keys)
	},
	"values": func(s *state, d *Dict, a call) any {
		a.want("")
		s.makes(16 * len(d.keys))
		out := []any{}
		for _, k := range d.keys {
			out = append(out, d.values[k])
		}
		return out
	},
	"items": func(s *state, d *Dict, a call) any { return items(s, d, a) },
	"copy": func(_ *state, d *Dict, a call) any { // dicts are immutable
		a.want("")
		return d
	},
	"pop":        changing[*Dict]("pop"),
	"popitem":    changing[*Dict]("popitem"),
	"update":     changing[*Dict]("update"),
	"clear":      changing[*Dict]("clear"),
	"setdefault": changing[*Dict]("setdefault"),
}

var listMethods = map[string]func(*state, []any, call) any{
	"index": func(s *state, list []any, a call) any {
		var x any
		a.want("value", &x)
		for i, y := range list {
			if s.same(x, y, 0) {
				return i
			}
		}
		panic(errors.New("index: it is not in the list"))
	},
	"count": func(s *state, list []any, a call) any {
		var x any
		a.want("value", &x)
		n := 0
		for _, y := range list {
			if s.same(x, y, 0) {
				n++
			}
		}
		return n
	},
	"copy": func(_ *state, list []any, a call) any {
		a.want("")
		return list
	},
	"append":  changing[[]any]("append"),
	"extend":  changing[[]any]("extend"),
	"insert":  changing[[]any]("insert"),
	"pop":     changing[[]any]("pop"),
	"remove":  changing[[]any]("remove"),
	"clear":   changing[[]any]("clear"),
	"sort":    changing[[]any]("sort"),
	"reverse": changing[[]any]("reverse"),
}

var stringMethods map[string]func(*state, string, call) any

func init() {
	stringMethods = map[string]func(*state, string, call) any{
		"strip":        stripping(true, true),
		"lstrip":       stripping(true, false),
		"rstrip":       stripping(false, true),
		"upper":        changed(strings.ToUpper),
		"lower":        changed(strings.ToLower),
		"title":        changed(title),
		"capitalize":   changed(capitalize),
		"startswith":   affix(strings.HasPrefix),
		"endswith":     affix(strings.HasSuffix),
		"removeprefix": cutting(strings.TrimPrefix),
		"removesuffix": cutting(strings.TrimSuffix),
		"find":         finding(strings.Index, -1),
		"rfind":        finding(strings.LastIndex, -1),
		"index":        finding(strings.Index, -2),
		"rindex":       finding(strings.LastIndex, -2),
		"split":        splitting(false),
		"rsplit":       splitting(true),
		"splitlines":   splitLines,
		"join":         joining,
		"isdigit":      all(unicode.IsDigit),
		"isnumeric":    all(unicode.IsNumber),
		"isdecimal":    all(unicode.IsDigit),
		"isalpha":      all(unicode.IsLetter),
		"isalnum":      all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isspace":      all(space),
		"islower":      func(s *state, t string, a call) any { return tests["lower"](s, t, a) },
		"isupper":      func(s *state, t string, a call) any { return tests["upper"](s, t, a) },
		"count":        func(_ *state, t string, a call) any { return strings.Count(t, oneText(a)) },
		"replace":      func(s *state, t string, a call) any { return replace(s, t, a) },
		"format":       braces,
		"zfill": func(s *state, t string, a call) any {
			var width any
			a.want("width", &width)
			n, ok := width.(int)
			if !ok || n > widest {
				panic(fmt.Errorf("its width is a number up to %d", widest))
			}
			n = max(n, 0)
			sign := ""
			if t != "" && (t[0] == '-' || t[0] == '+') {
				sign, t = t[:1], t[1:]
			}
			s.makes(n + len(t))
			return sign + strings.Repeat("0", max(0, n-len(sign)-utf8.RuneCountInString(t))) + t
		},
	}
}

func changed(f func(string) string) func(*state, string, call) any {
	return func(s *state, t string, a call) any {
		a.want("")
		s.makes(2 * len(t))
		return f(t)
	}
}

func stripping(left, right bool) func(*state, string, call) any {
	return func(s *state, t string, a call) any {
		var chars any
		a.want("chars", &chars)
		return strip(s, t, chars, left, right)
	}
}

// oneText is the only argument, which is a text.
func oneText(a call) string {
	var x any
	a.want("value", &x)
	t, ok := x.(string)
	if !ok {
		panic(fmt.Errorf("its argument is %s, and not a string", kindOf(x)))
	}
	return t
}

// affix is startswith or endswith, which take several, too.
func affix(is func(t, x string) bool) func(*state, string, call) any {
	return func(_ *state, t string, a call) any {
		var x any
		a.want("prefix", &x)
		if u, ok := x.(string); ok {
			return is(t, u)
		}
		list, ok := x.(tuple)
		if !ok {
			panic(fmt.Errorf("its argument is %s, and not a string", kindOf(x)))
		}
		for _, x := range list {
			if u, ok := x.(string); ok && is(t, u) {
				return true
			}
		}
		return false
	}
}

func cutting(f func(t, x string) string) func(*state, string, call) any {
	return func(_ *state, t string, a call) any { return f(t, oneText(a)) }
}

// finding is the place of a text, in characters; where it is not, none or an error.
func finding(f func(t, x string) int, none int) func(*state, string, call) any {
	return func(_ *state, t string, a call) any {
		i := f(t, oneText(a))
		switch {
		case i >= 0:
			return utf8.RuneCountInString(t[:i])
		case none == -2:
			panic(errors.New("it is not in the string"))
		}
		return none
	}
}

func splitting(fromRight bool) func(*state, string, call) any {
	return func(s *state, t string, a call) any {
		var sep, most any = nil, -1
		a.want("sep maxsplit", &sep, &most)
		n, ok := most.(int)
		by, isText := sep.(string)
		switch {
		case !ok, sep != nil && !isText:
			panic(errors.New("it takes a string, and a number"))
		case isText && by == "":
			panic(errors.New("an empty separator"))
		}
		s.makes(33 * (1 + len(t)/max(1, len(by))))
		var parts []string
		if isText {
			parts = splitBy(t, by, n, fromRight)
		} else {
			parts = splitSpace(t, n, fromRight)
		}
		return textsOf(parts)
	}
}

func splitBy(t, by string, n int, fromRight bool) []string {
	if !fromRight || n < 0 {
		if n < 0 {
			return strings.Split(t, by)
		}
		return strings.SplitN(t, by, n+1)
	}
	var parts []string
	for ; n > 0; n-- {
		i := strings.LastIndex(t, by)
		if i < 0 {
			break
		}
		parts, t = append(parts, t[i+len(by):]), t[:i]
	}
	parts = append(parts, t)
	slices.Reverse(parts)
	return parts
}

// splitSpace splits at white space.
func splitSpace(t string, n int, fromRight bool) []string {
	if n < 0 {
		return strings.FieldsFunc(t, space)
	}
	var parts []string
	if fromRight {
		for t = strings.TrimRightFunc(t, space); t != ""; t = strings.TrimRightFunc(t, space) {
			i := strings.LastIndexFunc(t, space)
			if i < 0 || len(parts) == n {
				parts = append(parts, strings.TrimLeftFunc(t, func(r rune) bool { return i < 0 && space(r) }))
				break
			}
			_, size := utf8.DecodeRuneInString(t[i:])
			parts, t = append(parts, t[i+size:]), t[:i]
		}
		slices.Reverse(parts)
		return parts
	}
	for t = strings.TrimLeftFunc(t, space); t != ""; t = strings.TrimLeftFunc(t, space) {
		i := strings.IndexFunc(t, space)
		if i < 0 || len(parts) == n {
			return append(parts, t)
		}
		parts, t = append(parts, t[:i]), t[i:]
	}
	return parts
}

func splitLines(s *state, t string, a call) any {
	var keep any = false
	a.want("keepends", &keep)
	out := []any{}
	for line := range strings.Lines(strings.ReplaceAll(t, "\r\n", "\n")) {
		if !truth(keep) {
			line = strings.TrimSuffix(line, "\n")
		}
		out = append(out, line)
	}
	s.makes(32*len(out) + len(t))
	return out
}

func joining(s *state, t string, a call) any {
	var list any
	a.want("iterable", &list)
	items := s.items(list)
	for _, x := range items {
		if _, ok := x.(string); !ok {
			panic(fmt.Errorf("%s among the strings that are joined", kindOf(x)))
		}
	}
	return join(s, items, call{args: []any{t}})
}

func all(is func(rune) bool) func(*state, string, call) any {
	return func(_ *state, t string, a call) any {
		a.want("")
		return t != "" && !strings.ContainsFunc(t, func(r rune) bool { return !is(r) })
	}
}

// braces is the method format, for {}, {0} and {name} without a format of their own.
func braces(s *state, t string, a call) any {
	var w writer
	for next := 0; ; {
		i := strings.IndexAny(t, "{}")
		if i < 0 {
			s.makes(w.Len() + len(t))
			return w.String() + t
		}
		s.put(&w, t[:i])
		if i+1 < len(t) && t[i+1] == t[i] {
			w.WriteByte(t[i])
			t = t[i+2:]
			continue
		}
		n := strings.IndexByte(t[i:], '}')
		if t[i] == '}' || n < 0 {
			panic(errors.New("a bracket without its other"))
		}
		field := t[i+1 : i+n]
		t = t[i+n+1:]
		if field == "" {
			field = strconv.Itoa(next)
			next++
		}
		v, ok := a.field(field)
		if !ok {
			panic(fmt.Errorf("the field {%s} is not supported, or not given", cut(field)))
		}
		s.put(&w, s.text(v))
	}
}

func (a call) field(name string) (any, bool) {
	if i, err := strconv.Atoi(name); err == nil {
		if i < 0 || i >= len(a.args) {
			return nil, false
		}
		return a.args[i], true
	}
	for _, n := range a.named {
		if n.name == name {
			return n.v, true
		}
	}
	return nil, false
}

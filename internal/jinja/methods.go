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
	switch v := v.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return function{"method " + name, func(s *state, a call) (any, error) {
				if err := s.reads(len(v)); err != nil {
					return nil, err
				}
				x, err := m(s, v, a)
				if err != nil {
					return nil, named(name, err)
				}
				return x, nil
			}}, true
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return function{"method " + name, func(s *state, a call) (any, error) { return m(s, v, a) }}, true
		}
	case []any:
		if m, ok := listMethods[name]; ok {
			return function{"method " + name, func(s *state, a call) (any, error) { return m(s, v, a) }}, true
		}
	}
	return function{}, false
}

// changing is a method that the sandbox refuses.
func changing[T any](what string) func(*state, T, call) (any, error) {
	return func(*state, T, call) (any, error) {
		return nil, fmt.Errorf("%s would change what the template was given; only namespaces can be changed", what)
	}
}

var dictMethods = map[string]func(*state, *Dict, call) (any, error){
	"get": func(_ *state, d *Dict, a call) (any, error) {
		var key, def any
		if err := a.want("key default", &key, &def); err != nil {
			return nil, err
		}
		if v, ok := d.get(key); ok {
			return v, nil
		}
		return def, nil
	},
	"keys": func(s *state, d *Dict, a call) (any, error) {
		return slices.Concat([]any{}, d.keys), errors.Join(a.want(""), s.makes(16*len(d.keys)))
	},
	"values": func(s *state, d *Dict, a call) (any, error) {
		out := []any{}
		for _, k := range d.keys {
			out = append(out, d.values[k])
		}
		return out, errors.Join(a.want(""), s.makes(16*len(out)))
	},
	"items": func(s *state, d *Dict, a call) (any, error) {
		list, err := s.pairs(d)
		return list, errors.Join(err, a.want(""))
	},
	"copy":       func(_ *state, d *Dict, a call) (any, error) { return d, a.want("") }, // dicts are immutable
	"pop":        changing[*Dict]("pop"),
	"popitem":    changing[*Dict]("popitem"),
	"update":     changing[*Dict]("update"),
	"clear":      changing[*Dict]("clear"),
	"setdefault": changing[*Dict]("setdefault"),
}

var listMethods = map[string]func(*state, []any, call) (any, error){
	"index": func(s *state, list []any, a call) (any, error) {
		var x any
		if err := a.want("value", &x); err != nil {
			return nil, err
		}
		for i, y := range list {
			if eq, err := s.same(x, y, 0); eq || err != nil {
				return i, err
			}
		}
		return nil, errors.New("index: it is not in the list")
	},
	"count": func(s *state, list []any, a call) (any, error) {
		var x any
		if err := a.want("value", &x); err != nil {
			return nil, err
		}
		n := 0
		for _, y := range list {
			eq, err := s.same(x, y, 0)
			if err != nil {
				return nil, err
			}
			if eq {
				n++
			}
		}
		return n, nil
	},
	"copy":    func(_ *state, list []any, a call) (any, error) { return list, a.want("") },
	"append":  changing[[]any]("append"),
	"extend":  changing[[]any]("extend"),
	"insert":  changing[[]any]("insert"),
	"pop":     changing[[]any]("pop"),
	"remove":  changing[[]any]("remove"),
	"clear":   changing[[]any]("clear"),
	"sort":    changing[[]any]("sort"),
	"reverse": changing[[]any]("reverse"),
}

var stringMethods map[string]func(*state, string, call) (any, error)

func init() {
	stringMethods = map[string]func(*state, string, call) (any, error){
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
		"islower":      func(s *state, t string, a call) (any, error) { return tests["lower"](s, t, a) },
		"isupper":      func(s *state, t string, a call) (any, error) { return tests["upper"](s, t, a) },
		"count": func(_ *state, t string, a call) (any, error) {
			x, err := oneText(a)
			return strings.Count(t, x), err
		},
		"replace": func(s *state, t string, a call) (any, error) { return replace(s, t, a) },
		"format":  braces,
		"zfill": func(s *state, t string, a call) (any, error) {
			var width any
			if err := a.want("width", &width); err != nil {
				return nil, err
			}
			n, ok := width.(int)
			if !ok || n > widest {
				return nil, fmt.Errorf("its width is a number up to %d", widest)
			}
			n = max(n, 0)
			sign := ""
			if t != "" && (t[0] == '-' || t[0] == '+') {
				sign, t = t[:1], t[1:]
			}
			return sign + strings.Repeat("0", max(0, n-len(sign)-utf8.RuneCountInString(t))) + t, s.makes(n + len(t))
		},
	}
}

func changed(f func(string) string) func(*state, string, call) (any, error) {
	return func(s *state, t string, a call) (any, error) {
		return f(t), errors.Join(a.want(""), s.makes(2*len(t)))
	}
}

func stripping(left, right bool) func(*state, string, call) (any, error) {
	return func(s *state, t string, a call) (any, error) {
		var chars any
		if err := a.want("chars", &chars); err != nil {
			return nil, err
		}
		return strip(s, t, chars, left, right)
	}
}

// oneText is the only argument, which is a text.
func oneText(a call) (string, error) {
	var x any
	if err := a.want("value", &x); err != nil {
		return "", err
	}
	t, ok := x.(string)
	if !ok {
		return "", fmt.Errorf("its argument is %s, and not a string", kindOf(x))
	}
	return t, nil
}

// affix is startswith or endswith, which take several, too.
func affix(is func(t, x string) bool) func(*state, string, call) (any, error) {
	return func(_ *state, t string, a call) (any, error) {
		var x any
		if err := a.want("prefix", &x); err != nil {
			return nil, err
		}
		if u, ok := x.(string); ok {
			return is(t, u), nil
		}
		list, ok := x.(tuple)
		if !ok {
			return nil, fmt.Errorf("its argument is %s, and not a string", kindOf(x))
		}
		for _, x := range list {
			if u, ok := x.(string); ok && is(t, u) {
				return true, nil
			}
		}
		return false, nil
	}
}

func cutting(f func(t, x string) string) func(*state, string, call) (any, error) {
	return func(_ *state, t string, a call) (any, error) {
		x, err := oneText(a)
		if err != nil {
			return nil, err
		}
		return f(t, x), nil
	}
}

// finding is the place of a text, in characters; where it is not, none or an error.
func finding(f func(t, x string) int, none int) func(*state, string, call) (any, error) {
	return func(_ *state, t string, a call) (any, error) {
		x, err := oneText(a)
		if err != nil {
			return nil, err
		}
		i := f(t, x)
		switch {
		case i >= 0:
			return utf8.RuneCountInString(t[:i]), nil
		case none == -2:
			return nil, errors.New("it is not in the string")
		}
		return none, nil
	}
}

func splitting(fromRight bool) func(*state, string, call) (any, error) {
	return func(s *state, t string, a call) (any, error) {
		var sep, most any = nil, -1
		if err := a.want("sep maxsplit", &sep, &most); err != nil {
			return nil, err
		}
		n, ok := most.(int)
		by, isText := sep.(string)
		switch {
		case !ok, sep != nil && !isText:
			return nil, errors.New("it takes a string, and a number")
		case isText && by == "":
			return nil, errors.New("an empty separator")
		}
		if err := s.makes(33 * (1 + len(t)/max(1, len(by)))); err != nil {
			return nil, err
		}
		var parts []string
		if isText {
			parts = splitBy(t, by, n, fromRight)
		} else {
			parts = splitSpace(t, n, fromRight)
		}
		return textsOf(parts), nil
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

func splitLines(s *state, t string, a call) (any, error) {
	var keep any = false
	if err := a.want("keepends", &keep); err != nil {
		return nil, err
	}
	out := []any{}
	for line := range strings.Lines(strings.ReplaceAll(t, "\r\n", "\n")) {
		if !truth(keep) {
			line = strings.TrimSuffix(line, "\n")
		}
		out = append(out, line)
	}
	return out, s.makes(32*len(out) + len(t))
}

func joining(s *state, t string, a call) (any, error) {
	var list any
	if err := a.want("iterable", &list); err != nil {
		return nil, err
	}
	items, err := s.items(list)
	if err != nil {
		return nil, err
	}
	for _, x := range items {
		if _, ok := x.(string); !ok {
			return nil, fmt.Errorf("%s among the strings that are joined", kindOf(x))
		}
	}
	return join(s, items, call{args: []any{t}})
}

func all(is func(rune) bool) func(*state, string, call) (any, error) {
	return func(_ *state, t string, a call) (any, error) {
		return t != "" && !strings.ContainsFunc(t, func(r rune) bool { return !is(r) }), a.want("")
	}
}

// braces is the method format, for {}, {0} and {name} without a format of their own.
func braces(s *state, t string, a call) (any, error) {
	var w writer
	for next := 0; ; {
		i := strings.IndexAny(t, "{}")
		if i < 0 {
			return w.String() + t, s.makes(w.Len() + len(t))
		}
		if err := s.put(&w, t[:i]); err != nil {
			return nil, err
		}
		if i+1 < len(t) && t[i+1] == t[i] {
			w.WriteByte(t[i])
			t = t[i+2:]
			continue
		}
		n := strings.IndexByte(t[i:], '}')
		if t[i] == '}' || n < 0 {
			return nil, errors.New("a bracket without its other")
		}
		field := t[i+1 : i+n]
		t = t[i+n+1:]
		if field == "" {
			field = strconv.Itoa(next)
			next++
		}
		v, ok := a.field(field)
		if !ok {
			return nil, fmt.Errorf("the field {%s} is not supported, or not given", cut(field))
		}
		out, err := s.text(v)
		if err == nil {
			err = s.put(&w, out)
		}
		if err != nil {
			return nil, err
		}
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

package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Values of templates are nil, bool, int, float64, string, []any, tuple, *Dict, *namespace,
// function, *loop and undefined.

// Dict is a dictionary, in the order in which keys were set.
type Dict struct {
	keys   []any
	values map[any]any
}

// NewDict makes a dictionary of keys and values, in turns.
func NewDict(pairs ...any) *Dict {
	d := &Dict{values: map[any]any{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Set(pairs[i].(string), pairs[i+1])
	}
	return d
}

// Set sets a value.
func (d *Dict) Set(key string, v any) { d.set(key, v) }

func (d *Dict) set(key, v any) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = v
}

func (d *Dict) get(key any) (any, bool) {
	k, err := hashable(key)
	if err != nil {
		return nil, false
	}
	v, ok := d.values[k]
	return v, ok
}

// hashable is a key as dictionaries have it: 1, 1.0 and true are one.
func hashable(key any) (any, error) {
	switch k := key.(type) {
	case bool:
		if k {
			return 1, nil
		}
		return 0, nil
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return int(k), nil
		}
		return k, nil
	case nil, int, string:
		return k, nil
	}
	return nil, fmt.Errorf("%s is no key of a dictionary", kindOf(key))
}

type tuple []any

// namespace is the only thing that a template can change.
type namespace struct{ *Dict }

// undefined is a variable or a field that there is not.
type undefined struct{ what string }

func (u undefined) err() error { return fmt.Errorf("%s is undefined", u.what) }

// function can be called.
type function struct {
	name string
	call func(s *state, a call) (any, error)
}

// call is what a function, a filter or a test is called with.
type call struct {
	args  []any
	named []namedArg
}

type namedArg struct {
	name string
	v    any
}

// take sets the arguments by position or by name; those that are not given stay as they are.
func (a call) take(to map[string]*any, names ...string) error {
	if len(a.args) > len(names) {
		return fmt.Errorf("%d arguments, where there are at most %d", len(a.args), len(names))
	}
	for i, v := range a.args {
		*to[names[i]] = v
	}
	for _, n := range a.named {
		x, ok := to[n.name]
		if !ok {
			return fmt.Errorf("there is no argument %q", n.name)
		}
		*x = n.v
	}
	return nil
}

// want is take with pointers in the order of names.
func (a call) want(names string, to ...*any) error {
	list, m := strings.Fields(names), map[string]*any{}
	for i, n := range list {
		m[n] = to[i]
	}
	return a.take(m, list...)
}

// Of is a Go value as templates have it: of maps, slices, texts, numbers and booleans, as
// package encoding/json decodes them. Keys of maps are in the order of their letters; JSON
// that is to keep its order comes from [FromJSON]. Values that are of templates already stay.
func Of(v any) (any, error) { return of(v, 0) }

func of(v any, depth int) (any, error) {
	if depth > deepest {
		return nil, errDepth
	}
	switch v := v.(type) {
	case map[string]any:
		d := NewDict()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			x, err := of(v[k], depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(k, x)
		}
		return d, nil
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = of(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case json.Number:
		if n, err := strconv.Atoi(string(v)); err == nil {
			return n, nil
		}
		return v.Float64()
	case nil, bool, int, float64, string, *Dict:
		return v, nil
	}
	return nil, fmt.Errorf("a %T; templates have what encoding/json decodes", v)
}

// EachText is a value whose texts, but for keys, f has changed.
func EachText(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = EachText(v[i], f)
		}
		return list
	case *Dict:
		d := NewDict()
		for _, k := range v.keys {
			d.set(k, EachText(v.values[k], f))
		}
		return d
	}
	return v
}

// textsOf is a list of texts.
func textsOf(list []string) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// FromJSON is a JSON text as templates have it, keys in their order.
func FromJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := decode(d, 0)
	if err == nil && d.More() {
		err = fmt.Errorf("there is more behind the value")
	}
	return v, err
}

func decode(d *json.Decoder, depth int) (any, error) {
	if depth > deepest {
		return nil, errDepth
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		dict := NewDict()
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decode(d, depth+1)
			if err != nil {
				return nil, err
			}
			dict.Set(k.(string), v)
		}
		_, err = d.Token()
		return dict, err
	}
	return Of(t)
}

// kindOf names a value's type, as errors do.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "none"
	case bool:
		return "a boolean"
	case int:
		return "an integer"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	case tuple:
		return "a tuple"
	case *Dict:
		return "a dictionary"
	case *namespace:
		return "a namespace"
	case function:
		return "a function"
	case *loop:
		return "a loop"
	}
	return "an undefined value"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case tuple:
		return len(v) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// items are what a loop over a value goes through.
func (s *state) items(v any) ([]any, error) {
	switch v := v.(type) {
	case []any:
		return v, nil
	case tuple:
		return v, nil
	case undefined:
		return nil, nil
	case *Dict:
		return v.keys, nil
	case string:
		n := len(v)
		if err := s.makes(32 * n); err != nil {
			return nil, err
		}
		list := make([]any, 0, n)
		for _, r := range v {
			list = append(list, string(r))
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s has no items to go through", kindOf(v))
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

// numeric is a number or a boolean as a number.
func numeric(v any) (float64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
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

// sequence is a list or a tuple.
func sequence(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case tuple:
		return v, true
	}
	return nil, false
}

// text is a value as it is written.
func (s *state) text(v any) (string, error) {
	if t, ok := v.(string); ok {
		return t, nil
	}
	var w writer
	err := s.repr(&w, v, 0, false)
	return w.String(), err
}

// writer is text that is made under the limits.
type writer struct{ strings.Builder }

func (s *state) put(w *writer, text string) error {
	w.WriteString(text)
	return s.makes(len(text))
}

// repr writes a value as Python does, strings in quotes where quoted.
func (s *state) repr(w *writer, v any, depth int, quoted bool) error {
	if depth > deepest {
		return errDepth
	}
	switch v := v.(type) {
	case nil:
		return s.put(w, "None")
	case undefined:
		return s.put(w, "")
	case bool:
		return s.put(w, map[bool]string{true: "True", false: "False"}[v])
	case int:
		return s.put(w, strconv.Itoa(v))
	case float64:
		return s.put(w, floatText(v))
	case string:
		if quoted {
			v = quote(v)
		}
		return s.put(w, v)
	case []any:
		return s.list(w, v, depth, "[", "]")
	case tuple:
		if len(v) == 1 {
			return s.list(w, v, depth, "(", ",)")
		}
		return s.list(w, v, depth, "(", ")")
	case *Dict:
		return s.dict(w, v, depth, func(k any) error { return s.repr(w, k, depth+1, true) }, func(x any) error { return s.repr(w, x, depth+1, true) })
	case *namespace:
		return s.put(w, "<Namespace>")
	case function:
		return s.put(w, "<"+v.name+">")
	case *loop:
		return s.put(w, fmt.Sprintf("<LoopContext %d/%d>", v.at+1, len(v.list)))
	}
	panic(fmt.Sprintf("BUG: a %T in a template", v))
}

func (s *state) list(w *writer, list []any, depth int, open, close string) error {
	if err := s.put(w, open); err != nil {
		return err
	}
	for i, x := range list {
		if i > 0 {
			w.WriteString(", ")
		}
		if err := s.repr(w, x, depth+1, true); err != nil {
			return err
		}
	}
	return s.put(w, close)
}

func (s *state) dict(w *writer, d *Dict, depth int, key, value func(any) error) error {
	w.WriteString("{")
	for i, k := range d.keys {
		if i > 0 {
			w.WriteString(", ")
		}
		if err := key(k); err != nil {
			return err
		}
		if err := s.put(w, ": "); err != nil {
			return err
		}
		if err := value(d.values[k]); err != nil {
			return err
		}
	}
	return s.put(w, "}")
}

// floatText is Python's repr of a number.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case f != 0 && (math.Abs(f) < 1e-4 || math.Abs(f) >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	t := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(t, ".") {
		t += ".0"
	}
	return t
}

// quote is Python's repr of a string.
func quote(t string) string {
	q := '\''
	if strings.ContainsRune(t, '\'') && !strings.ContainsRune(t, '"') {
		q = '"'
	}
	var b strings.Builder
	b.WriteRune(q)
	for _, r := range t {
		switch {
		case r == q || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(q)
	return b.String()
}

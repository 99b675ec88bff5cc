package jinja

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
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
	if !isKey(key) {
		return nil, false
	}
	v, ok := d.values[hashable(key)]
	return v, ok
}

func isKey(v any) bool {
	switch v.(type) {
	case nil, bool, int, float64, string:
		return true
	}
	return false
}

// hashable is a key as dictionaries have it: 1, 1.0 and true are one.
func hashable(key any) any {
	if !isKey(key) {
		panic(fmt.Errorf("%s is not a key of a dictionary", kindOf(key)))
	}
	if b, ok := key.(bool); ok {
		return asInt(b)
	}
	if f, ok := key.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int(f)
	}
	return key
}

type tuple []any

// namespace is the only thing that a template can change.
type namespace struct{ *Dict }

// undefined is the value of a missing variable or field.
type undefined struct{ what string }

func (u undefined) err() error { return fmt.Errorf("%s is undefined", u.what) }

// function can be called.
type function struct {
	name string
	call func(s *state, a call) any
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

// want sets the arguments to, which have these names, by position or by name; those that are not
// given stay as they are.
func (a call) want(names string, to ...*any) {
	list := strings.Fields(names)
	if len(a.args) > len(list) {
		panic(fmt.Errorf("%d arguments; it takes at most %d", len(a.args), len(list)))
	}
	for i, v := range a.args {
		*to[i] = v
	}
	for _, n := range a.named {
		i := slices.Index(list, n.name)
		if i < 0 {
			panic(fmt.Errorf("there is no argument %q", n.name))
		}
		*to[i] = n.v
	}
}

// Of is a Go value as templates have it: of maps, slices, texts, numbers and booleans, as
// package encoding/json decodes them. Keys of maps are in the order of their letters; JSON
// that is to keep its order comes from [FromJSON]. Values that are of templates already stay.
func Of(v any) (_ any, err error) {
	defer bail.Catch(&err)
	return of(v, 0), nil
}

func of(v any, depth int) any {
	if depth > deepest {
		panic(errDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		d := NewDict()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			d.Set(k, of(v[k], depth+1))
		}
		return d
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = of(v[i], depth+1)
		}
		return list
	case json.Number:
		if n, err := strconv.Atoi(string(v)); err == nil {
			return n
		}
		return bail.Of(v.Float64())
	case json.RawMessage: // keys in their order
		return bail.Of(FromJSON(v))
	case nil, bool, int, float64, string, *Dict:
		return v
	}
	panic(fmt.Errorf("a %T; templates have what encoding/json decodes", v))
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
func (s *state) items(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case tuple:
		return v
	case undefined:
		return nil
	case *Dict:
		return v.keys
	case string:
		n := len(v)
		s.makes(32 * n)
		list := make([]any, 0, n)
		for _, r := range v {
			list = append(list, string(r))
		}
		return list
	}
	panic(fmt.Errorf("%s has no items to go through", kindOf(v)))
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

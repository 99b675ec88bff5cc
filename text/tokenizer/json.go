package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// An object is a JSON object being read. Its methods take one field each and
// record the first error; done reports it, or the fields that no method took,
// since ignoring an unknown option would silently change the tokens.
type object struct {
	where  string // the place in the file, for errors
	fields map[string]json.RawMessage
	err    error
	chain  *chain // of a component, else nil
}

func newObject(where string, raw json.RawMessage) *object {
	o := &object{where: where}
	if err := json.Unmarshal(raw, &o.fields); err != nil {
		o.fail("is not a JSON object: %v", err)
	}
	return o
}

func (o *object) fail(format string, args ...any) {
	o.abort(fmt.Errorf("%s "+format, append([]any{o.where}, args...)...))
}

func (o *object) abort(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *object) failField(name, format string, args ...any) {
	o.fail("has %q: "+format, append([]any{name}, args...)...)
}

// take returns a field, or nil if it is absent or null.
func (o *object) take(name string) json.RawMessage {
	raw := o.fields[name]
	delete(o.fields, name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// optional reads a field into v if it is there.
func (o *object) optional(name string, v any) {
	if raw := o.take(name); raw != nil && o.err == nil {
		if err := json.Unmarshal(raw, v); err != nil {
			o.failField(name, "%v", err)
		}
	}
}

// required reads a field into v, and it must be there.
func (o *object) required(name string, v any) {
	if raw := o.fields[name]; raw == nil || string(raw) == "null" {
		o.fail("has no %q", name)
	}
	o.optional(name, v)
}

func (o *object) text(name string) (v string) {
	o.required(name, &v)
	return v
}

func (o *object) flag(name string) (v bool) {
	o.required(name, &v)
	return v
}

func (o *object) char(name string) rune {
	text := o.text(name)
	if utf8.RuneCountInString(text) != 1 {
		o.failField(name, "%q is not one character", text)
		return 0
	}
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

// choice reads the name of an option, or fallback if it is absent.
func choice[T any](o *object, name, fallback string, options map[string]T) T {
	key := fallback
	if fallback == "" {
		key = o.text(name)
	} else {
		o.optional(name, &key)
	}
	value, ok := options[key]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(options)), ", ")
		o.failField(name, "%q is not supported (supported: %s)", key, known)
	}
	return value
}

// list returns the elements of an array.
func (o *object) list(name string) []json.RawMessage {
	var elements []json.RawMessage
	o.required(name, &elements)
	return elements
}

func (o *object) ignore(names ...string) {
	for _, name := range names {
		delete(o.fields, name)
	}
}

func (o *object) done() error {
	if o.err == nil && len(o.fields) > 0 {
		unknown := slices.Sorted(maps.Keys(o.fields))
		o.fail("has %q, which is not supported", unknown[0])
	}
	return o.err
}

package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// field reads the value of a key of a request's object into a T.
type field[T any] struct {
	name string
	read func(into T, raw json.RawMessage) *Error

	schema string // of JSON, for the description of the API; empty: in the table of custom readers
}

// readBody reads the JSON object of a request. A key without a field is a warning, or an error if
// the server is strict. A key that comes twice is an error; null is the same as absent. The request
// then has its turn, until its lease rests or ends.
func readBody[T any](w *response, r *http.Request, into T, fields []field[T]) error {
	data, err := readAll(w, r)
	if err != nil {
		return err
	}
	if !utf8.Valid(data) { // the decoder would put other characters in its place
		at := 0
		for _, n := utf8.DecodeRune(data); n > 1 || data[at] < utf8.RuneSelf; _, n = utf8.DecodeRune(data[at:]) {
			at += n
		}
		return badBody("the body is not UTF-8: byte %d is in no character; escape it, or send UTF-8", at)
	}
	if !json.Valid(data) { // half as much work as decoding, which says where
		var syntax *json.SyntaxError
		err := json.Unmarshal(data, new(struct{}))
		errors.As(err, &syntax)
		return badBody("the body is not JSON: byte %d: %v", syntax.Offset, err)
	}
	if !begins(data, '{') {
		return badBody("the body must be a JSON object such as {\"prompt\": \"Hello\"}")
	}
	var seen []string
	for name, raw := range members(data) {
		if slices.Contains(seen, name) {
			return bad(name, "it appears twice")
		}
		seen = append(seen, name)
		i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == name })
		switch {
		case i < 0 && w.strict:
			return unknown(short(name), "unknown parameter")
		case i < 0:
			w.warn("unknown parameter " + strconv.QuoteToASCII(short(name)))
		case string(raw) != "null":
			if err := fields[i].read(into, raw); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxWarnings bounds the headers that warn of a request's parameters.
const maxWarnings = 8

// warn adds a header to the answer.
func (w *response) warn(text string) {
	if len(w.Header().Values(warningHeader)) < maxWarnings {
		w.Header().Add(warningHeader, text)
	}
}

// warningHeader tells of parameters without effect, and of functions whose parameters have none.
const warningHeader = "Krait-Warning"

// unknown returns the error of an unknown parameter. Logs have its code in place of the name, which
// a client may have made up.
func unknown(name, why string) *Error {
	e, code := bad(name, "%s", why), "unknown_parameter"
	e.Code = &code
	return e
}

// short truncates a client's text for errors.
func short(name string) string {
	if len(name) > 64 {
		return name[:64] + "…"
	}
	return name
}

// kinds are the schemas of the kinds of values.
var kinds = map[string]string{"a number": `{"type":"number"}`, "a whole number": `{"type":"integer"}`, "true or false": `{"type":"boolean"}`, "a string": `{"type":"string"}`, "an object": `{"type":"object"}`}

// value returns a field of a Go type, with an optional check that returns what is wrong.
func value[T, V any](name, kind string, at func(T) *V, check func(V) string) field[T] {
	return field[T]{name: name, schema: kinds[kind], read: func(into T, raw json.RawMessage) *Error {
		var v V
		if json.Unmarshal(raw, &v) != nil {
			return bad(name, "it is %s; it must be %s", short(string(raw)), kind)
		}
		if check != nil {
			if wrong := check(v); wrong != "" {
				return bad(name, "it is %s; %s", short(string(raw)), wrong)
			}
		}
		*at(into) = v
		return nil
	}}
}

// number returns a field for a number from low to high.
func number[T any](name string, low, high float64, at func(T) *float64) field[T] {
	f := value(name, "a number", at, func(x float64) string {
		if !(low <= x && x <= high) {
			return fmt.Sprintf("it must be from %v to %v", low, high)
		}
		return ""
	})
	f.schema = fmt.Sprintf(`{"type":"number","minimum":%v,"maximum":%v}`, low, high)
	return f
}

// positive returns a field for a number above 0, up to high.
func positive[T any](name string, high float64, at func(T) *float64) field[T] {
	f := value(name, "a number", at, func(x float64) string {
		if !(0 < x && x <= high) {
			return fmt.Sprintf("it must be above 0 and at most %v", high)
		}
		return ""
	})
	f.schema = fmt.Sprintf(`{"type":"number","exclusiveMinimum":0,"maximum":%v}`, high)
	return f
}

// whole returns a field for a whole number from low to high.
func whole[T any](name string, low, high int, at func(T) *int) field[T] {
	f := value(name, "a whole number", at, func(x int) string {
		if x < low || x > high {
			return fmt.Sprintf("it must be from %d to %d", low, high)
		}
		return ""
	})
	f.schema = fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d}`, low, high)
	return f
}

// truth returns a field for true or false.
func truth[T any](name string, at func(T) *bool) field[T] {
	return value(name, "true or false", at, nil)
}

// text returns a field for a string.
func text[T any](name string, at func(T) *string) field[T] {
	return value(name, "a string", at, nil)
}

// oneOf returns a field for one of some strings.
func oneOf[T any](name string, list []string, at func(T) *string) field[T] {
	f := value(name, "a string", at, func(v string) string {
		if !slices.Contains(list, v) {
			return "it must be one of " + strings.Join(list, ", ")
		}
		return ""
	})
	f.schema = fmt.Sprintf(`{"enum":["%s"]}`, strings.Join(list, `","`))
	return f
}

// refused returns a field for a parameter that this server does not support. It accepts harmless
// values, given as compact JSON.
func refused[T any](name, why string, harmless ...string) field[T] {
	return field[T]{name: name, schema: fmt.Sprintf(`{"enum":[%s]}`, strings.Join(harmless, ",")), read: func(_ T, raw json.RawMessage) *Error {
		var compact bytes.Buffer
		if json.Compact(&compact, raw) == nil && slices.Contains(harmless, compact.String()) {
			return nil
		}
		return bad(name, "it is not supported: %s", why)
	}}
}

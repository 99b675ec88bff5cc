package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

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
		case escaped(&b, r, q):
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

// escaped writes what repr and JSON escape alike in a string between these quotes, and
// reports whether it did.
func escaped(b *strings.Builder, r, quote rune) bool {
	switch r {
	case quote, '\\':
		b.WriteRune('\\')
		b.WriteRune(r)
	case '\n':
		b.WriteString(`\n`)
	case '\r':
		b.WriteString(`\r`)
	case '\t':
		b.WriteString(`\t`)
	default:
		return false
	}
	return true
}

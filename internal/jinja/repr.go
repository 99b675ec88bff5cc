package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// text is a value as it is written.
func (s *state) text(v any) string {
	if t, ok := v.(string); ok {
		return t
	}
	var w writer
	s.repr(&w, v, 0, false)
	return w.String()
}

// writer is text that is made under the limits.
type writer struct{ strings.Builder }

func (s *state) put(w *writer, text string) {
	w.WriteString(text)
	s.makes(len(text))
}

// repr writes a value as Python does, strings in quotes where quoted.
func (s *state) repr(w *writer, v any, depth int, quoted bool) {
	if depth > deepest {
		panic(errDepth)
	}
	switch v := v.(type) {
	case nil:
		s.put(w, "None")
	case undefined:
		s.put(w, "")
	case bool:
		s.put(w, map[bool]string{true: "True", false: "False"}[v])
	case int:
		s.put(w, strconv.Itoa(v))
	case float64:
		s.put(w, floatText(v))
	case string:
		if quoted {
			v = quote(v)
		}
		s.put(w, v)
	case []any:
		s.series(w, len(v), "[", ", ", "]", func(i int) { s.repr(w, v[i], depth+1, true) })
	case tuple:
		end := ")"
		if len(v) == 1 {
			end = ",)"
		}
		s.series(w, len(v), "(", ", ", end, func(i int) { s.repr(w, v[i], depth+1, true) })
	case *Dict:
		s.series(w, len(v.keys), "{", ", ", "}", func(i int) {
			s.repr(w, v.keys[i], depth+1, true)
			s.put(w, ": ")
			s.repr(w, v.values[v.keys[i]], depth+1, true)
		})
	case *namespace:
		s.put(w, "<Namespace>")
	case function:
		s.put(w, "<"+v.name+">")
	case *loop:
		s.put(w, fmt.Sprintf("<LoopContext %d/%d>", v.at+1, len(v.list)))
	default:
		panic(fmt.Sprintf("BUG: a %T in a template", v))
	}
}

// series writes n items between open and close, with commas between them.
func (s *state) series(w *writer, n int, open, comma, close string, item func(i int)) {
	s.put(w, open)
	for i := range n {
		if i > 0 {
			s.put(w, comma)
		}
		item(i)
	}
	s.put(w, close)
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

package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// jsonStyle is how tojson writes: as Python's json.dumps.
type jsonStyle struct {
	indent      string // for each level; used where lines is
	lines       bool
	comma, then string // between items, and between a key and its value
	sorted      bool
	ascii       bool
}

// toJSON is the filter tojson as transformers has it: nothing is escaped for HTML.
func toJSON(s *state, v any, a call) any {
	var ascii, indent, separators, sorted any = false, nil, nil, false
	a.want("ensure_ascii indent separators sort_keys", &ascii, &indent, &separators, &sorted)
	if n, ok := firstInt(a); ok { // Jinja's own has the indent first
		ascii, indent = false, n
	}
	j := jsonStyle{comma: ", ", then: ": ", sorted: truth(sorted), ascii: truth(ascii)}
	switch n := indent.(type) {
	case nil:
	case int:
		if n > 100 {
			panic(fmt.Errorf("an indent of %d; the limit is 100", n))
		}
		j.lines, j.indent, j.comma = true, strings.Repeat(" ", max(n, 0)), ","
	case string:
		if len(n) > 100 {
			panic(errors.New("an indent of more than 100 bytes"))
		}
		j.lines, j.indent, j.comma = true, n, ","
	default:
		panic(fmt.Errorf("an indent that is %s", kindOf(indent)))
	}
	if separators != nil {
		list, _ := sequence(separators)
		if len(list) != 2 {
			panic(errors.New("separators are two strings"))
		}
		comma, ok1 := list[0].(string)
		then, ok2 := list[1].(string)
		if !ok1 || !ok2 {
			panic(errors.New("separators are two strings"))
		}
		j.comma, j.then = comma, then
	}
	var w writer
	j.write(s, &w, v, 0)
	return w.String()
}

// firstInt is a first argument without a name that is an integer.
func firstInt(a call) (int, bool) {
	if len(a.args) != 1 {
		return 0, false
	}
	n, ok := a.args[0].(int)
	return n, ok
}

func (j *jsonStyle) write(s *state, w *writer, v any, depth int) {
	if depth > deepest {
		panic(errDepth)
	}
	switch v := v.(type) {
	case nil:
		s.put(w, "null")
	case bool:
		s.put(w, strconv.FormatBool(v))
	case int:
		s.put(w, strconv.Itoa(v))
	case float64:
		s.put(w, jsonFloat(v))
	case string:
		s.put(w, j.quote(v))
	case []any:
		j.items(s, w, len(v), "[", "]", depth, func(i int) { j.write(s, w, v[i], depth+1) })
	case tuple:
		j.items(s, w, len(v), "[", "]", depth, func(i int) { j.write(s, w, v[i], depth+1) })
	case *Dict:
		keys := j.keys(v)
		j.items(s, w, len(keys), "{", "}", depth, func(i int) {
			s.put(w, j.quote(keyText(keys[i]))+j.then)
			j.write(s, w, v.values[keys[i]], depth+1)
		})
	case undefined:
		panic(v.err())
	default:
		panic(fmt.Errorf("%s cannot be JSON", kindOf(v)))
	}
}

func (j *jsonStyle) items(s *state, w *writer, n int, open, close string, depth int, item func(i int)) {
	comma := j.comma
	if j.lines && n > 0 {
		line := "\n" + strings.Repeat(j.indent, depth)
		open, comma, close = open+line+j.indent, comma+line+j.indent, line+close
	}
	s.series(w, n, open, comma, close, item)
}

func (j *jsonStyle) keys(d *Dict) []any {
	if !j.sorted {
		return d.keys
	}
	keys := slices.Clone(d.keys)
	for _, k := range keys {
		if _, ok := k.(string); !ok {
			panic(errors.New("sort_keys needs keys that are strings"))
		}
	}
	slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return keys
}

// keyText is a key as JSON has it.
func keyText(k any) string {
	switch k := k.(type) {
	case string:
		return k
	case int:
		return strconv.Itoa(k)
	case float64:
		return jsonFloat(k)
	}
	return "null"
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatText(f)
}

func (j *jsonStyle) quote(t string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range t {
		switch {
		case escaped(&b, r, '"'):
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || j.ascii && r > '~' && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case j.ascii && r > '~':
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

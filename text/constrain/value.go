package constrain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/bail"
)

// value is a JSON value of a schema. Members keep their order.
type value struct {
	at      string // JSON pointer, for errors
	kind    byte   // one of { [ " 0 t n
	truth   bool
	text    string // of a string, or a number as it is written
	members []member
	items   []*value
	nested  bool // in a part with a base URI of its own
}

type member struct {
	name  string
	value *value
}

// parse reads one JSON value. An object that has a name twice is an error.
func parse(raw []byte) (v *value, err error) {
	defer bail.Catch(&err)
	if !json.Valid(raw) {
		return nil, fmt.Errorf("#: the schema is not valid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return next(d, "#", 0), nil
}

func next(d *json.Decoder, at string, depth int) *value {
	if depth > maxNesting {
		bail.If(fmt.Errorf("%s: the schema nests more than %d deep", short(at), maxNesting))
	}
	v := &value{at: at}
	switch t := bail.Of(d.Token()).(type) {
	case nil:
		v.kind = 'n'
	case bool:
		v.kind, v.truth = 't', t
	case string:
		v.kind, v.text = '"', t
	case json.Number:
		v.kind, v.text = '0', t.String()
	case json.Delim:
		v.kind = byte(t)
		for seen := map[string]bool{}; d.More(); {
			if t == '[' {
				v.items = append(v.items, next(d, at+"/"+strconv.Itoa(len(v.items)), depth+1))
				continue
			}
			name := bail.Of(d.Token()).(string)
			if seen[name] {
				bail.If(fmt.Errorf("%s: %q is there twice", at, short(name)))
			}
			seen[name] = true
			v.members = append(v.members, member{name, next(d, at+"/"+short(name), depth+1)})
		}
		bail.Of(d.Token())
	}
	return v
}

// get returns the member of a name, or nil.
func (v *value) get(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// find returns the value at a JSON pointer without its #, or nil.
func (v *value) find(pointer string) *value {
	for _, name := range strings.Split(pointer, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if i, err := strconv.Atoi(name); v.kind == '[' && err == nil && i >= 0 && i < len(v.items) {
			v = v.items[i]
		} else if v = v.get(name); v == nil {
			return nil
		}
	}
	return v
}

// String is the value as compact JSON in ASCII.
func (v *value) String() string { return v.spelled(JSON) }

// spelled is the value as String has it, with other words for false, true and null.
func (v *value) spelled(words Words) string {
	var b strings.Builder
	v.write(&b, words)
	return b.String()
}

func (v *value) write(b *strings.Builder, words Words) {
	switch v.kind {
	case 'n':
		b.WriteString(words[wordNull])
	case 't':
		word := words[0]
		if v.truth {
			word = words[1]
		}
		b.WriteString(word)
	case '0':
		b.WriteString(v.text)
	case '"':
		b.WriteString(asciiString(v.text))
	case '[':
		for i, item := range v.items {
			b.WriteByte("[,"[min(i, 1)])
			item.write(b, words)
		}
		b.WriteString("[]"[min(len(v.items), 1):])
	case '{':
		for i, m := range v.members {
			b.WriteByte("{,"[min(i, 1)])
			b.WriteString(asciiString(m.name) + ":")
			m.value.write(b, words)
		}
		b.WriteString("{}"[min(len(v.members), 1):])
	}
}

func asciiString(text string) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < ' ' || c >= 0x7f:
			b.WriteString(escaped(c))
		default:
			b.WriteRune(c)
		}
	}
	return `"` + b.String() + `"`
}

// rat is a number's value; exponents are bounded, so that it is small.
func (v *value) rat() *big.Rat {
	r, ok := new(big.Rat), false
	if _, e, has := strings.Cut(strings.ToLower(v.text), "e"); !has || len(strings.TrimLeft(e, "+-")) <= 3 {
		if exponent, _ := strconv.Atoi(e); exponent >= -maxExponent && exponent <= maxExponent && len(v.text) <= maxExponent {
			r, ok = r.SetString(v.text)
		}
	}
	if !ok {
		panic(fmt.Errorf("%s: the number %s is too large or too long", v.at, short(v.text)))
	}
	return r
}

// equal reports whether two values are the same to JSON Schema.
func (v *value) equal(w *value) bool {
	if v.kind != w.kind || len(v.items) != len(w.items) || len(v.members) != len(w.members) {
		return false
	}
	switch v.kind {
	case '0':
		return v.rat().Cmp(w.rat()) == 0
	case 't':
		return v.truth == w.truth
	case '"':
		return v.text == w.text
	}
	for i := range v.items {
		if !v.items[i].equal(w.items[i]) {
			return false
		}
	}
	for _, m := range v.members {
		if other := w.get(m.name); other == nil || !m.value.equal(other) {
			return false
		}
	}
	return true
}

// Readers of keywords. A keyword that is not there has its zero value; one of another kind is an
// error.

func (v *value) is(name string, kind byte, what string) *value {
	k := v.get(name)
	if k != nil && k.kind != kind {
		panic(fmt.Errorf("%s: it must be %s, and is %s", k.at, what, short(k.String())))
	}
	return k
}

// count reads a whole number; otherwise is its value if there is none.
func (v *value) count(name string, otherwise int) int {
	k := v.is(name, '0', "a whole number")
	if k == nil {
		return otherwise
	}
	r := k.rat()
	if !r.IsInt() || r.Sign() < 0 {
		panic(fmt.Errorf("%s: it is %s; it must be a whole number from 0", k.at, short(k.text)))
	}
	if !r.Num().IsInt64() || r.Num().Int64() > unbounded {
		return unbounded
	}
	return int(r.Num().Int64())
}

// words reads an array of texts.
func (v *value) words(name, what string) (list []string) {
	if k := v.is(name, '[', what); k != nil {
		for _, item := range k.items {
			if item.kind != '"' {
				panic(fmt.Errorf("%s: it must be %s, and has %s", k.at, what, short(item.String())))
			}
			list = append(list, whole(item.at, item.text))
		}
	}
	return list
}

// whole refuses a text that had half of a surrogate pair, which decoding lost.
func whole(at, text string) string {
	if strings.ContainsRune(text, utf8.RuneError) {
		panic(fmt.Errorf("%s: %q has U+FFFD or half of a surrogate pair, which is not supported", at, short(text)))
	}
	return text
}

func short(name string) string {
	if len(name) > 64 {
		return strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

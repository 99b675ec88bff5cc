package constrain_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/krait-ml/krait/text/constrain"
)

// tokens are all bytes, and longer ones; token 300 ends a text and has no bytes.
var tokens = func() [][]byte {
	list := make([][]byte, 301)
	for i := range 256 {
		list[i] = []byte{byte(i)}
	}
	for i, text := range []string{`{"`, `":`, `": `, `",`, `", "`, `"}`, `}}`, `]]`, `true`, `fal`, `se`, `null`, "é", "😀", `\u00`, `12`, `3.5`, `1e`, `"a`, `ab`, `"name"`, `[{"`, "\xc3", "\n", "  ", `,"b`, `}, `} {
		list[256+i] = []byte(text)
	}
	return list
}()

const eos = 300

func vocabulary(t *testing.T) *constrain.Vocabulary {
	t.Helper()
	v, err := constrain.NewVocabulary(len(tokens), func(id int) []byte { return tokens[id] })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func has(mask []int32, id int) bool { return mask[id/32]>>(id%32)&1 == 1 }

// write generates a text at random: freely for some tokens, then by those that close what is open.
func write(t *testing.T, g *constrain.Grammar, v *constrain.Vocabulary, r *rand.Rand) string {
	t.Helper()
	m := g.Match(v, []int{eos})
	var text []byte
	free := r.IntN(80)
	for i := range 100_000 {
		mask := m.Mask()
		var may []int
		for id := range tokens {
			if has(mask, id) {
				may = append(may, id)
			}
		}
		if len(may) == 0 {
			t.Fatalf("no token may follow %q", text)
		}
		id := may[r.IntN(len(may))]
		if i > free {
			for _, closing := range []int{eos, '"', '}', ']', '0'} {
				if has(mask, closing) {
					id = closing
					break
				}
			}
		}
		if id != eos {
			text = append(text, tokens[id]...)
		}
		if m.Accept(id) {
			return string(text)
		}
	}
	t.Fatalf("the text does not end: %.200q", text)
	return ""
}

// TestSchemas: a text generated under a schema is JSON that an independent validator accepts.
func TestSchemas(t *testing.T) {
	schemas := []string{
		`true`, `{}`, `{"type": "object"}`, `{"type": "array"}`, `{"type": "string"}`, `{"type": "number"}`, `{"type": "integer"}`, `{"type": ["null", "boolean"]}`,
		`{"type": "string", "minLength": 3, "maxLength": 3}`, `{"type": "string", "maxLength": 0}`, `{"minLength": 2}`,
		`{"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 4}`, `{"type": "array", "maxItems": 0}`, `{"type": "array", "minItems": 2}`, `{"minItems": 1, "minLength": 1}`,
		`{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false}`,
		`{"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}, "d": {"type": "null"}}, "required": ["c"]}`,
		`{"type": "object", "properties": {"a": {}, "b": {"type": "boolean"}}}`,
		`{"type": "object", "additionalProperties": false}`, `{"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}}`,
		`{"enum": ["red", "ready", "grün", "😀", "a\"b\\c\n", 1, 1.5, null, {"a": ["é"]}]}`, `{"type": "string", "enum": ["a", 1, "ab"]}`, `{"const": {"x": [1, 2]}}`,
		`{"anyOf": [{"type": "string", "maxLength": 2}, {"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "number"}}]}`,
		`{"$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "l": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v", "l"], "additionalProperties": false}}, "$ref": "#/$defs/tree"}`,
		`{"type": "array", "items": {"$ref": "#"}}`, `{"anyOf": [{"$ref": "#"}, {"type": "boolean"}]}`,
		`{"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}}, {"const": 0}]}`,
		`{"properties": {"é\"\\": {"type": "integer"}, "": {"type": "null"}}, "required": ["", "é\"\\"]}`,
	}
	v := vocabulary(t)
	for _, schema := range schemas {
		g, err := constrain.Compile([]byte(schema))
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		valid := validator(t, schema)
		for seed := range uint64(10) {
			text := write(t, g, v, rand.New(rand.NewPCG(seed, 1)))
			if value, err := jsonschema.UnmarshalJSON(strings.NewReader(text)); err != nil {
				t.Errorf("%s, seed %d: %q: %v", schema, seed, text, err)
			} else if err := valid.Validate(value); err != nil {
				t.Errorf("%s, seed %d: %s: %v", schema, seed, text, err)
			}
		}
	}
}

func validator(t *testing.T, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return s
}

// TestTexts: which texts a schema takes.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		schema     string
		takes, not []string
	}{
		{`{"type": "number"}`, []string{"0", "-0", "12.50", "1e9", "1E-10"}, []string{"01", "+1", ".5", "1.", "1e", "1e100", "1234567890123456", "NaN", ""}},
		{`{"type": "integer"}`, []string{"0", "-7", "999999999999999"}, []string{"1.0", "1e2", "00", "-"}},
		{`{"type": "string"}`, []string{`""`, `"é😀"`, `"\u00e9\ud7ff\n\/"`, "\"\x7f\""}, []string{`"`, `"\ud800"`, "\"\n\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", `"\x"`, `"\u12"`}},
		{`{"type": "string", "minLength": 1, "maxLength": 2}`, []string{`"a"`, `"😀\n"`}, []string{`""`, `"abc"`}},
		{`{"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]}`, []string{`{"a":1,"b":2}`, `{"a": 1, "b": 2}`, `{"b":2}`}, []string{`{}`, `{"a":1}`, `{"b":2,"a":1}`, `{"a":1,}`, `{,"b":2}`, `{"a":  1,"b":2}`, `{"b":2,"c":3}`, `{"b":2} `}},
		{`{"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}`, []string{`[null]`, `[null, null]`}, []string{`[]`, `[null,]`, `[null,null,null]`}},
		{`{"enum": ["é", "ab", "a"]}`, []string{`"é"`, `"\u00e9"`, `"a"`, `"ab"`}, []string{`"b"`, `""`, `"abc"`}},
	} {
		g, err := constrain.Compile([]byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.takes {
			if !takes(t, g, text) {
				t.Errorf("%s does not take %s", c.schema, text)
			}
		}
		for _, text := range c.not {
			if takes(t, g, text) {
				t.Errorf("%s takes %s", c.schema, text)
			}
		}
	}
}

func takes(t *testing.T, g *constrain.Grammar, text string) bool {
	m := g.Match(vocabulary(t), []int{eos})
	for i, b := range []byte(text) {
		if !has(m.Mask(), int(b)) {
			return false
		}
		closed := i == len(text)-1 && bytes.IndexByte([]byte(`"}]`), b) >= 0 // digits may follow digits
		switch last := m.Accept(int(b)); {
		case last && i < len(text)-1:
			return false
		case closed && !last && has(m.Mask(), eos):
			t.Errorf("%s does not end the text", text)
		}
	}
	return has(m.Mask(), eos)
}

// TestTokens: a token of several bytes may come where its bytes may, one after the other.
func TestTokens(t *testing.T) {
	v := vocabulary(t)
	for _, schema := range []string{`{}`, `{"properties": {"name": {"type": "string", "maxLength": 3}, "b": {"type": "array"}}}`} {
		g, err := constrain.Compile([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(3) {
			text := write(t, g, v, rand.New(rand.NewPCG(seed, 2)))
			at := g.Match(v, []int{eos})
			for i := range min(len(text), 25) {
				mask := at.Mask()
				for id := 256; id < len(tokens); id++ {
					alone, may := g.Match(v, nil), true
					for _, b := range []byte(text[:i]) {
						alone.Accept(int(b))
					}
					for _, b := range tokens[id] {
						if may = may && has(alone.Mask(), int(b)); may {
							alone.Accept(int(b))
						}
					}
					if may = may && len(tokens[id]) > 0; id != eos && has(mask, id) != may {
						t.Fatalf("%s, behind %q: token %q may come: %v", schema, text[:i], tokens[id], !may)
					}
				}
				at.Accept(int(text[i]))
			}
		}
	}
}

// TestRefused: what is not supported is refused by its name and place.
func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"type": "array", "items": `, 40) + `{}` + strings.Repeat("}", 40)
	many := strings.Repeat(`{"type": "null"},`, 200)
	for schema, want := range map[string]string{
		`[]`: "#: a schema must be an object", `false`: "#: no text fulfils the schema false",
		`{"pattern": "a"}`:                                         `the keyword "pattern" is not supported`,
		`{"properties": {"a": {"allOf": []}}}`:                     `#/properties/a: the keyword "allOf"`,
		`{"items": {"minimum": 1}}`:                                `#/items: the keyword "minimum"`,
		`{"type": "text"}`:                                         `unknown type "text"`,
		`{"type": 3}`:                                              `#/type: it must be a type`,
		`{"type": "object", "required": ["a"]}`:                    `#/required: "a" is not in properties`,
		`{"$ref": "#/$defs/none"}`:                                 `is not in the schema`,
		`{"$ref": "http://example.org/a"}`:                         `is not in the schema`,
		`{"anyOf": [{}], "type": "string"}`:                        `type beside anyOf`,
		`{"anyOf": []}`:                                            `#/anyOf: no text fulfils it: it has no schemas`,
		`{"enum": ["a"], "type": "integer"}`:                       `#: no text fulfils it: none of its values is of its type`,
		`{"items": {"const": 1, "type": "string"}, "minItems": 1}`: `#/items: no text fulfils it: none of its values is of its type`,
		`{"properties": {"a": {"type": []}}, "required": ["a"]}`:   `#/properties/a: no text fulfils it: it has no type`,
		`{"$ref": "#"}`:                                            `#: no text fulfils the schema: a part of it requires itself`,
		`{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}`:  `no text fulfils`,
		`{"type": "string", "minLength": 3, "maxLength": 2}`:       `is more than maxLength`,
		`{"type": "string", "minLength": -1}`:                      `it must be from 0`,
		`{"type": "string", "minLength": null}`:                    `it must be a whole number`,
		`{"type": "string", "maxLength": 16384}`:                   `#: the schema is too large`,
		`{"items": {"type": "string", "maxLength": 16384}}`:        `#/items: the schema is too large`,
		`{"type": "string", "type": "null"}`:                       `#: "type" is there twice`,
		`{"items": {"type": "string", "type": "null"}}`:            `#/items: "type" is there twice`,
		deep: `more than 32 deep`,
		`{"anyOf": [` + many[:len(many)-1] + `]}`: `it has 200 schemas`,
	} {
		if _, err := constrain.Compile([]byte(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v; want %s", schema, err, want)
		}
	}
	if _, err := constrain.NewVocabulary(10, func(id int) []byte { return []byte{byte('a' + id)} }); err == nil {
		t.Error("a vocabulary without quotes is taken")
	}
}

// TestDeep: texts that would go on for ever deep end at the bound, and with enough memory for
// many of them.
func TestDeep(t *testing.T) {
	deepest(t, constrain.Object(), "[")
	g, err := constrain.Compile([]byte(`{"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"const": 0}]}`))
	if err != nil {
		t.Fatal(err)
	}
	deepest(t, g, "{")
}

// deepest generates a text that opens all it can.
func deepest(t *testing.T, g *constrain.Grammar, open string) {
	m := g.Match(vocabulary(t), []int{eos})
	var text bytes.Buffer
	for inString := false; ; {
		mask, id := m.Mask(), int('"') // strings are closed at once, else opens what it can
		for _, c := range []byte(`[{"]}:a0`) {
			if (!inString || !has(mask, '"')) && has(mask, int(c)) && !(inString && c != 'a') {
				id = int(c)
				break
			}
		}
		inString = inString != (id == '"')
		text.WriteByte(byte(id))
		if !has(mask, id) {
			t.Fatalf("a dead end: %s", text.Bytes())
		}
		if last := m.Accept(id); last {
			break
		}
		if text.Len() == 10_000 {
			t.Fatalf("the text does not end: %.300s", text.Bytes())
		}
	}
	if n := bytes.Count(text.Bytes(), []byte(open)); n < 30 {
		t.Errorf("the text is %d deep", n)
	}
	if !json.Valid(text.Bytes()) {
		t.Errorf("%s is not JSON", text.Bytes())
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`{"type": "object", "properties": {"a": {"$ref": "#"}}}`, `{"anyOf": [{"enum": ["a", 1]}, {"type": "array", "minItems": 2}]}`} {
		f.Add(seed)
	}
	v, err := constrain.NewVocabulary(len(tokens), func(id int) []byte { return tokens[id] })
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if !json.Valid([]byte(schema)) {
			return
		}
		g, err := constrain.Compile([]byte(schema))
		if err != nil {
			return
		}
		m := g.Match(v, []int{eos})
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 50 {
			mask := m.Mask()
			var may []int
			for id := range tokens {
				if has(mask, id) {
					may = append(may, id)
				}
			}
			if len(may) == 0 {
				t.Fatalf("step %d: a dead end", i)
			}
			if m.Accept(may[r.IntN(len(may))]) {
				return
			}
		}
	})
}

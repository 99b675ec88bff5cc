package constrain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	for i, text := range []string{`{"`, `":`, `": `, `",`, `", "`, `"}`, `}}`, `]]`, `true`, `fal`, `se`, `null`, "é", "😀", `\u00`, `12`, `3.5`, `1e`, `"a`, `ab`, `"name"`, `[{"`, "\xc3", "\n", "  ", `,"b`, `}, `, `abab`, `ba"`, `aabbab`} {
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

// write generates a text at random.
func write(t *testing.T, g *constrain.Grammar, v *constrain.Vocabulary, r *rand.Rand) string {
	t.Helper()
	text, ended := draw(t, g, v, r)
	if !ended {
		t.Fatalf("the text does not end: %.200q", text)
	}
	return text
}

// draw generates a text: freely for some tokens, then mostly by those that close what is open. It
// reports whether the text ended.
func draw(t *testing.T, g *constrain.Grammar, v *constrain.Vocabulary, r *rand.Rand) (string, bool) {
	t.Helper()
	m := g.Match(v, []int{eos})
	var text []byte
	free := r.IntN(80)
	for i := range 4_000 {
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
		if i > free && r.IntN(8) > 0 {
			for _, closing := range closers(text) {
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
			return string(text), true
		}
	}
	return string(text), false
}

// closers are tokens that end a string, or what is open outside of one.
func closers(text []byte) []int {
	inside := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			inside = !inside
		case '\\':
			i++
		}
	}
	if inside {
		return []int{'"'}
	}
	return []int{eos, '}', ']', '0', '"'}
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
		`{"type": "array", "items": {"$ref": "#"}}`, `{"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "boolean"}]}`,
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
	s, err := validatorOf(schema)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return s
}

func validatorOf(schema string) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
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
		{`{"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]}`, []string{`{"a":1,"b":2}`, `{"a": 1, "b": 2}`, `{"b":2}`}, []string{`{}`, `{"a":1}`, `{"b":2,"a":1}`, `{"a":1,}`, `{,"b":2}`, `{"a":  1,"b":2}`, `{"b":2,"a":3}`, `{"b":2} `}},
		{`{"properties": {"a": {"const": 1}}, "required": ["z"]}`, []string{`{"a":1,"z":{}}`, `{"z":0,"aa":null,"":1}`, `{"z":0,"é":1,"\u00e9":2}`}, []string{`{"a":1}`, `{"z":0,"a":1}`, `{"z":0,"\u0061":2}`, `{"z":0,"z":1}`}},
		{`{"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "null"}}`, []string{`{"a":1,"b":null}`, `{}`}, []string{`{"b":1}`, `{"a":null}`}},
		{`{"properties": {"a": {"const": 1}}, "additionalProperties": false}`, []string{`{"a":1}`, `{}`}, []string{`{"b":1}`, `{"a":1,"b":1}`}},
		{`{"patternProperties": {"^a": {"const": 1}, "z$": {"enum": [1, 2]}}, "additionalProperties": false}`, []string{`{"a":1,"bz":2}`, `{"az":1}`}, []string{`{"az":2}`, `{"b":1}`}},
		{`{"type": "object", "propertyNames": {"pattern": "^[ab]+$", "maxLength": 2}}`, []string{`{"ab":1}`, `{}`}, []string{`{"abb":1}`, `{"c":1}`, `{"":1}`}},
		{`{"type": "object", "properties": {"a": true, "b": true}, "minProperties": 1, "maxProperties": 2}`, []string{`{"a":1}`, `{"c":1}`, `{"a":1,"b":2}`, `{"b":1,"c":2}`}, []string{`{}`, `{"a":1,"b":2,"c":3}`}},
		{`{"type": "object", "dependentRequired": {"a": ["b"]}, "properties": {"a": true, "b": true}}`, []string{`{}`, `{"b":1}`, `{"a":1,"b":1}`}, []string{`{"a":1}`, `{"a":1,"c":1}`}},
		{`{"type": "object", "dependencies": {"a": {"properties": {"b": {"const": 1}}}}, "properties": {"a": true, "b": true}}`, []string{`{"b":2}`, `{"a":1,"b":1}`}, []string{`{"a":1,"b":2}`}},
		{`{"type": "integer", "minimum": -12, "exclusiveMaximum": 105}`, []string{"-12", "-9", "-1", "0", "9", "99", "104"}, []string{"-13", "-20", "105", "110", "1000", "1.0"}},
		{`{"type": "number", "minimum": 0.5, "maximum": 1.25}`, []string{"0.5", "0.50", "0.51", "1", "1.2", "1.25", "1.250"}, []string{"0", "0.4", "0.49", "1.251", "1.3", "2", "-1", "10"}},
		{`{"type": "number", "exclusiveMinimum": 0}`, []string{"0.1", "1", "20", "0.001"}, []string{"0", "0.0", "-1"}},
		{`{"type": "number", "minimum": 5, "exclusiveMinimum": true}`, []string{"5.1", "6"}, []string{"5", "5.0", "4"}},
		{`{"type": "integer", "multipleOf": 7}`, []string{"0", "7", "-14", "7007"}, []string{"1", "8", "-15"}},
		{`{"type": "number", "multipleOf": 0.25}`, []string{"0.5", "0.25", "3", "1.75"}, []string{"0.3", "0.2", "0.255"}},
		{`{"type": "integer", "multipleOf": 1.5, "minimum": 1}`, []string{"3", "12"}, []string{"0", "1", "2"}},
		{`{"type": "integer", "multipleOf": 6, "not": {"multipleOf": 4}}`, []string{"6", "-18", "30"}, []string{"0", "12", "7", "-24"}},
		{`{"type": "number", "not": {"multipleOf": 0.5}}`, []string{"0.25", "-1.7"}, []string{"0", "1", "0.5", "-2.50", "1.0"}},
		{`{"type": "number", "not": {"type": "integer"}, "minimum": 1}`, []string{"1.5", "20.1"}, []string{"1", "2.0", "0.5"}},
		{`{"type": "number", "not": {"type": "number", "not": {"multipleOf": 3}}}`, []string{"3", "-6", "0"}, []string{"1", "1.5"}},
		{`{"type": "integer", "multipleOf": 997}`, []string{"0", "-997", "9970"}, []string{"991", "1"}},
		{`{"type": "string", "pattern": "^\\p{Script=Greek}\\P{gc=Lu}$"}`, []string{`"αb"`, `"Ωω"`}, []string{`"ab"`, `"αB"`}},
		{`{"type": "array", "items": {"const": 1}, "minItems": 400}`, []string{"[1" + strings.Repeat(",1", 399) + "]"}, []string{"[1" + strings.Repeat(",1", 398) + "]"}},
		{`{"type": "string", "pattern": "a.c"}`, []string{`"abc"`, `"xxaécxx"`, `"a\"c"`, `"a😀c"`, `"a\ud83d\ude00c"`}, []string{`"ac"`, `"a\nc"`, `""`}},
		{`{"type": "string", "pattern": "^[\\w-.]+$", "maxLength": 3}`, []string{`"a-."`, `"a"`}, []string{`"a b"`, `"abcd"`, `""`}},
		{`{"type": "string", "pattern": "^[^\\s]\\S$"}`, []string{`"ab"`, `"éé"`}, []string{`"a "`, `" a"`, `"a\u00a0"`, `"\u2003a"`}},
		{`{"type": "string", "pattern": "^\\u00e9$|^\\x41$"}`, []string{`"é"`, `"A"`, `"\u00e9"`}, []string{`"e"`}},
		{`{"type": "string", "format": "date"}`, []string{`"2024-02-29"`, `"1999-12-31"`}, []string{`"2023-02-29"`, `"1900-02-29"`, `"2023-04-31"`, `"2023-1-1"`}},
		{`{"type": "string", "format": "date-time"}`, []string{`"2024-02-29T23:59:59Z"`, `"1999-12-31T00:00:00.123+02:00"`}, []string{`"2024-02-29"`, `"2024-02-29T24:00:00Z"`, `"2024-02-29T00:00:00"`}},
		{`{"type": "string", "format": "ipv6"}`, []string{`"::"`, `"::1"`, `"1::"`, `"fe80::1:2"`, `"1:2:3:4:5:6:7:8"`, `"1:2:3:4:5:6:7::"`}, []string{`":::"`, `"1:2:3:4:5:6:7"`, `"1::2::3"`, `"1:2:3:4:5:6:7:8:9"`, `"12345::"`}},
		{`{"type": "string", "format": "uri"}`, []string{`"http://a.example/b?c=d#e"`, `"urn:isbn:1"`, `"mailto:a@b"`}, []string{`"a/b"`, `"http://a b"`, `""`}},
		{`{"type": "string", "format": "uuid"}`, []string{`"2eb8aa08-AA98-11ea-b4aa-73b441d16380"`}, []string{`"2eb8aa08AA9811eab4aa73b441d16380"`}},
		{`{"type": "string", "format": "no-such-format"}`, []string{`"a"`}, nil},
		{`{"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "string"}, {"type": "string", "maxLength": 2}]}`, []string{"2", `"abc"`}, []string{"1", `"a"`}},
		{`{"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}`, []string{`{"a":1}`, `{"b":1}`, `{"b":1,"c":2}`}, []string{`{}`, `{"a":1,"b":2}`, `{"b":1,"a":2}`}},
		{`{"oneOf": [{"type": "string", "format": "uri"}, {"type": "string", "maxLength": 1}]}`, []string{`"http://a"`}, []string{`"é"`, `"ab"`}},
		{`{"type": "string", "not": {"enum": ["a", "bc"]}}`, []string{`""`, `"b"`, `"abc"`}, []string{`"a"`, `"bc"`, `"\u0061"`}},
		{`{"type": "integer", "not": {"enum": [1, 3]}, "minimum": 0, "maximum": 4}`, []string{"0", "2", "4"}, []string{"1", "3", "5"}},
		{`{"allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"type": "integer", "maximum": 3}}, "required": ["a"]}], "type": "object"}`, []string{`{"a":2}`, `{"a":3}`}, []string{`{"a":1}`, `{"a":4}`, `{}`}},
		{`{"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": true}, "if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}, "else": {"properties": {"b": {"type": "null"}}}}`, []string{`{"a":1,"b":3}`, `{"a":2}`, `{"a":2,"b":null}`, `{}`}, []string{`{"a":1}`, `{"a":2,"b":3}`}},
		{`{"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}}`, []string{`[]`, `[1]`, `[1,2,3,3]`}, []string{`[2]`, `[1,3]`, `[1,2,2]`}},
		{`{"type": "array", "items": [{"const": 1}], "additionalItems": false}`, []string{`[]`, `[1]`}, []string{`[1,1]`}},
		{`{"type": "array", "contains": {"const": 2}, "items": {"enum": [1, 2]}, "maxItems": 3}`, []string{`[2]`, `[1,2]`, `[1,1,2]`, `[2,2,1]`}, []string{`[]`, `[1]`, `[1,1,1]`, `[3,2]`}},
		{`{"enum": [{"a": 1, "b": [null]}, 5, "x"], "type": ["object", "number"], "required": ["a"]}`, []string{`{"a":1,"b":[null]}`, "5"}, []string{`"x"`, "6"}},
		{`{"type": "string", "nullable": true, "x-anything": {"type": 3}}`, []string{`"a"`}, []string{"null"}},
		{`{"$ref": "#/$defs/a%25b/x~1y", "$defs": {"a%b": {"x/y": {"const": 1}}}}`, []string{"1"}, []string{"2"}},
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
	v, shared := vocabulary(t), 0
	defer constrain.ShareAll()()
	for _, schema := range []string{
		`{"type": "string", "pattern": "^[a-z ]{3,60}$"}`, `{"type": "string", "pattern": "^[ab]{12,16}$"}`, `{"type": "array", "items": {"type": "string", "pattern": "^([a-z]{1,3}[ ,]){2,9}$"}, "minItems": 3, "maxItems": 20}`,
		`{}`, `{"properties": {"name": {"type": "string", "maxLength": 3}, "b": {"type": "array"}}}`, `{"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 5}}`,
		`{"type": "string", "minLength": 3}`, `{"anyOf": [{"type": "string", "pattern": "b"}, {"type": "string", "maxLength": 4}]}`, `{"type": "object", "properties": {"ab": {"pattern": "^a.{2,4}$"}}}`,
		`{"type": "string", "maxLength": 3}`, `{"type": "object", "properties": {"ab": {"pattern": "^[a-z]+_?[a-z]*-[0-9 ]*$"}}}`,
	} {
		g, err := constrain.Compile([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(4) {
			text := `"\\\nb"`
			if seed < 3 {
				text = write(t, g, v, rand.New(rand.NewPCG(seed, 2)))
			} else if !g.Takes([]byte(text)) {
				break
			}
			at := g.Match(v, []int{eos})
			for i := range min(len(text), 25) {
				mask := at.Mask()
				for id, walked := 0, at.Walked(); id < len(tokens); id++ {
					if id != eos && has(mask, id) != has(walked, id) {
						t.Fatalf("%s, behind %q: token %q may come: %v, and %v by a walk", schema, text[:i], tokens[id], has(mask, id), has(walked, id))
					}
				}
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
		shared += g.Shared()
	}
	if shared < 10 {
		t.Errorf("%d sets have the mask of another that is alike", shared)
	}
}

// TestRefused: what is not supported is refused by its name and place.
func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"type": "array", "items": `, 300) + `{}` + strings.Repeat("}", 300)
	many := strings.Repeat(`{"type": "null"},`, 600)
	for schema, want := range map[string]string{
		`[]`: "#: a schema must be an object", `false`: "#: no text fulfils it", `{`: "#: the schema is not valid JSON",
		`{"pattern": "(?=a)"}`:                                               `#/pattern: "(?=a)" is not supported: it has "(?=a"`,
		`{"pattern": "\\bword"}`:                                             `#/pattern: "\\bword" is not supported: it has \b`,
		`{"pattern": "(a)\\1"}`:                                              `it has \1`,
		`{"pattern": "[\\d-\\s]"}`:                                           `a range in brackets ends with a class`,
		`{"pattern": "a{3"}, "x": 1}`:                                        `not valid JSON`,
		`{"pattern": "("}`:                                                   `#/pattern: "(" is not supported`,
		`{"pattern": "(a{0,1000}){0,1000}"}`:                                 `#/pattern: `,
		`{"pattern": "(a|b)*a(a|b){20}"}`:                                    `#/pattern: a pattern, length or multipleOf takes more than`,
		`{"format": "regex"}`:                                                `#/format: the format regex is not supported`,
		`{"items": {"uniqueItems": true}}`:                                   `#/items: the keyword "uniqueItems" is not supported`,
		`{"items": {"$dynamicRef": "#a"}}`:                                   `#/items: the keyword "$dynamicRef" is not supported`,
		`{"allOf": [true], "unevaluatedItems": false}`:                       `the keyword "unevaluatedItems" is not supported beside allOf`,
		`{"contains": {}, "minContains": 2}`:                                 `#/minContains: it is 2; only 0 and 1`,
		`{"type": "integer", "multipleOf": 1000003}`:                         `multipleOf is not supported beyond`,
		`{"type": "integer", "multipleOf": 997, "not": {"multipleOf": 991}}`: `multipleOf is not supported beyond 2048 times a power of ten, nor are several with a larger least common multiple`,
		`{"pattern": "^((a{0,30}){0,30}){0,30}$"}`:                           `{0,30} repeats too often: counts are at most 1000`,
		`{"pattern": "[\\ud83d\\ude00]"}`:                                    `\ud83d, which is no character; write those beyond \uffff as \u{1f600}`,
		`{"type": "integer", "minimum": 0.1, "maximum": 0.9}`:                `#: no text fulfils it`,
		`{"type": "integer", "minimum": -2, "exclusiveMinimum": true, "exclusiveMaximum": -1}`: `#: no text fulfils it`,
		`{"const": "` + strings.Repeat("x", 70_000) + `"}`:                                     `the values are too long together`,
		`{"multipleOf": 0}`:                      `#/multipleOf: it is 0; it must be above 0`,
		`{"minimum": 1e999}`:                     `#/minimum: the number 1e999 is too large`,
		`{"type": "object", "minProperties": 2}`: `minProperties above 1 is not supported here`,
		`{"type": "text"}`:                       `unknown type "text"`,
		`{"type": 3}`:                            `#/type: it must be a type`,
		`{"required": true}`:                     `#/required: it must be an array of names`,
		`{"$ref": "#/$defs/none"}`:               `is not in the schema`,
		`{"$ref": "http://example.org/a"}`:       `is not in the schema`,
		`{"items": {"$id": "b", "$ref": "#/a"}}`: `a $ref in a part with an $id of its own`,
		`{"anyOf": []}`:                          `#: no text fulfils it`,
		`{"enum": ["a"], "type": "integer"}`:     `#: no text fulfils it`,
		`{"type": "array", "items": {"const": 1, "type": "string"}, "minItems": 1}`: `#/items: no text fulfils it`,
		`{"type": "object", "properties": {"a": {"type": []}}, "required": ["a"]}`:  `#/properties/a: no text fulfils it`,
		`{"$ref": "#"}`: `#: no text fulfils it: it requires itself`,
		`{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}`: `no text fulfils`,
		`{"type": "string", "minLength": 3, "maxLength": 2}`:                        `#: no text fulfils it`,
		`{"type": "string", "minLength": -1}`:                                       `it must be a whole number`,
		`{"type": "string", "minLength": null}`:                                     `it must be a whole number`,
		`{"type": "string", "minLength": 70000}`:                                    `#: it is too large`,
		`{"items": {"type": "string", "minLength": 70000}}`:                         `#/items: it is too large`,
		`{"type": "string", "type": "null"}`:                                        `#: "type" is there twice`,
		`{"items": {"type": "string", "type": "null"}}`:                             `#/items: "type" is there twice`,
		`{"const": "\ud800"}`:                                                       `half of a surrogate pair`,
		deep:                                                                        `nests more than 256 deep`,
		`{"anyOf": [` + many[:len(many)-1] + `]}`:                                   `it has 600 schemas`,
	} {
		if _, err := constrain.Compile([]byte(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v; want %s", schema, err, want)
		}
	}
	if _, err := constrain.NewVocabulary(10, func(id int) []byte { return []byte{byte('a' + id)} }); err == nil {
		t.Error("a vocabulary without quotes is taken")
	}
}

// TestHostile: schemas whose alternatives multiply take little memory, or are refused before they
// take much.
func TestHostile(t *testing.T) {
	var one []string
	for i := range 14 {
		one = append(one, fmt.Sprintf(`{"properties": {"a%d": {"type": "string"}}, "required": ["a%[1]d"]}`, i))
	}
	list := strings.Join(one, ", ")
	var consts, patterns []string
	for i := range 300 {
		consts = append(consts, fmt.Sprintf(`{"const": "value number %d of them"}`, i))
	}
	for i := range 8 {
		patterns = append(patterns, fmt.Sprintf(`"%c.*%c": {"minimum": %d}`, 'a'+i, 'b'+i, i))
	}
	many, names := "more than 256 combinations", "overlap in too many ways"
	for _, c := range [][2]string{{`{"oneOf": [` + list + `]}`, many}, {`{"not": {"anyOf": [` + list + `]}}`, many}, {`{"if": {"anyOf": [` + list + `]}, "else": {"type": "object"}}`, many},
		{`{"oneOf": [` + strings.Join(consts, ", ") + `]}`, ""}, {`{"patternProperties": {` + strings.Join(patterns, ", ") + `}}`, names}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := constrain.Compile([]byte(c[0]))
		runtime.ReadMemStats(&after)
		took := (after.TotalAlloc - before.TotalAlloc) >> 20
		if (err == nil) != (c[1] == "") || err != nil && !strings.Contains(err.Error(), c[1]) || took > 64 {
			t.Errorf("%.60s: %v, of %d MiB", c[0], err, took)
		}
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

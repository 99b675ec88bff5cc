package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/text/constrain"
	"github.com/krait-ml/krait/text/reply"
	"github.com/krait-ml/krait/text/tokenizer"
)

// readFormat reads response_format: text, JSON, or JSON of a schema.
func readFormat(p *params, raw json.RawMessage) *Error {
	if err := small("response_format", raw); err != nil {
		return err
	}
	var format map[string]json.RawMessage
	var kind string
	if json.Unmarshal(raw, &format) != nil || json.Unmarshal(format["type"], &kind) != nil {
		return bad("response_format", `it must be an object with a type, such as {"type": "json_object"}`)
	}
	for key := range format {
		if key != "type" && !(key == "json_schema" && kind == "json_schema") && !(key == "schema" && kind == "json_object") {
			return unknown("response_format."+short(key), "it is not supported with the type "+short(kind))
		}
	}
	switch kind {
	case "text":
	case "json_object":
		if format["schema"] != nil { // as llama.cpp's server has it
			return p.compile("response_format.schema", "json", format["schema"])
		}
		return p.compile("response_format", "json_object", []byte("true"))
	case "json_schema":
		return readSchema(p, format["json_schema"])
	default:
		return bad("response_format.type", "it is %q; it must be text, json_object or json_schema", short(kind))
	}
	return nil
}

func readSchema(p *params, raw json.RawMessage) *Error {
	const at = "response_format.json_schema"
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return bad(at, `it must be an object such as {"name": "answer", "schema": {"type": "object"}}`)
	}
	for key := range fields {
		if !slices.Contains([]string{"name", "description", "schema", "strict"}, key) { // schemas are always strict
			return unknown(at+"."+short(key), "it is not supported; use name, description, schema and strict")
		}
	}
	if fields["schema"] == nil {
		return bad(at+".schema", "it is missing")
	}
	return p.compile(at+".schema", "json", fields["schema"])
}

// notations are the kinds of grammars, by vLLM's names.
var notations = map[string]func([]byte) (*constrain.Grammar, error){
	"json":    constrain.Compile,
	"regex":   ofText(constrain.Regex),
	"grammar": ofText(constrain.GBNF),
	"choice": func(raw []byte) (*constrain.Grammar, error) {
		var texts []string
		if json.Unmarshal(raw, &texts) != nil || len(texts) == 0 {
			return nil, errors.New("it must be an array of strings")
		}
		return constrain.Choice(texts)
	},
	"json_object": func(raw []byte) (*constrain.Grammar, error) {
		if string(raw) != "true" {
			return nil, errors.New("it must be true")
		}
		return constrain.Object(), nil
	},
}

func ofText(compile func(string) (*constrain.Grammar, error)) func([]byte) (*constrain.Grammar, error) {
	return func(raw []byte) (*constrain.Grammar, error) {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return nil, errors.New("it must be a string")
		}
		return compile(text)
	}
}

// small bounds a schema or grammar before it is parsed.
func small(at string, raw json.RawMessage) *Error {
	if n := len(raw); n > maxObject {
		return bad(at, "it has %d bytes; the limit is %d", n, maxObject)
	}
	return nil
}

// compile sets the grammar of a request, which may have one.
func (p *params) compile(at, notation string, raw json.RawMessage) *Error {
	if err := small(at, raw); err != nil {
		return err
	}
	if p.grammar != nil {
		return bad(at, "the request has another format already; a text has one")
	}
	var err error
	p.notation = notation + "\x00" + string(raw)
	if p.grammar, err = p.grammars.Get(p.tenant, notation, raw, notations[notation]); err != nil {
		return bad(at, "%v", err)
	}
	return nil
}

// guided is a parameter for a text in a notation: vLLM's older guided_NOTATION, or llama.cpp's. A
// schema may also be a string.
func guided[T any](name, notation string, of func(T) *params) field[T] {
	return field[T]{name: name, read: func(t T, raw json.RawMessage) *Error {
		if err := small(name, raw); err != nil {
			return err
		}
		var text string
		if notation == "json" && json.Unmarshal(raw, &text) == nil {
			raw = json.RawMessage(text)
		}
		return of(t).compile(name, notation, raw)
	}}
}

// readStructured reads vLLM's structured_outputs: an object with one notation.
func readStructured(p *params, raw json.RawMessage) *Error {
	const at = "structured_outputs"
	if err := small(at, raw); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return bad(at, `it must be an object such as {"choice": ["yes", "no"]}`)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[key]
		switch {
		case string(raw) == "null", key == "json_object" && string(raw) == "false":
			continue
		case notations[key] == nil:
			return unknown(at+"."+short(key), "it is not supported; use "+strings.Join(slices.Sorted(maps.Keys(notations)), ", "))
		}
		var text string
		if key == "json" && json.Unmarshal(raw, &text) == nil {
			raw = json.RawMessage(text)
		}
		if err := p.compile(at+"."+key, key, raw); err != nil {
			return err
		}
	}
	return nil
}

// constrain sets the token mask of a grammar.
func (s *Server) constrain(g *constrain.Grammar, o *krait.Generate) *Error {
	v, err := s.vocabulary()
	if err != nil {
		return bad("response_format", "it is not supported: %v", err)
	}
	eos := s.m.EOS()
	if o.IgnoreEOS {
		eos = nil
	}
	m := g.Match(v, eos)
	m.Prepare()
	o.Mask = m.Mask
	o.Accept = func(id int) (last bool) {
		if last = m.Accept(id); !last {
			m.Prepare() // beside the step that computes the logits
		}
		return last
	}
	return nil
}

// newVocabulary returns the bytes of the model's tokens as they follow other tokens. Special tokens
// have bytes that no UTF-8 has.
func (s *Server) newVocabulary() (*constrain.Vocabulary, error) {
	if _, ok := s.tokens.(tokenizer.Bytes); ok {
		return constrain.NewVocabulary(s.m.Vocab(), func(id int) []byte {
			if id > 255 {
				return nil
			}
			return []byte{byte(id)}
		})
	}
	follow, err := following(s.tokens)
	if err != nil {
		return nil, err
	}
	eos := s.m.EOS()
	return constrain.NewVocabulary(s.m.Vocab(), func(id int) []byte {
		if slices.Contains(eos, id) {
			return nil
		}
		if text, ok := s.talk.specials[id]; ok {
			return []byte(reply.Special + text)
		}
		return follow(id)
	})
}

// following returns the bytes of a token as it follows others. Those of a part of a character are
// the ones that its spelling stands for, if decoding agrees.
func following(t krait.Tokenizer) (func(id int) []byte, error) {
	before, err := t.Encode("a", false)
	if err != nil || len(before) == 0 {
		return nil, fmt.Errorf("the tokenizer encodes a letter as no token: %v", err)
	}
	text := t.Decode(before, true)
	valid := func(s string) string { return broken.ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "\uFFFD") }
	return func(id int) []byte {
		more, ok := strings.CutPrefix(t.Decode(append(before[:len(before):len(before)], id), true), text)
		if !ok {
			return nil
		}
		if !strings.ContainsRune(more, utf8.RuneError) {
			return []byte(more)
		}
		piece, _ := t.Piece(id)
		if spelled := tokenizer.Spelled(piece); valid(string(spelled)) == valid(more) && !utf8.Valid(spelled) {
			return spelled
		}
		return nil
	}, nil
}

var broken = regexp.MustCompile("\uFFFD+")

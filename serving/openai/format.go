package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/text/constrain"
	"github.com/krait-ml/krait/text/tokenizer"
)

// readFormat reads response_format: text, JSON, or JSON of a schema.
func readFormat(p *params, raw json.RawMessage) *Error {
	var format map[string]json.RawMessage
	var kind string
	if json.Unmarshal(raw, &format) != nil || json.Unmarshal(format["type"], &kind) != nil {
		return bad("response_format", `it must be an object with a type, such as {"type": "json_object"}`)
	}
	for key := range format {
		if key != "type" && !(key == "json_schema" && kind == "json_schema") {
			return unknown("response_format."+short(key), "it is not supported with the type "+short(kind))
		}
	}
	switch kind {
	case "text":
	case "json_object":
		p.grammar = constrain.Object()
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
	if n := len(fields["schema"]); n > maxObject {
		return bad(at+".schema", "it has %d bytes; the limit is %d", n, maxObject)
	}
	var err error
	if p.grammar, err = constrain.Compile(fields["schema"]); err != nil {
		return bad(at+".schema", "%v", err)
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
	o.Mask, o.Accept = m.Mask, m.Accept
	return nil
}

// newVocabulary returns the bytes of the model's tokens as they follow other tokens. Special tokens
// and parts of a character have none, except in a vocabulary of bytes.
func (s *Server) newVocabulary() (*constrain.Vocabulary, error) {
	if _, ok := s.tokens.(tokenizer.Bytes); ok {
		return constrain.NewVocabulary(s.m.Vocab(), func(id int) []byte {
			if id > 255 {
				return nil
			}
			return []byte{byte(id)}
		})
	}
	before, err := s.tokens.Encode("a", false)
	if err != nil || len(before) == 0 {
		return nil, fmt.Errorf("the tokenizer encodes a letter as no token: %v", err)
	}
	text, eos := s.tokens.Decode(before, true), s.m.EOS()
	return constrain.NewVocabulary(s.m.Vocab(), func(id int) []byte {
		more, ok := strings.CutPrefix(s.tokens.Decode(append(before[:len(before):len(before)], id), true), text)
		if !ok || slices.Contains(eos, id) || strings.ContainsRune(more, utf8.RuneError) {
			return nil
		}
		return []byte(more)
	})
}

package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A template holds the special tokens around a text.
type template struct{ before, after []int }

var postProcessors = component[template]{
	field:    "processors",
	sequence: onlyTemplate,
	read: map[string]func(o *object) template{
		"BertProcessing":     readBert,
		"ByteLevel":          readOffsets,
		"RobertaProcessing":  func(o *object) template { readOffsets(o); return readBert(o) },
		"TemplateProcessing": readTemplate,
	},
}

func parsePostProcessor(raw json.RawMessage) (template, error) {
	if raw == nil {
		return template{}, nil
	}
	return postProcessors.parse("post_processor", raw, &chain{})
}

// wrap returns ids with the special tokens around them.
func (t template) wrap(ids []int) []int {
	return slices.Concat(t.before, ids, t.after)
}

// onlyTemplate returns the one of parts that adds tokens. With a second one
// the library stops, or takes the tokens of the first for texts.
func onlyTemplate(o *object, parts []template) (only template) {
	for _, t := range parts {
		if len(t.before)+len(t.after) == 0 {
			continue
		}
		if len(only.before)+len(only.after) > 0 {
			o.fail("has two processors that add tokens, which is not supported")
		}
		only = t
	}
	return only
}

// readOffsets reads options that do not change ids.
func readOffsets(o *object) template {
	o.ignore("add_prefix_space", "trim_offsets", "use_regex")
	return template{}
}

// readBert reads a token before and one after the text, as ["[CLS]", 101].
func readBert(o *object) template {
	read := func(name string) []int {
		var pair []json.RawMessage
		var id tokenID
		o.required(name, &pair)
		if o.err == nil && (len(pair) != 2 || json.Unmarshal(pair[1], &id) != nil) {
			o.failField(name, "it is not a token and its id")
		}
		return []int{int(id)}
	}
	return template{before: read("cls"), after: read("sep")}
}

// A templatePiece is the text or a special token; one of its fields is set.
type templatePiece struct {
	Sequence     *templateID
	SpecialToken *templateID
}

type templateID struct {
	ID string `json:"id"`
}

// readTemplate reads the template for a single text.
func readTemplate(o *object) (t template) {
	var pieces []templatePiece
	var special map[string]struct {
		IDs []tokenID `json:"ids"`
	}
	o.required("single", &pieces)
	o.required("special_tokens", &special)
	o.ignore("pair") // for two texts

	texts := 0
	for _, piece := range pieces {
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A":
			texts++
		case piece.SpecialToken != nil:
			token, ok := special[piece.SpecialToken.ID]
			if !ok {
				o.failField("single", "%q is not among its special_tokens", piece.SpecialToken.ID)
			}
			for _, id := range token.IDs {
				t.put(int(id), texts > 0)
			}
		default:
			o.failField("single", "a piece is neither the text A nor a special token")
		}
	}
	if texts != 1 {
		o.failField("single", "the text is there %d times (supported: once)", texts)
	}
	return t
}

func (t *template) put(id int, after bool) {
	if after {
		t.after = append(t.after, id)
	} else {
		t.before = append(t.before, id)
	}
}

// setBOS makes the template begin with a token, or not.
func (t *template) setBOS(id int, want bool) {
	has := len(t.before) > 0 && t.before[0] == id
	switch {
	case want && !has:
		t.before = slices.Insert(t.before, 0, id)
	case has && !want:
		t.before = t.before[1:]
	}
}

// setEOS makes the template end with a token, or not.
func (t *template) setEOS(id int, want bool) {
	last := len(t.after) - 1
	has := last >= 0 && t.after[last] == id
	switch {
	case want && !has:
		t.after = append(t.after, id)
	case has && !want:
		t.after = t.after[:last]
	}
}

// check reports a special token that the vocabulary lacks.
func (t template) check(pieces map[int]string) error {
	for _, id := range slices.Concat(t.before, t.after) {
		if _, ok := pieces[id]; !ok {
			return fmt.Errorf("post_processor uses id %d, which no token has", id)
		}
	}
	return nil
}

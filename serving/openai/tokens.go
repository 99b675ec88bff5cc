package openai

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/krait-ml/krait/chat"
	"github.com/krait-ml/krait/serving/internal/api"
)

// prompt is what a completion goes on from: a text, or token ids.
type prompt struct {
	text string
	ids  []int // nil: it is a text
}

// readPrompts reads a text, a list of texts, a list of ids, or a list of lists of ids.
func readPrompts(list *[]prompt, raw json.RawMessage) *Error {
	const what = "it must be a string, an array of strings, an array of token ids, or an array of such arrays"
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*list = []prompt{{text: text}}
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return bad("prompt", what)
	}
	if len(items) == 0 {
		return bad("prompt", "the array is empty")
	}
	if ids, ok := readIDs(raw); ok {
		*list = []prompt{{ids: ids}}
		return nil
	}
	for i, item := range items {
		var p prompt
		if ids, ok := readIDs(item); ok {
			p.ids = ids
		} else if string(item) == "null" || json.Unmarshal(item, &p.text) != nil {
			return bad("prompt", "element %d is %s; %s", i, short(string(item)), what)
		}
		*list = append(*list, p)
	}
	return nil
}

// readIDs reads an array of whole numbers; null is none.
func readIDs(raw json.RawMessage) ([]int, bool) {
	var list []*int
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return nil, false
	}
	ids := make([]int, len(list))
	for i, id := range list {
		if id == nil {
			return nil, false
		}
		ids[i] = *id
	}
	return ids, true
}

// encode makes token ids of a prompt.
func (s *Server) encode(p prompt) ([]int, *Error) {
	ids := p.ids
	if ids == nil {
		var err error
		if ids, err = s.tokens.Encode(p.text, true); err != nil {
			return nil, bad("prompt", "%v", err)
		}
	}
	if len(ids) == 0 {
		return nil, bad("prompt", "it has no tokens; there must be one to go on from")
	}
	if err := s.checkIDs("prompt", ids); err != nil {
		return nil, err
	}
	return ids, nil
}

func (s *Server) checkIDs(param string, ids []int) *Error {
	for i, id := range ids {
		if id < 0 || id >= s.m.Vocab() {
			return bad(param, "token %d is %d; ids of this model go from 0 to %d", i, id, s.m.Vocab()-1)
		}
	}
	return nil
}

type tokenizeRequest struct {
	model    string
	text     *string
	special  bool
	messages []chat.Message
	generate bool
}

// tokenize says which token ids a prompt has, or a conversation.
func (s *Server) tokenize(w *response, r *http.Request) error {
	q := &tokenizeRequest{special: true, generate: true}
	type at = *tokenizeRequest
	err := readBody(r, q, []field[at]{
		text("model", func(q at) *string { return &q.model }),
		value("prompt", "a string", func(q at) **string { return &q.text }, nil),
		truth("add_special_tokens", func(q at) *bool { return &q.special }),
		{"messages", func(q at, raw json.RawMessage) *Error { return readMessages(&q.messages, raw) }},
		truth("add_generation_prompt", func(q at) *bool { return &q.generate }),
	})
	if err != nil {
		return err
	}
	if err := s.checkModel(q.model); err != nil {
		return err
	}
	var ids []int
	switch {
	case (q.text == nil) == (q.messages == nil):
		return bad("prompt", "there must be a prompt or messages, and not both")
	case q.text != nil:
		if ids, err = s.tokens.Encode(*q.text, q.special); err != nil {
			return bad("prompt", "%v", err)
		}
	default:
		var wrong *Error
		if ids, wrong = s.render(q.messages, chat.Options{Generate: q.generate}); wrong != nil {
			return wrong
		}
	}
	if ids == nil {
		ids = []int{}
	}
	api.WriteJSON(w, http.StatusOK, tokenized{len(ids), ids})
	return nil
}

// detokenize says which text token ids have, special tokens included.
func (s *Server) detokenize(w *response, r *http.Request) error {
	type request struct {
		model string
		ids   []int
	}
	q := &request{}
	err := readBody(r, q, []field[*request]{
		text("model", func(q *request) *string { return &q.model }),
		{"tokens", func(q *request, raw json.RawMessage) *Error {
			ids, ok := readIDs(raw)
			if !ok {
				return bad("tokens", "it must be an array of token ids")
			}
			q.ids = ids
			return s.checkIDs("tokens", ids)
		}},
	})
	if err != nil {
		return err
	}
	if err := s.checkModel(q.model); err != nil {
		return err
	}
	if q.ids == nil {
		return bad("tokens", "it is not there")
	}
	api.WriteJSON(w, http.StatusOK, detokenized{s.tokens.Decode(q.ids, false)})
	return nil
}

// checkModel looks at the name of the model that a request is for; empty is any.
func (s *Server) checkModel(name string) *Error {
	if name == "" || name == s.o.Name {
		return nil
	}
	param := "model"
	e := coded(http.StatusNotFound, "invalid_request_error", "model_not_found", "model: this server has %s, and no %s", s.o.Name, fmt.Sprintf("%q", short(name)))
	e.Param = &param
	return e
}

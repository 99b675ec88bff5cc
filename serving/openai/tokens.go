package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/text/chat"
)

// prompt is the prompt of a completion: a text, or token ids.
type prompt struct {
	text string
	ids  []int // nil: a text
}

// readPrompts reads a text, an array of texts, an array of ids, or an array of arrays of ids: at
// most `most` prompts.
func readPrompts(list *[]prompt, raw json.RawMessage, most int) *Error {
	const what = "it must be a string, an array of strings, an array of token ids, or an array of such arrays"
	var text string
	switch {
	case begins(raw, '[') && !begins(raw[1:], ']'):
	case begins(raw, '['):
		return bad("prompt", "the array is empty")
	case json.Unmarshal(raw, &text) == nil:
		*list = []prompt{{text: text}}
		return nil
	default:
		return bad("prompt", what)
	}
	if ids, ok := readIDs(raw); ok {
		*list = []prompt{{ids: ids}}
		return nil
	}
	for item := range values(raw) {
		if len(*list) == most {
			return bad("prompt", "it has more than %d prompts, the limit of this server: send fewer", most)
		}
		var p prompt
		if ids, ok := readIDs(item); ok {
			p.ids = ids
		} else if string(item) == "null" || json.Unmarshal(item, &p.text) != nil {
			return bad("prompt", "element %d is %s; %s", len(*list), short(string(item)), what)
		}
		*list = append(*list, p)
	}
	return nil
}

// readIDs reads an array of whole numbers.
func readIDs(raw json.RawMessage) ([]int, bool) {
	if !begins(raw, '[') {
		return nil, false
	}
	ids := []int{}
	for item := range values(raw) {
		id, err := strconv.Atoi(string(item))
		if err != nil {
			return nil, false
		}
		if len(ids) == 0 {
			ids = make([]int, 0, bytes.Count(raw, []byte(","))+1)
		}
		ids = append(ids, id)
	}
	return ids, true
}

// leastTokens is a lower bound of the prompt's tokens.
func (p *prompt) leastTokens(s *Server) int {
	if p.ids != nil {
		return len(p.ids)
	}
	return s.leastTokens(len(p.text))
}

// encode returns the token ids of a prompt.
func (s *Server) encode(p prompt) ([]int, *Error) {
	ids := p.ids
	if ids == nil {
		var err error
		if ids, err = s.tokens.Encode(p.text, true); err != nil {
			return nil, bad("prompt", "%v", err)
		}
	}
	if len(ids) == 0 {
		return nil, bad("prompt", "it has no tokens; give at least one")
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
	tools    toolChoice
	generate bool
}

func tokenizeFields() []field[*tokenizeRequest] {
	type at = *tokenizeRequest
	return []field[at]{
		text("model", func(q at) *string { return &q.model }),
		value("prompt", "a string", func(q at) **string { return &q.text }, nil),
		value("content", "a string", func(q at) **string { return &q.text }, nil), // llama.cpp's name
		truth("add_special_tokens", func(q at) *bool { return &q.special }),
		{name: "messages", read: func(q at, raw json.RawMessage) *Error { return readMessages(&q.messages, new([]int), raw) }},
		{name: "tools", read: func(q at, raw json.RawMessage) *Error { return readTools(&q.tools, raw) }},
		truth("add_generation_prompt", func(q at) *bool { return &q.generate }),
	}
}

// tokenize answers /tokenize: the token ids of a prompt or a conversation.
func (s *Server) tokenize(w *response, r *http.Request) error {
	q := &tokenizeRequest{special: true, generate: true}
	if err := readBody(w, r, q, tokenizeFields()); err != nil {
		return err
	}
	if err := s.checkModel(q.model); err != nil {
		return err
	}
	if (q.text == nil) == (q.messages == nil) {
		return bad("prompt", "give either prompt or messages")
	}
	size := textSize(q.messages)
	if q.text != nil {
		size = len(*q.text)
	}
	correct, err := s.queue.Charge(w.tenant, s.leastTokens(size))
	if err != nil {
		return err
	}
	ids, wrong := s.tokenIDs(q)
	if wrong != nil {
		return wrong
	}
	correct(len(ids))
	w.leased(tokensJSON(ids, s.m.Vocab()))
	return nil
}

// tokenIDs encodes the prompt or the messages of a request.
func (s *Server) tokenIDs(q *tokenizeRequest) ([]int, *Error) {
	if q.text == nil {
		o := chat.Options{Generate: q.generate, Tools: q.tools.json()}
		_, ids, err := s.render(q.messages, o)
		return ids, err
	}
	ids, err := s.tokens.Encode(*q.text, q.special)
	if err != nil {
		return nil, bad("prompt", "%v", err)
	}
	return ids, nil
}

// tokensJSON returns the answer of /tokenize, in a buffer of the right size: there may be millions
// of ids, below vocab.
func tokensJSON(ids []int, vocab int) []byte {
	out := make([]byte, 0, 64+len(ids)*(1+len(strconv.Itoa(vocab))))
	out = fmt.Appendf(out, `{"count":%d,"tokens":[`, len(ids))
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(id), 10)
	}
	return append(out, "]}\n"...)
}

type detokenizeRequest struct {
	model string
	ids   []int
}

func (s *Server) detokenizeFields() []field[*detokenizeRequest] {
	type at = *detokenizeRequest
	return []field[at]{
		text("model", func(q at) *string { return &q.model }),
		{name: "tokens", read: func(q at, raw json.RawMessage) *Error {
			ids, ok := readIDs(raw)
			if !ok {
				return bad("tokens", "it must be an array of token ids")
			}
			q.ids = ids
			return s.checkIDs("tokens", ids)
		}},
	}
}

// detokenize answers /detokenize: the text of token ids, special tokens included.
func (s *Server) detokenize(w *response, r *http.Request) error {
	q := &detokenizeRequest{}
	if err := readBody(w, r, q, s.detokenizeFields()); err != nil {
		return err
	}
	if err := s.checkModel(q.model); err != nil {
		return err
	}
	if q.ids == nil {
		return bad("tokens", "it is missing")
	}
	if _, err := s.queue.Charge(w.tenant, len(q.ids)); err != nil {
		return err
	}
	text, wrong := s.decode(q.ids)
	if wrong != nil {
		return wrong
	}
	data, err := json.Marshal(textAnswer{text})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	w.leased(append(data, '\n'))
	return nil
}

// decode returns the text of ids, which may be as long as a body at most.
func (s *Server) decode(ids []int) (string, *Error) {
	var text strings.Builder
	stream := s.tokens.NewStream(false)
	for _, id := range ids {
		if text.WriteString(stream.Push(id)); int64(text.Len()) > s.o.Body {
			return "", bad("tokens", "their text is longer than %d bytes, the limit of this server: send fewer", s.o.Body)
		}
	}
	text.WriteString(stream.Flush())
	return text.String(), nil
}

// checkModel checks the model that a request names; empty: any.
func (s *Server) checkModel(name string) *Error {
	if name == "" || name == s.o.Name {
		return nil
	}
	param := "model"
	e := coded(http.StatusNotFound, "invalid_request_error", "model_not_found", "model: this server has %s, not %s", s.o.Name, fmt.Sprintf("%q", short(name)))
	e.Param = &param
	return e
}

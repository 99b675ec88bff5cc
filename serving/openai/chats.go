package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/krait-ml/krait/text/chat"
)

type chatRequest struct {
	params
	messages  []chat.Message
	variables map[string]any
	top       int
}

func chatFields() []field[*chatRequest] {
	type at = *chatRequest
	const tools = "tools are not supported"
	return append(append(common(func(q at) *params { return &q.params }), unsupported[at]()...),
		field[at]{"messages", func(q at, raw json.RawMessage) *Error { return readMessages(&q.messages, raw) }},
		whole("max_completion_tokens", 1, maxTokens, func(q at) *int { return &q.newMost }),
		truth("logprobs", func(q at) *bool { return &q.generate.LogProbs }),
		whole("top_logprobs", 0, maxTopLogProbs, func(q at) *int { return &q.top }),
		field[at]{"chat_template_kwargs", func(q at, raw json.RawMessage) *Error { return readVariables(&q.variables, raw) }},
		refused[at]("tools", tools, "[]"),
		refused[at]("tool_choice", tools, `"none"`, `"auto"`),
		refused[at]("parallel_tool_calls", tools, "true", "false"),
		refused[at]("functions", tools, "[]"),
		refused[at]("function_call", tools, `"none"`, `"auto"`),
		refused[at]("modalities", "models read and write text", `["text"]`),
		refused[at]("audio", "models read and write text"),
		refused[at]("prediction", "predicted outputs are not supported"),
		refused[at]("reasoning_effort", "use chat_template_kwargs if the model's chat template has such a switch"),
		refused[at]("verbosity", "ask for a length in a message"),
		refused[at]("web_search_options", "this server does not search the web"),
	)
}

// readVariables reads the variables of the chat template.
func readVariables(to *map[string]any, raw json.RawMessage) *Error {
	const name = "chat_template_kwargs"
	if len(raw) > maxObject {
		return bad(name, "it has %d bytes; the limit is %d", len(raw), maxObject)
	}
	return value(name, "an object", func(to *map[string]any) *map[string]any { return to }, nil).read(to, raw)
}

// readMessages reads a conversation.
func readMessages(list *[]chat.Message, raw json.RawMessage) *Error {
	const what = "it must be a non-empty array of messages such as {\"role\": \"user\", \"content\": \"Hello\"}"
	if !begins(raw, '[') || begins(raw[1:], ']') {
		return bad("messages", what)
	}
	for raw := range values(raw) {
		if len(*list) == maxMessages {
			return bad("messages", "it has more than %d messages, the limit of this server", maxMessages)
		}
		var item map[string]json.RawMessage
		if json.Unmarshal(raw, &item) != nil {
			return bad("messages", what)
		}
		m, err := readMessage(fmt.Sprintf("messages[%d]", len(*list)), item)
		if err != nil {
			return err
		}
		*list = append(*list, m)
	}
	return nil
}

func readMessage(at string, item map[string]json.RawMessage) (m chat.Message, err *Error) {
	for key, raw := range item {
		wrong := false
		switch key {
		case "role":
			wrong = json.Unmarshal(raw, &m.Role) != nil
		case "content":
			if m.Content, err = readContent(at+".content", raw); err != nil {
				return m, err
			}
		case "name":
			var name string
			wrong = json.Unmarshal(raw, &name) != nil
			m.Fields = map[string]any{"name": name}
		default:
			if string(raw) != "null" {
				return m, unknown(at+"."+short(key), "it is not supported: a message has role, content and name")
			}
		}
		if wrong {
			return m, bad(at+"."+key, "it must be a string, and is %s", short(string(raw)))
		}
	}
	if _, ok := item["content"]; !ok {
		return m, bad(at+".content", "it is missing")
	}
	switch m.Role {
	case "":
		return m, bad(at+".role", "it is missing; use system, user or assistant")
	case "developer": // a newer name
		m.Role = "system"
	}
	return m, nil
}

// readContent reads a text, or a list of parts that are texts.
func readContent(at string, raw json.RawMessage) (string, *Error) {
	var text *string
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return *text, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil || bytes.Equal(raw, []byte("null")) {
		return "", bad(at, "it must be a string, or an array of parts such as {\"type\": \"text\", \"text\": \"Hello\"}")
	}
	var all strings.Builder
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", bad(at, "part %d is not supported: models read text, {\"type\": \"text\", \"text\": …}", i)
		}
		all.WriteString(*p.Text)
	}
	return all.String(), nil
}

// textSize returns the bytes of the messages' texts.
func textSize(messages []chat.Message) (n int) {
	for _, m := range messages {
		n += len(m.Content)
	}
	return n
}

// render applies the chat template to a conversation, and encodes it.
func (s *Server) render(messages []chat.Message, o chat.Options) ([]int, *Error) {
	if s.chat == nil {
		return nil, badBody("the model's chat template cannot be used; use /v1/completions: %v", s.noChat)
	}
	o.Guard = s.guard
	prompt, err := s.chat.Render(messages, o)
	var ids []int
	if err == nil {
		ids, err = chat.Encode(s.tokens, prompt)
	}
	switch refused, is := errors.AsType[*chat.Refused](err); {
	case is:
		return nil, bad("messages", "the model's chat template rejects them: %s", refused.Message)
	case err != nil:
		return nil, bad("messages", "the chat template failed: %v", err)
	case len(ids) == 0:
		return nil, bad("messages", "the chat template makes an empty prompt of them")
	}
	return ids, s.checkIDs("messages", ids)
}

// chats answers /v1/chat/completions.
func (s *Server) chats(w *response, r *http.Request) error {
	q := &chatRequest{params: s.newParams()}
	if err := readBody(w, r, q, chatFields()); err != nil {
		return err
	}
	if err := q.check(s); err != nil {
		return err
	}
	switch {
	case q.messages == nil:
		return bad("messages", "it is missing")
	case q.top > 0 && !q.generate.LogProbs:
		return bad("top_logprobs", "set logprobs to true")
	}
	q.generate.TopLogProbs = q.top
	if q.most == 0 {
		q.most, q.clip = s.o.AnswerTokens, true
	}
	if err := s.queue.Check(w.tenant, s.leastTokens(textSize(q.messages))); err != nil {
		return err
	}
	ids, err := s.render(q.messages, chat.Options{Generate: true, Variables: q.variables})
	if err != nil {
		return err
	}
	q.messages = nil
	w.lease.end()
	return s.serve(w, r, &q.params, [][]int{ids}, &chatForm{s, s.head("chatcmpl-", "chat.completion")})
}

// chatForm formats texts as messages of the assistant.
type chatForm struct {
	s *Server
	head
}

func (f *chatForm) part(c *choice, p part) any {
	d := &chatDelta{}
	if p.first {
		d.Role = "assistant"
	}
	if p.first || p.text != "" {
		d.Content = &p.text
	}
	return chatChoice{Index: c.index, Delta: d, LogProbs: f.logProbs(c, p), Finish: p.finish}
}

func (f *chatForm) whole(c *choice, p part) any {
	return chatChoice{Index: c.index, Message: &chatMessage{Role: "assistant", Content: p.text}, LogProbs: f.logProbs(c, p), Finish: p.finish}
}

func (f *chatForm) heads() (part, whole head) {
	part, whole = f.head, f.head
	part.Object += ".chunk"
	return part, whole
}

func (f *chatForm) logProbs(c *choice, p part) *chatLogProbs {
	if !c.o.LogProbs {
		return nil
	}
	out := &chatLogProbs{Content: []chatToken{}}
	for _, p := range p.probs {
		t := chatToken{tokenProb: f.s.tokenProb(p.id, p.Chosen), Top: []tokenProb{}}
		for _, one := range p.Top {
			t.Top = append(t.Top, f.s.tokenProb(one.ID, one.LogProb))
		}
		out.Content = append(out.Content, t)
	}
	return out
}

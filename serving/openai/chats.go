package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/reply"
)

type chatRequest struct {
	params
	messages  []chat.Message
	cached    []int // numbers of messages after which the client marked a breakpoint of the prefix cache
	variables map[string]any
	top       int
	tools     toolChoice
	parallel  bool
	effort    string
	prompts   bool // the prompt ends with what an answer begins after
	continues bool // the answer continues the last message
}

func chatFields() []field[*chatRequest] {
	type at = *chatRequest
	const functions = "use tools, which replaced it"
	return append(append(common(func(q at) *params { return &q.params }), inert[at]()...),
		field[at]{name: "messages", read: func(q at, raw json.RawMessage) *Error { return readMessages(&q.messages, &q.cached, raw) }},
		whole("max_completion_tokens", 1, maxTokens, func(q at) *int { return &q.newMost }),
		truth("logprobs", func(q at) *bool { return &q.generate.LogProbs }),
		whole("top_logprobs", 0, maxTopLogProbs, func(q at) *int { return &q.top }),
		field[at]{name: "chat_template_kwargs", read: func(q at, raw json.RawMessage) *Error { return readVariables(&q.variables, raw) }},
		field[at]{name: "tools", read: func(q at, raw json.RawMessage) *Error { return readTools(&q.tools, raw) }},
		field[at]{name: "tool_choice", read: func(q at, raw json.RawMessage) *Error { return readToolChoice(&q.tools, raw) }},
		truth("parallel_tool_calls", func(q at) *bool { return &q.parallel }),
		text("reasoning_effort", func(q at) *string { return &q.effort }),
		truth("add_generation_prompt", func(q at) *bool { return &q.prompts }),
		truth("continue_final_message", func(q at) *bool { return &q.continues }),
		refused[at]("functions", functions, "[]"),
		refused[at]("function_call", functions, `"none"`, `"auto"`),
		refused[at]("modalities", "models read and write text", `["text"]`),
		refused[at]("audio", "models read and write text"),
		refused[at]("prediction", "predicted outputs are not supported"),
		refused[at]("verbosity", "ask for a length in a message"),
		refused[at]("web_search_options", "this server does not search the web"),
	)
}

// readVariables reads the variables of the chat template.
func readVariables(to *map[string]any, raw json.RawMessage) *Error {
	const name = "chat_template_kwargs"
	if err := small(name, raw); err != nil {
		return err
	}
	return value(name, "an object", func(to *map[string]any) *map[string]any { return to }, nil).read(to, raw)
}

// mostBreakpoints of a conversation, as other servers allow.
const mostBreakpoints = 4

// readMessages reads a conversation, and after how many messages there are breakpoints.
func readMessages(list *[]chat.Message, cached *[]int, raw json.RawMessage) *Error {
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
		if *list = append(*list, m); breaks(item) {
			*cached = append(*cached, len(*list))
		}
		if len(*cached) > mostBreakpoints {
			return bad("messages", "more than %d of them have cache_control; keep the last ones", mostBreakpoints)
		}
	}
	return nil
}

// breaks reports whether a message, or a part of its content, has cache_control.
func breaks(item map[string]json.RawMessage) bool {
	type part struct {
		Control json.RawMessage `json:"cache_control"`
	}
	var parts []part
	json.Unmarshal(item["content"], &parts) // a text has no parts
	return slices.ContainsFunc(append(parts, part{item["cache_control"]}), func(p part) bool {
		return p.Control != nil && string(p.Control) != "null"
	})
}

// hint says where the prefix cache should keep states of a conversation: after messages with
// cache_control, after the last message, and after the one before it.
func (s *Server) hint(q *chatRequest, o chat.Options, prompt string, tokens int) {
	if s.m.Session().PrefixCacheBytes() == 0 {
		return
	}
	o.Generate, o.Continue = false, false
	for _, n := range q.cached {
		if at, ok := s.endOf(q.messages[:n], o, prompt, tokens); ok {
			q.generate.Breakpoints = append(q.generate.Breakpoints, at)
		}
	}
	last := len(q.messages)
	end, ok := s.endOf(q.messages, o, prompt, tokens)
	if !ok {
		return
	}
	if last > 1 {
		if at, ok := s.endOf(q.messages[:last-1], o, prompt, tokens); ok {
			q.generate.Messages = append(q.generate.Messages, at)
		}
	}
	q.generate.Messages = append(q.generate.Messages, end)
}

// endOf returns the number of tokens that a prompt shares with the conversation of its first
// messages; a token that the end cuts may count or not. The template may reject a conversation that
// ends there.
func (s *Server) endOf(messages []chat.Message, o chat.Options, prompt string, tokens int) (n int, ok bool) {
	text, err := s.apply(messages, o)
	if err != nil {
		return 0, false
	}
	same := 0
	for same < min(len(text), len(prompt)) && text[same] == prompt[same] {
		same++
	}
	for same < len(prompt) && !utf8.RuneStart(prompt[same]) {
		same--
	}
	rest, err := chat.Encode(s.tokens, prompt[same:])
	return max(tokens-len(rest), 0), err == nil
}

func readMessage(at string, item map[string]json.RawMessage) (m chat.Message, err *Error) {
	m.Fields = map[string]any{}
	for key, raw := range item {
		if string(raw) == "null" {
			continue
		}
		switch key {
		case "role":
			if json.Unmarshal(raw, &m.Role) != nil {
				return m, bad(at+".role", "it must be a string, and is %s", short(string(raw)))
			}
		case "content":
			m.Content, err = readContent(at+".content", raw)
		case "tool_calls":
			m.Fields[key], err = readCalls(at+".tool_calls", raw)
		case "name", "tool_call_id", "reasoning_content":
			var text string
			if json.Unmarshal(raw, &text) != nil {
				return m, bad(at+"."+key, "it must be a string, and is %s", short(string(raw)))
			}
			m.Fields[key] = text
		case "cache_control": // see breaks
		case "refusal", "annotations": // of answers that are sent back
			if string(raw) != "[]" {
				err = bad(at+"."+key, "it is not supported")
			}
		default:
			err = unknown(at+"."+short(key), "it is not supported: a message has role, content, name, tool_calls, tool_call_id and reasoning_content")
		}
		if err != nil {
			return m, err
		}
	}
	content, calls := item["content"], m.Fields["tool_calls"]
	switch m.Role {
	case "":
		return m, bad(at+".role", "it is missing; use system, user, assistant or tool")
	case "developer": // a newer name
		m.Role = "system"
	}
	switch {
	case calls != nil && m.Role != "assistant":
		return m, bad(at+".tool_calls", "only messages of the assistant have calls")
	case calls == nil && (content == nil || string(content) == "null"):
		return m, bad(at+".content", "it is missing")
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
		if !slices.Contains([]string{"text", "input_text", "output_text"}, p.Type) || p.Text == nil { // the others of responses
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

// apply applies the chat template to a conversation.
func (s *Server) apply(messages []chat.Message, o chat.Options) (string, error) {
	if o.Guard = s.guard; o.Tools != nil {
		o.Template = s.talk.tools
	}
	return s.chat.Render(messages, o)
}

// render applies the chat template to a conversation, and encodes it.
func (s *Server) render(messages []chat.Message, o chat.Options) (prompt string, ids []int, _ *Error) {
	if s.chat == nil {
		return "", nil, badBody("the model's chat template cannot be used; use /v1/completions: %v", s.noChat)
	}
	prompt, err := s.apply(messages, o)
	if err == nil {
		ids, err = chat.Encode(s.tokens, prompt)
	}
	switch refused, is := errors.AsType[*chat.Refused](err); {
	case is:
		return "", nil, bad("messages", "the model's chat template rejects them: %s", refused.Message)
	case err != nil:
		return "", nil, bad("messages", "the chat template failed: %v", err)
	case len(ids) == 0:
		return "", nil, bad("messages", "the chat template makes an empty prompt of them")
	}
	return prompt, ids, s.checkIDs("messages", ids)
}

// chats answers /v1/chat/completions.
func (s *Server) chats(w *response, r *http.Request) error {
	q := &chatRequest{params: s.newParams(w.tenant), parallel: true, prompts: true}
	if err := readBody(w, r, q, chatFields()); err != nil {
		return err
	}
	ids, err := s.prompted(w, q)
	if err != nil {
		return err
	}
	return s.serve(w, r, &q.params, [][]int{ids}, listForm{&chatForm{s, s.head("chatcmpl-", "chat.completion")}, q.usage, q.usage && q.usages})
}

// prompted checks a chat, and makes its prompt. The request then has no more lease.
func (s *Server) prompted(w *response, q *chatRequest) ([]int, error) {
	q.generate.TopLogProbs = q.top
	if err := q.check(s); err != nil {
		return nil, err
	}
	if err := q.tools.check(); err != nil {
		return nil, err
	}
	switch {
	case q.messages == nil:
		return nil, bad("messages", "it is missing")
	case q.top > 0 && !q.generate.LogProbs:
		return nil, bad("top_logprobs", "set logprobs to true")
	case q.continues && q.prompts:
		return nil, bad("continue_final_message", "it requires add_generation_prompt to be false: nothing may come between the message and its continuation")
	}
	if q.most == 0 {
		q.most, q.clip = s.o.AnswerTokens, true
	}
	q.tools.single = q.tools.single || !q.parallel
	o := chat.Options{Generate: q.prompts, Continue: q.continues, Variables: q.variables, Tools: q.tools.json()}
	if q.effort != "" {
		if o.Variables == nil {
			o.Variables = map[string]any{}
		}
		if err := s.thinking(q.effort, o.Variables); err != nil {
			return nil, err
		}
	}
	may, err := s.answers(&q.tools)
	if err != nil {
		return nil, err
	}
	if err := s.queue.Check(w.tenant, s.leastTokens(textSize(q.messages)+len(o.Tools))); err != nil {
		return nil, err
	}
	prompt, ids, err := s.render(q.messages, o)
	if err != nil {
		return nil, err
	}
	thinks := strings.HasSuffix(strings.TrimRight(prompt, spaces), "<think>")
	if thinks && may != nil && may.Thoughts == reply.May {
		may.Thoughts = reply.Begun
	}
	if may != nil {
		if err := s.hold(&q.params, may); err != nil {
			return nil, err
		}
		if may.Format != nil {
			for _, name := range q.grammar.Loose {
				w.warn("function " + name + ": its parameters are not enforced and arguments may be any object; strict tells why")
			}
		}
	}
	whole := len(ids)
	if ids = q.shorten(ids); len(ids) == whole {
		s.hint(q, o, prompt, whole)
	}
	q.messages, q.tools = nil, toolChoice{}
	if err := q.checkEchoed([][]int{ids}); err != nil {
		return nil, err
	}
	w.lease.end()
	return ids, nil
}

// chatForm formats texts as messages of the assistant.
type chatForm struct {
	s *Server
	head
}

func (f *chatForm) part(c *choice, p part) any {
	d := &chatDelta{Reasoning: p.said.Reasoning}
	if c.parser != nil {
		d.ToolCalls = calls(c.parser.Format(), p.said.Calls, true)
	}
	if p.first {
		d.Role = "assistant"
	}
	if p.first || p.said.Content != "" {
		d.Content = content(p.said)
	}
	return chatChoice{Index: c.index, Delta: d, LogProbs: f.logProbs(c, p), Finish: p.finish, added: f.s.added(c, p)}
}

func (f *chatForm) whole(c *choice, p part) any {
	m := &chatMessage{Role: "assistant", Content: content(p.said), Reasoning: p.said.Reasoning}
	if c.parser != nil {
		m.ToolCalls = calls(c.parser.Format(), p.said.Calls, false)
	}
	return chatChoice{Index: c.index, Message: m, LogProbs: f.logProbs(c, p), Finish: p.finish, added: f.s.added(c, p)}
}

// content is what a message or delta says: null if it has something else, but no content.
func content(said reply.Output) json.RawMessage {
	if said.Content == "" && (len(said.Calls) > 0 || said.Reasoning != "") {
		return json.RawMessage("null")
	}
	data, err := json.Marshal(said.Content)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return data
}

func (f *chatForm) heads() (part, whole head) {
	part, whole = f.head, f.head
	part.Object += ".chunk"
	return part, whole
}

func (f *chatForm) logProbs(c *choice, p part) *chatLogProbs {
	if !c.o.LogProbs || c.extra.hidden {
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

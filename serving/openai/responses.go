package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/krait-ml/krait/text/chat"
)

// responsesRequest is a chat in the terms of /v1/responses. It keeps the parameters that the answer
// repeats as they came.
type responsesRequest struct {
	chatRequest
	instructions string
	input        bool // it was given
	echo         map[string]json.RawMessage
}

func responsesFields() []field[*responsesRequest] {
	type at = *responsesRequest
	shared := []string{"model", "user", "temperature", "top_p", "stream", "seed", "stop", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "ignore_eos"}
	var list []field[at]
	for _, f := range common(func(q at) *params { return &q.params }) {
		for _, name := range shared {
			if f.name == name {
				list = append(list, f)
			}
		}
	}
	const stored = "answers are not stored: send the conversation in input"
	return append(append(list, inert[at]()...),
		field[at]{name: "input", read: func(q at, raw json.RawMessage) *Error { q.input = true; return readInput(&q.messages, raw) }},
		text("instructions", func(q at) *string { return &q.instructions }),
		whole("max_output_tokens", 1, maxTokens, func(q at) *int { return &q.most }),
		field[at]{name: "tools", read: func(q at, raw json.RawMessage) *Error { return readFlatTools(&q.tools, raw) }},
		field[at]{name: "tool_choice", read: func(q at, raw json.RawMessage) *Error { return readToolChoice(&q.tools, raw) }},
		truth("parallel_tool_calls", func(q at) *bool { return &q.parallel }),
		field[at]{name: "text", read: func(q at, raw json.RawMessage) *Error { return readTextFormat(&q.params, raw) }},
		field[at]{name: "reasoning", read: func(q at, raw json.RawMessage) *Error { return readReasoning(&q.effort, raw) }},
		field[at]{name: "chat_template_kwargs", read: func(q at, raw json.RawMessage) *Error { return readVariables(&q.variables, raw) }},
		field[at]{name: "stream_options", read: func(q at, raw json.RawMessage) *Error { return readStreamOptions(&q.params, raw) }},
		refused[at]("previous_response_id", stored),
		refused[at]("conversation", stored),
		refused[at]("prompt", "this server has no stored prompts"),
		refused[at]("background", "answers are not stored", "false"),
		refused[at]("truncation", "this server does not cut prompts", `"disabled"`),
		refused[at]("include", "this server adds nothing to answers", "[]", `["reasoning.encrypted_content"]`),
		refused[at]("top_logprobs", "use /v1/chat/completions for log-probabilities", "0"),
		refused[at]("max_tool_calls", "it bounds tools that a server runs, and this one runs none"),
	)
}

// echoed are the parameters that an answer repeats, and their defaults.
var echoed = map[string]string{
	"instructions": "null", "max_output_tokens": "null", "metadata": "{}", "parallel_tool_calls": "true", "temperature": "1", "top_p": "1", "tool_choice": `"auto"`, "tools": "[]",
	"text": `{"format":{"type":"text"}}`, "reasoning": `{"effort":null,"summary":null}`, "user": "null", "previous_response_id": "null", "truncation": `"disabled"`, "background": "false",
}

// readFlatTools reads functions whose fields stand beside their type.
func readFlatTools(c *toolChoice, raw json.RawMessage) *Error {
	const what = `it must be an array of functions such as {"type": "function", "name": "f", "parameters": {"type": "object"}}`
	switch {
	case !begins(raw, '['):
		return bad("tools", what)
	case len(raw) > maxObject:
		return bad("tools", "it has %d bytes; the limit is %d", len(raw), maxObject)
	}
	for raw := range values(raw) {
		at := fmt.Sprintf("tools[%d]", len(c.list))
		if !begins(raw, '{') {
			return bad("tools", what)
		}
		var kind string
		var function bytes.Buffer
		for name, v := range members(raw) {
			if name == "type" {
				json.Unmarshal(v, &kind)
				continue
			}
			quoted, err := json.Marshal(name)
			if err != nil {
				panic("BUG: " + err.Error())
			}
			function.WriteString("{,"[min(function.Len(), 1):][:1] + string(quoted) + ":" + string(v))
		}
		if kind != "function" {
			return bad(at+".type", "it is %q; models call functions only", short(kind))
		}
		if function.Len() == 0 {
			function.WriteByte('{')
		}
		function.WriteByte('}')
		tool := json.RawMessage(`{"type":"function","function":` + function.String() + `}`)
		if err := c.add(at, function.Bytes(), tool); err != nil {
			return err
		}
	}
	return nil
}

// readTextFormat reads text.format, which is response_format with its fields beside the type.
func readTextFormat(p *params, raw json.RawMessage) *Error {
	const what = `it must be an object such as {"format": {"type": "text"}}`
	var options map[string]json.RawMessage
	if json.Unmarshal(raw, &options) != nil {
		return bad("text", what)
	}
	for key, v := range options {
		switch {
		case key == "verbosity" && (string(v) == "null" || string(v) == `"medium"`):
		case key == "verbosity":
			return bad("text.verbosity", "it is not supported: ask for a length in a message")
		case key != "format":
			return unknown("text."+short(key), "it is not supported: text has a format")
		}
	}
	if options["format"] == nil {
		return nil
	}
	var format map[string]json.RawMessage
	var kind string
	if json.Unmarshal(options["format"], &format) != nil || json.Unmarshal(format["type"], &kind) != nil {
		return bad("text.format", what)
	}
	if kind != "json_schema" {
		return readFormat(p, options["format"])
	}
	delete(format, "type")
	flat, err := json.Marshal(format)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return readSchema(p, flat)
}

// readReasoning reads the effort. Summaries are not made.
func readReasoning(effort *string, raw json.RawMessage) *Error {
	var r struct{ Effort, Summary *string }
	if !begins(raw, '{') || json.Unmarshal(raw, &r) != nil {
		return bad("reasoning", `it must be an object such as {"effort": "none"}`)
	}
	if r.Effort != nil {
		*effort = *r.Effort
	}
	return nil
}

// readInput reads a text, or the items of a conversation.
func readInput(list *[]chat.Message, raw json.RawMessage) *Error {
	const what = `it must be a string, or a non-empty array of items such as {"role": "user", "content": "Hello"}`
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*list = append(*list, chat.Message{Role: "user", Content: text})
		return nil
	}
	if !begins(raw, '[') || begins(raw[1:], ']') {
		return bad("input", what)
	}
	in := inputs{list: list}
	for raw := range values(raw) {
		at := fmt.Sprintf("input[%d]", in.items)
		if in.items++; in.items > maxMessages {
			return bad("input", "it has more than %d items, the limit of this server", maxMessages)
		}
		var item map[string]json.RawMessage
		var kind string
		if json.Unmarshal(raw, &item) != nil || item["type"] != nil && json.Unmarshal(item["type"], &kind) != nil {
			return bad("input", what)
		}
		if err := in.add(at, kind, item); err != nil {
			return err
		}
	}
	return nil
}

// inputs turns items into messages: calls and thoughts are parts of messages there.
type inputs struct {
	list  *[]chat.Message
	items int
	think string
}

func (in *inputs) add(at, kind string, item map[string]json.RawMessage) *Error {
	var wrong *Error
	text := func(key string) (s string) {
		if raw := item[key]; raw != nil && json.Unmarshal(raw, &s) != nil {
			wrong = bad(at+"."+key, "it is %s; it must be a string", short(string(raw)))
		}
		return s
	}
	var m map[string]json.RawMessage
	quote := func(s string) json.RawMessage { data, _ := json.Marshal(s); return data }
	switch kind {
	case "", "message":
		m = map[string]json.RawMessage{"role": item["role"], "content": item["content"]}
	case "function_call":
		call := fmt.Sprintf(`[{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}]`, quote(text("call_id")), quote(text("name")), quote(text("arguments")))
		m = map[string]json.RawMessage{"role": quote("assistant"), "tool_calls": json.RawMessage(call)}
	case "function_call_output":
		m = map[string]json.RawMessage{"role": quote("tool"), "tool_call_id": quote(text("call_id")), "content": item["output"]}
	case "reasoning":
		var parts []struct{ Text string }
		if raw := item["content"]; raw != nil && json.Unmarshal(raw, &parts) != nil {
			return bad(at+".content", `it must be an array of parts such as {"type": "reasoning_text", "text": "…"}`)
		}
		for _, p := range parts {
			in.think += p.Text
		}
		return nil
	case "item_reference":
		return bad(at+".type", "it is item_reference, and answers are not stored; send the items themselves, which clients do with store false")
	default:
		return bad(at+".type", "it is %q; it must be message, function_call, function_call_output or reasoning", short(kind))
	}
	if wrong != nil {
		return wrong
	}
	for key, raw := range m {
		if raw == nil {
			delete(m, key)
		}
	}
	message, err := readMessage(at, m)
	if err != nil {
		return err
	}
	in.join(message, kind == "function_call")
	return nil
}

// join adds a message, or calls to the message before. Thoughts belong to the assistant's message
// that follows them, or to the one that its calls join.
func (in *inputs) join(m chat.Message, call bool) {
	if n := len(*in.list); call && n > 0 && (*in.list)[n-1].Role == "assistant" {
		last := (*in.list)[n-1]
		before, _ := last.Fields["tool_calls"].([]any)
		last.Fields["tool_calls"] = append(before, m.Fields["tool_calls"].([]any)...)
		m = last
	} else {
		*in.list = append(*in.list, m)
	}
	if m.Role == "assistant" && in.think != "" {
		before, _ := m.Fields["reasoning_content"].(string)
		m.Fields["reasoning_content"] = before + in.think
	}
	in.think = ""
}

// responses answers /v1/responses.
func (s *Server) responses(w *response, r *http.Request) error {
	q := &responsesRequest{chatRequest: chatRequest{params: s.newParams(w.tenant), parallel: true, prompts: true}, echo: map[string]json.RawMessage{}}
	fields := responsesFields()
	for i, f := range fields {
		if _, is := echoed[f.name]; is {
			fields[i].read = func(q *responsesRequest, raw json.RawMessage) *Error {
				q.echo[f.name] = bytes.Clone(raw)
				return f.read(q, raw)
			}
		}
	}
	if err := readBody(w, r, q, fields); err != nil {
		return err
	}
	if !q.input {
		return bad("input", "it is missing")
	}
	if strings.TrimSpace(q.instructions) != "" {
		q.messages = append([]chat.Message{{Role: "system", Content: q.instructions, Fields: map[string]any{}}}, q.messages...)
	}
	ids, err := s.prompted(w, &q.chatRequest)
	if err != nil {
		return err
	}
	return s.serve(w, r, &q.params, [][]int{ids}, s.newResponse(q))
}

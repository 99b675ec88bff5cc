package openai

import (
	"encoding/json"
	"maps"

	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/text/reply"
)

// responseForm formats the one choice of /v1/responses: items, and events about them.
type responseForm struct {
	head     map[string]any // of the response
	items    []map[string]any
	open     string // type of the last item, while it goes on; empty: none
	text     string // of it, as far as it has come
	events   *events
	sequence int
	reason   string // finish_reason
}

// newResponse begins the answer to a request.
func (s *Server) newResponse(q *responsesRequest) *responseForm {
	h := s.head("resp_", "response")
	f := &responseForm{head: map[string]any{"id": h.ID, "object": h.Object, "created_at": h.Created, "model": h.Model, "store": false, "service_tier": "default", "error": nil, "incomplete_details": nil}}
	for name, otherwise := range echoed {
		f.head[name] = json.RawMessage(otherwise)
		if raw := q.echo[name]; raw != nil {
			f.head[name] = raw
		}
	}
	return f
}

// state is the response so far.
func (f *responseForm) state(status string, u *usage) map[string]any {
	out := maps.Clone(f.head)
	out["status"], out["output"], out["usage"] = status, append([]map[string]any{}, f.items...), nil
	if status == "incomplete" {
		out["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if u != nil {
		out["usage"] = map[string]any{"input_tokens": u.Prompt, "input_tokens_details": map[string]any{"cached_tokens": u.Details.Cached},
			"output_tokens": u.Completion, "total_tokens": u.Total}
	}
	return out
}

// status is how the response ends.
func (f *responseForm) status() string {
	if f.reason == "length" {
		return "incomplete"
	}
	return "completed"
}

// event sends an event if the answer is streamed.
func (f *responseForm) event(kind string, fields map[string]any) {
	if f.events == nil {
		return
	}
	fields["type"], fields["sequence_number"] = kind, f.sequence
	f.sequence++
	f.events.send(kind, fields) // an error stays in events
}

// itemEvent sends an event about the last item.
func (f *responseForm) itemEvent(kind string, fields map[string]any) {
	item := f.items[len(f.items)-1]
	fields["output_index"] = len(f.items) - 1
	if fields["item"] == nil {
		fields["item_id"] = item["id"]
	}
	f.event(kind, fields)
}

// The types of items.
const (
	reasoningItem = "reasoning"
	messageItem   = "message"
	callItem      = "function_call"
)

// begin begins an item.
func (f *responseForm) begin(kind string, item map[string]any) {
	f.close("completed")
	f.open, f.text = kind, ""
	item["type"] = kind
	if kind != reasoningItem {
		item["status"] = "in_progress"
	}
	f.items = append(f.items, item)
	f.itemEvent("response.output_item.added", map[string]any{"item": maps.Clone(item)})
	if kind != callItem {
		f.itemEvent("response.content_part.added", map[string]any{"content_index": 0, "part": partOf(kind, "")})
	}
}

// partOf is the content of a message or of a thought.
func partOf(kind, text string) map[string]any {
	if kind == reasoningItem {
		return map[string]any{"type": "reasoning_text", "text": text}
	}
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

// close ends the item that is open.
func (f *responseForm) close(status string) {
	if f.open == "" {
		return
	}
	item := f.items[len(f.items)-1]
	part := partOf(f.open, f.text)
	switch f.open {
	case reasoningItem:
		f.itemEvent("response.reasoning_text.done", map[string]any{"content_index": 0, "text": f.text})
	case messageItem:
		f.itemEvent("response.output_text.done", map[string]any{"content_index": 0, "text": f.text, "logprobs": []any{}})
	case callItem:
		item["arguments"] = f.text
		f.itemEvent("response.function_call_arguments.done", map[string]any{"arguments": f.text, "name": item["name"]})
	}
	if f.open != callItem {
		item["content"] = []any{part}
		f.itemEvent("response.content_part.done", map[string]any{"content_index": 0, "part": part})
	}
	if f.open != reasoningItem {
		item["status"] = status
	}
	f.itemEvent("response.output_item.done", map[string]any{"item": maps.Clone(item)})
	f.open = ""
}

// add adds what the model wrote.
func (f *responseForm) add(c *choice, out reply.Output) {
	more := func(event, delta string, fields map[string]any) {
		f.text += delta
		fields["delta"] = delta
		f.itemEvent(event, fields)
	}
	if out.Reasoning != "" {
		if f.open != reasoningItem {
			f.begin(reasoningItem, map[string]any{"id": api.NewID("rs_"), "summary": []any{}, "content": []any{}})
		}
		more("response.reasoning_text.delta", out.Reasoning, map[string]any{"content_index": 0})
	}
	if out.Content != "" {
		if f.open != messageItem {
			f.begin(messageItem, map[string]any{"id": api.NewID("msg_"), "role": "assistant", "content": []any{}})
		}
		more("response.output_text.delta", out.Content, map[string]any{"content_index": 0, "logprobs": []any{}})
	}
	for _, d := range out.Calls {
		if d.Name != "" {
			f.begin(callItem, map[string]any{"id": api.NewID("fc_"), "call_id": c.parser.Format().NewID(api.NewID("")), "name": d.Name, "arguments": ""})
		}
		if d.Arguments != "" {
			more("response.function_call_arguments.delta", d.Arguments, map[string]any{})
		}
	}
}

func (f *responseForm) send(e *events, c *choice, p part) error {
	if f.events = e; p.first {
		f.event("response.created", map[string]any{"response": f.state("in_progress", nil)})
		f.event("response.in_progress", map[string]any{"response": f.state("in_progress", nil)})
	}
	f.add(c, p.said)
	f.finish(p.finish)
	return e.failed()
}

// finish closes the last item at the end of the text.
func (f *responseForm) finish(reason *string) {
	if reason == nil {
		return
	}
	if len(f.items) == 0 { // an answer has at least one
		f.begin(messageItem, map[string]any{"id": api.NewID("msg_"), "role": "assistant", "content": []any{}})
	}
	f.reason = *reason
	f.close(f.status())
}

func (f *responseForm) end(e *events, u *usage) error {
	f.event("response."+f.status(), map[string]any{"response": f.state(f.status(), u)})
	return e.failed()
}

func (f *responseForm) fail(e *events, err *Error) {
	f.event("error", map[string]any{"code": err.Code, "message": err.Message, "param": err.Param})
}

func (f *responseForm) whole(list []*choice, parts []part, u *usage) any {
	f.add(list[0], parts[0].said)
	f.finish(parts[0].finish)
	return f.state(f.status(), u)
}

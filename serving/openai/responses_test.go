package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/serving/openai"
)

// response is an answer of /v1/responses.
type response struct {
	Object, Status, Model string
	Store                 *bool
	Temperature           float64
	Incomplete            *struct{ Reason string } `json:"incomplete_details"`
	Output                []struct {
		Type, Status, Name, Arguments, Role string
		Call                                string `json:"call_id"`
		Content                             []struct{ Type, Text string }
	}
	Usage *struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
}

// respond asks for a response, whole and streamed, which must be the same, and returns the events.
func respond(t *testing.T, url, body string) (whole response, events []string) {
	t.Helper()
	get := func(body string) string {
		r, err := http.Post(url+"/v1/responses", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text := readAll(t, r.Body)
		if r.StatusCode != 200 {
			t.Fatalf("%s: %d %s", body, r.StatusCode, text)
		}
		return text
	}
	if err := json.Unmarshal([]byte(get("{"+body+"}")), &whole); err != nil {
		t.Fatal(err)
	}
	var last response
	deltas := map[int]string{}
	for i, event := range strings.Split(strings.TrimSuffix(get("{"+body+`, "stream": true}`), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		var e struct {
			Type, Delta string
			Number      int `json:"sequence_number"`
			Output      int `json:"output_index"`
			Response    response
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || !ok || e.Type != name || e.Number != i {
			t.Fatalf("event %d: %s", i, event)
		}
		deltas[e.Output] += e.Delta
		last = e.Response
		if name = strings.TrimPrefix(name, "response."); len(events) == 0 || events[len(events)-1] != name {
			events = append(events, name)
		}
	}
	for i := range whole.Output { // identifiers are random
		o := &whole.Output[i]
		if o.Type == "function_call" {
			if o.Call == "" || i >= len(last.Output) || last.Output[i].Call == "" {
				t.Errorf("call %d has no identifier", i)
			}
			o.Call, last.Output[i].Call = "", ""
		}
		text := o.Arguments
		for _, c := range o.Content {
			text += c.Text
		}
		if deltas[i] != text {
			t.Errorf("%s: item %d is %q, its deltas %q", body, i, text, deltas[i])
		}
	}
	if !reflect.DeepEqual(whole, last) || whole.Store == nil || *whole.Store || whole.Object != "response" {
		t.Errorf("%s: whole %+v\nstreamed %+v", body, whole, last)
	}
	return whole, events
}

// TestResponses: texts, thoughts, calls and JSON are items, with events as OpenAI streams them.
func TestResponses(t *testing.T) {
	const tools = `"tools": [{"type": "function", "name": "get_weather", "description": "d", "strict": true, "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"], "additionalProperties": false}}]`
	call := "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"
	h := play(t, actor{"<think>\nLet me see.\n</think>\n\nOne moment." + call, thinker(false), nil}, openai.Options{})
	got, events := respond(t, h.URL, `"input": "Hi", "temperature": 0, "store": true, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]}, `+tools)
	if want := strings.Fields(`created in_progress output_item.added content_part.added reasoning_text.delta reasoning_text.done content_part.done output_item.done output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done
		output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed`); !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	if o := got.Output; len(o) != 3 || got.Status != "completed" || o[0].Type != "reasoning" || o[0].Content[0].Text != "Let me see." || o[1].Role != "assistant" || o[1].Content[0].Text != "One moment." ||
		o[2].Name != "get_weather" || o[2].Arguments != `{"city": "Rome"}` || o[2].Status != "completed" || got.Usage.Output == 0 || got.Temperature != 0 {
		t.Errorf("%+v", got)
	}
	for _, o := range []string{`"none"`, `{"type": "function", "name": "get_weather"}`} {
		got, _ := respond(t, h.URL, `"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], "temperature": 0, "tool_choice": `+o+`, `+tools)
		if last := got.Output[len(got.Output)-1].Type; (last == "function_call") != (o != `"none"`) {
			t.Errorf("%s: %+v", o, got)
		}
	}
	h = play(t, actor{"{\"a\": 12345678}", chatting("<tool_call>"), nil}, openai.Options{})
	got, _ = respond(t, h.URL, `"input": "Hi", "instructions": "Be brief.", "temperature": 0, "reasoning": {"effort": null}, "text": {"format": {"type": "json_schema", "name": "a", "strict": true, "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}}}`)
	if got.Output[0].Content[0].Text != `{"a": 12345678}` {
		t.Errorf("%+v", got)
	}
	got, events = respond(t, h.URL, `"input": "Hi", "temperature": 0, "max_output_tokens": 3`)
	if got.Status != "incomplete" || got.Incomplete.Reason != "max_output_tokens" || got.Output[0].Status != "incomplete" || events[len(events)-1] != "incomplete" {
		t.Errorf("%+v %q", got, events)
	}
	// A conversation with calls is the prompt that the chat of the same messages has.
	status, text := post(t, h, "/v1/responses", `{"input": [{"type": "message", "role": "user", "content": "Hi"}, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
		{"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "One.", "annotations": []}]},
		{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}, {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "c1", "output": "x"}, {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "y"}]}]}`)
	var r response
	if err := json.Unmarshal([]byte(text), &r); status != 200 || err != nil {
		t.Fatalf("%d %s", status, text)
	}
	same := ask(t, h, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "One.", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}, {"id": "c2", "function": {"name": "g", "arguments": {}}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "x"}, {"role": "tool", "tool_call_id": "c2", "content": "y"}]}`)
	if r.Usage.Input != same.Usage.Prompt {
		t.Errorf("a prompt of %d tokens, and of %d in a chat", r.Usage.Input, same.Usage.Prompt)
	}
	for body, param := range map[string]string{
		`"input": "a", "model": "tiny"`: "model", ``: "input", `"input": []`: "input", `"input": [{"type": "item_reference", "id": "a"}]`: "input[0].type", `"input": "a", "previous_response_id": "resp_1"`: "previous_response_id", `"input": "a", "conversation": "c"`: "conversation",
		`"input": "a", "background": true`: "background", `"input": "a", "tools": [{"type": "web_search"}]`: "tools[0].type", `"input": "a", "include": ["x"]`: "include", `"input": "a", "text": {"format": {"type": "xml"}}`: "response_format.type",
		`"input": [{"type": "function_call", "call_id": 1, "name": "f", "arguments": "{}"}]`: "input[0].call_id", `"input": [{"type": "reasoning", "content": "x"}]`: "input[0].content",
		`"input": [{"role": "user", "content": [{"type": "input_image"}]}]`: "input[0].content", `"input": "a", "reasoning": 1`: "reasoning", `"input": "a", "max_output_tokens": 0`: "max_output_tokens",
	} {
		status, text := post(t, h, "/v1/responses", "{"+body+"}")
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil || a.Error == nil || status/100 != 4 || a.Error.Param != param {
			t.Errorf("%s: %d %s, want %s", body, status, text, param)
		}
	}
}

// TestNoKey: without a key every path but the open ones is 401, whether it is built or not.
func TestNoKey(t *testing.T) {
	_, h, _ := server(t, openai.Options{Keys: keysOf(t, "ann")}, 1)
	for _, path := range []string{"/v1/responses", "/v1/models", "/v1/models/tiny-mamba", "/v1/models/x", "/version", "/openapi.json", "/v1/embeddings", "/v1/files/a"} {
		for _, method := range []string{"GET", "POST"} {
			r, err := http.NewRequest(method, h.URL+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			a.Body.Close()
			if a.StatusCode != 401 {
				t.Errorf("%s %s: %d", method, path, a.StatusCode)
			}
		}
	}
}

// TestPaths: the model and the version have paths; those of OpenAI's API that are not built say so.
func TestPaths(t *testing.T) {
	_, h, _ := server(t, openai.Options{Name: "org/tiny"}, 1)
	for path, want := range map[string]string{
		"/v1/models/org/tiny": `200 "id":"org/tiny"`, "/v1/models/org%2Ftiny": `200 "id":"org/tiny"`, "/v1/models/other": "404 model_not_found", "/version": `200 {"version":"`, "/v1/models/": "404 unknown_url",
		"/v1/embeddings": "501 not_implemented", "/v1/files/a/content": "501 not_implemented", "/v1/audio/speech": "501 models read and write text", "/v1/batches": "501 batches are not stored", "/v1/images/generations": "501 not_implemented",
		"/v1/responses/resp_1": "501 answers are not stored", "/v1/filesystem": "404 unknown_url", "/v2": "404 unknown_url",
	} {
		r, err := http.Get(h.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text := readAll(t, r.Body)
		r.Body.Close()
		if status, part, _ := strings.Cut(want, " "); fmt.Sprint(r.StatusCode) != status || !strings.Contains(text, part) {
			t.Errorf("%s: %d %s, want %s", path, r.StatusCode, text, want)
		}
	}
}

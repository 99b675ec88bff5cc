package openai_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// FuzzBodies: whatever a body says, there is an answer, or an error in the API's shape that is the
// client's; and the server has nothing left to do.
func FuzzBodies(f *testing.F) {
	m := actor{"Fine.", thinker(false), nil}.open(f, krait.Options{Slots: 2, PrefixCache: 1 << 20})
	f.Cleanup(func() { m.Close() })
	s, err := openai.New(m, openai.Options{Queue: openai.Queue{Requests: 4, Tokens: 300}, Body: 4 << 10})
	if err != nil {
		f.Fatal(err)
	}
	paths := []string{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/responses"}
	for i, body := range []string{
		`{"prompt": "In the", "max_tokens": 4, "temperature": 0.5, "seed": 3, "n": 2, "logprobs": 2, "echo": true, "stop": ["a", "b"]}`,
		`{"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]}], "max_tokens": 3, "logprobs": true, "top_logprobs": 2}`,
		`{"prompt": [[1, 2], [3]], "max_tokens": 2, "stream": true, "stream_options": {"include_usage": true}, "logit_bias": {"5": -100}}`,
		`{"prompt": "a", "max_tokens": 9, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "items": {"$ref": "#"}}}}}`,
		`{"prompt": "abc"}`, `{"tokens": [1, 2]}`, `{"prompt": null, "n": 1e9}`, `[[[[`, `{"prompt": "\ud800"}`, `{"messages": [{"role": "user"}], "tools": [{}]}`,
		`{"input": [{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "a", "output": "x"}], "max_output_tokens": 2, "tools": [{"type": "function", "name": "f"}]}`,
		`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}], "max_tokens": 9, "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "stream": true}`,
		`{"messages": [{"role": "assistant", "content": "a"}], "add_generation_prompt": false, "continue_final_message": true, "max_tokens": 3, "min_tokens": 2, "stop_token_ids": [5], "prompt_logprobs": 1, "return_token_ids": true, "timings": true, "truncate_prompt_tokens": 2}`,
	} {
		f.Add(i, body)
	}
	f.Fuzz(func(t *testing.T, which int, body string) {
		path := paths[(which%len(paths)+len(paths))%len(paths)]
		w, q := httptest.NewRecorder(), httptest.NewRequest("POST", path, strings.NewReader(body))
		q.Header.Set("Content-Type", "application/json")
		s.ServeHTTP(w, q)
		text := w.Body.String()
		switch {
		case w.Code == 200 && strings.HasPrefix(text, "data: "):
			if !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("%s %q: a stream ends with %q", path, body, text[max(0, len(text)-200):])
			}
		case w.Code == 200 && strings.HasPrefix(text, "event: "):
			if !strings.Contains(text, "event: response.completed\n") && !strings.Contains(text, "event: response.incomplete\n") {
				t.Errorf("%s %q: the stream %q", path, body, text)
			}
		case w.Code == 200:
			if !json.Valid([]byte(text)) {
				t.Errorf("%s %q: %q", path, body, text)
			}
		default:
			var e struct {
				Error struct{ Message, Type string }
			}
			if w.Code < 400 || w.Code >= 500 || json.Unmarshal([]byte(text), &e) != nil || e.Error.Message == "" || e.Error.Type != "invalid_request_error" {
				t.Errorf("%s %q: %d %q", path, body, w.Code, text)
			}
		}
		if l := s.Load(); l != (openai.Load{}) {
			t.Errorf("%s %q: it has still %+v to do", path, body, l)
		}
	})
}

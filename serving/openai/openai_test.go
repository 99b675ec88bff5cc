package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// server serves the embedded model.
func server(t *testing.T, o openai.Options, slots int) (*openai.Server, *httptest.Server, *krait.Model) {
	t.Helper()
	return serverOf(t, o, krait.Options{Slots: slots, PrefixCache: 64 << 20})
}

func serverOf(t *testing.T, o openai.Options, from krait.Options) (*openai.Server, *httptest.Server, *krait.Model) {
	t.Helper()
	m, err := krait.Embedded(from)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openai.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, h, m
}

// post sends a body, and returns the status and the answer's text.
func post(t *testing.T, h *httptest.Server, path, body string) (int, string) {
	t.Helper()
	r, err := http.Post(h.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return r.StatusCode, string(data)
}

type answer struct {
	Object  string
	Choices []struct {
		Index   int
		Text    string
		Message struct{ Role, Content string }
		Delta   struct {
			Role    string
			Content *string
		}
		LogProbs json.RawMessage
		Finish   *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct{ Message, Type, Param, Code string }
}

// ask is post of what must succeed.
func ask(t *testing.T, h *httptest.Server, path, body string) (a answer) {
	t.Helper()
	status, text := post(t, h, path, body)
	if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil {
		t.Fatalf("%s: %d %s %v", body, status, text, err)
	}
	return a
}

// stream joins the parts of a stream, choice by choice, and looks at how it ends.
func stream(t *testing.T, h *httptest.Server, path, body string) (texts map[int]string, ends map[int]string, probs map[int][]json.RawMessage, last answer) {
	t.Helper()
	status, all := post(t, h, path, body)
	texts, ends, probs = map[int]string{}, map[int]string{}, map[int][]json.RawMessage{}
	events := strings.Split(strings.TrimSuffix(all, "\n\n"), "\n\n")
	if status != 200 || events[len(events)-1] != "data: [DONE]" {
		t.Fatalf("%s: %d %s", body, status, all)
	}
	for _, e := range events[:len(events)-1] {
		var a answer
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &a); err != nil || a.Error != nil {
			t.Fatalf("%q: %v", e, err)
		}
		for _, c := range a.Choices {
			if ends[c.Index] != "" {
				t.Errorf("choice %d goes on after its end: %s", c.Index, e)
			}
			if _, begun := texts[c.Index]; strings.Contains(path, "chat") && (c.Delta.Role == "assistant") == begun {
				t.Errorf("the role is not in the first part: %s", e)
			}
			texts[c.Index] += c.Text
			if c.Delta.Content != nil {
				texts[c.Index] += *c.Delta.Content
			}
			if c.Finish != nil {
				ends[c.Index] = *c.Finish
			}
			if len(c.LogProbs) > 0 {
				probs[c.Index] = append(probs[c.Index], c.LogProbs)
			}
		}
		last = a
	}
	return texts, ends, probs, last
}

const genesis = "In the beginning God created the heaven and the earth."

// TestEqualsGenerate: each parameter does what it does in krait.Generate, and leaves no other text.
func TestEqualsGenerate(t *testing.T) {
	_, h, m := server(t, openai.Options{}, 4)
	texts := map[string]string{}
	for _, c := range []struct {
		body string
		o    krait.Generate
	}{
		{`"temperature": 0`, krait.Generate{}},
		{`"seed": 7`, krait.Generate{Temperature: 1, Seed: 7}},
		{`"seed": -1`, krait.Generate{Temperature: 1, Seed: 1<<64 - 1}},
		{`"seed": 7, "temperature": 1.5`, krait.Generate{Temperature: 1.5, Seed: 7}},
		{`"seed": 7, "temperature": 1.5, "top_k": 2`, krait.Generate{Temperature: 1.5, Seed: 7, TopK: 2}},
		{`"seed": 7, "temperature": 1.5, "top_k": -1, "top_p": 0.5`, krait.Generate{Temperature: 1.5, Seed: 7, TopP: 0.5}},
		{`"seed": 7, "temperature": 1.5, "min_p": 0.3`, krait.Generate{Temperature: 1.5, Seed: 7, MinP: 0.3}},
		{`"temperature": 0, "presence_penalty": 2`, krait.Generate{PresencePenalty: 2}},
		{`"temperature": 0, "frequency_penalty": 1.5`, krait.Generate{FrequencyPenalty: 1.5}},
		{`"temperature": 0, "repetition_penalty": 1.7`, krait.Generate{RepetitionPenalty: 1.7}},
		{`"temperature": 0, "logit_bias": {"101": -100}`, krait.Generate{LogitBias: map[int]float64{101: -100}}},
		{`"temperature": 0, "stop": "the"`, krait.Generate{Stop: []string{"the"}}},
		{`"temperature": 0, "stop": ["zzz", "h"]`, krait.Generate{Stop: []string{"zzz", "h"}}},
		{`"temperature": 0, "max_tokens": 3`, krait.Generate{MaxTokens: 3}},
	} {
		body := c.body
		if c.o.MaxTokens == 0 {
			body += `, "max_tokens": 24`
			c.o.MaxTokens = 24
		}
		body += fmt.Sprintf(`, "prompt": %q`, genesis)
		want, err := m.Generate(t.Context(), genesis, c.o)
		if err != nil {
			t.Fatal(err)
		}
		a := ask(t, h, "/v1/completions", "{"+body+"}")
		end := map[krait.Reason]string{krait.ReachedMax: "length", krait.ReachedStop: "stop"}[want.Reason]
		if one := a.Choices[0]; one.Text != want.Text || *one.Finish != end || a.Usage.Completion != len(want.IDs) || a.Usage.Prompt != len(genesis) || a.Usage.Total != a.Usage.Prompt+a.Usage.Completion {
			t.Errorf("%s: %+v, want %q %s", c.body, a, want.Text, end)
		}
		if other, ok := texts[want.Text]; ok {
			t.Errorf("%s and %s give the same text, and so tell nothing", c.body, other)
		}
		texts[want.Text] = c.body
		parts, ends, _, _ := stream(t, h, "/v1/completions", "{"+body+`, "stream": true}`)
		if parts[0] != want.Text || ends[0] != end {
			t.Errorf("%s streamed: %q %s, want %q", c.body, parts[0], ends[0], want.Text)
		}
	}
}

// TestPrompts: prompts are a text, ids, and lists of both; n gives each as many texts, with seeds
// in order.
func TestPrompts(t *testing.T) {
	_, h, m := server(t, openai.Options{}, 4)
	one := func(prompt string, seed uint64) string {
		g, err := m.Generate(t.Context(), prompt, krait.Generate{Temperature: 1, Seed: seed, MaxTokens: 8})
		if err != nil {
			t.Fatal(err)
		}
		return g.Text
	}
	for _, c := range []struct {
		prompt string
		n      int
		want   []string
	}{
		{`"Hi"`, 1, []string{one("Hi", 5)}},
		{`[72, 105]`, 1, []string{one("Hi", 5)}},
		{`["Hi", "And"]`, 1, []string{one("Hi", 5), one("And", 6)}},
		{`[[72, 105], [65, 110, 100]]`, 2, []string{one("Hi", 5), one("Hi", 6), one("And", 7), one("And", 8)}},
		{`["Hi", [65, 110, 100]]`, 1, []string{one("Hi", 5), one("And", 6)}},
	} {
		for _, echo := range []bool{false, true} {
			body := fmt.Sprintf(`{"prompt": %s, "n": %d, "seed": 5, "max_tokens": 8, "echo": %t`, c.prompt, c.n, echo)
			a := ask(t, h, "/v1/completions", body+"}")
			texts, _, _, _ := stream(t, h, "/v1/completions", body+`, "stream": true}`)
			if len(a.Choices) != len(c.want) || len(texts) != len(c.want) {
				t.Fatalf("%s: %+v", body, a)
			}
			for i, want := range c.want {
				if echo {
					want = []string{"Hi", "And"}[i/c.n] + want
				}
				if a.Choices[i].Index != i || a.Choices[i].Text != want || texts[i] != want {
					t.Errorf("%s: choice %d is %q, and streamed %q; want %q", body, i, a.Choices[i].Text, texts[i], want)
				}
			}
		}
	}
}

// TestChat: a conversation is rendered by the template; whole and streamed are the same, with
// log-probabilities and usage.
func TestChat(t *testing.T) {
	_, h, m := server(t, openai.Options{}, 4)
	want, err := m.Generate(t.Context(), "User: Hello\nAssistant:", krait.Generate{MaxTokens: 10, LogProbs: true, TopLogProbs: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{`"Hello"`, `[{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]`} {
		body := fmt.Sprintf(`{"messages": [{"role": "user", "content": %s}], "temperature": 0, "max_completion_tokens": 10, "logprobs": true, "top_logprobs": 2`, content)
		a := ask(t, h, "/v1/chat/completions", body+"}")
		if c := a.Choices[0]; c.Message.Role != "assistant" || c.Message.Content != want.Text || *c.Finish != "length" || a.Object != "chat.completion" {
			t.Errorf("%+v, want %q", a, want.Text)
		}
		texts, _, probs, last := stream(t, h, "/v1/chat/completions", body+`, "stream": true, "stream_options": {"include_usage": true}}`)
		if texts[0] != want.Text || len(last.Choices) != 0 || last.Usage == nil || last.Usage.Completion != 10 || last.Object != "chat.completion.chunk" {
			t.Errorf("%q %+v, want %q", texts[0], last, want.Text)
		}
		type token struct {
			Token   string
			LogProb float64
			Bytes   []int
			Top     []token `json:"top_logprobs"`
		}
		type list struct{ Content []token }
		var whole, joined list
		if err := json.Unmarshal(a.Choices[0].LogProbs, &whole); err != nil {
			t.Fatal(err)
		}
		for _, raw := range probs[0] {
			var l list
			if err := json.Unmarshal(raw, &l); err != nil {
				t.Fatal(err)
			}
			joined.Content = append(joined.Content, l.Content...)
		}
		if !reflect.DeepEqual(whole, joined) || len(whole.Content) != 10 {
			t.Fatalf("%+v whole, %+v streamed", whole, joined)
		}
		for i, x := range whole.Content {
			p := want.LogProbs[i]
			if x.Bytes[0] != want.IDs[i] || x.LogProb != p.Chosen || len(x.Top) != 2 || x.Top[1].LogProb != p.Top[1].LogProb || x.Top[1].Bytes[0] != p.Top[1].ID {
				t.Errorf("token %d: %+v, want %+v", i, x, p)
			}
		}
	}
}

// TestCompletionLogProbs: tokens and offsets are those of the text.
func TestCompletionLogProbs(t *testing.T) {
	_, h, _ := server(t, openai.Options{}, 1)
	a := ask(t, h, "/v1/completions", `{"prompt": "In the", "temperature": 0, "logprobs": 3}`)
	var l struct {
		Tokens  []string
		Probs   []float64            `json:"token_logprobs"`
		Top     []map[string]float64 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	}
	if err := json.Unmarshal(a.Choices[0].LogProbs, &l); err != nil || strings.Join(l.Tokens, "") != a.Choices[0].Text || len(l.Tokens) != 16 {
		t.Fatalf("%+v %v", l, err)
	}
	for i := range l.Tokens {
		if p, ok := l.Top[i][l.Tokens[i]]; l.Offsets[i] != i || len(l.Top[i]) != 3 || !ok || p != l.Probs[i] {
			t.Errorf("token %d: %+v", i, l)
		}
	}
}

// TestRefused: what is wrong, unknown or not supported is an error with its name.
func TestRefused(t *testing.T) {
	_, h, _ := server(t, openai.Options{Body: 4096, StrictAPI: true}, 2)
	const completion, talk = `"prompt": "a", `, `"messages": [{"role": "user", "content": "a"}], `
	for _, c := range []struct {
		path, body string
		status     int
		param      string
	}{
		{"", `"temperature": 2.1`, 400, "temperature"}, {"", `"temperature": "hot"`, 400, "temperature"}, {"", `"temperature": -1`, 400, "temperature"},
		{"", `"top_p": 0`, 400, "top_p"}, {"", `"top_p": 1.1`, 400, "top_p"}, {"", `"top_k": -2`, 400, "top_k"}, {"", `"min_p": 2`, 400, "min_p"},
		{"", `"presence_penalty": 3`, 400, "presence_penalty"}, {"", `"frequency_penalty": -3`, 400, "frequency_penalty"}, {"", `"repetition_penalty": 0`, 400, "repetition_penalty"},
		{"", `"n": 0`, 400, "n"}, {"", `"n": 1.5`, 400, "n"}, {"", `"n": 1000000`, 400, "n"}, {"", `"seed": "x"`, 400, "seed"}, {"", `"seed": 1.5`, 400, "seed"},
		{"", `"max_tokens": 0`, 400, "max_tokens"}, {"", `"max_tokens": -1`, 400, "max_tokens"}, {"", `"stop": ""`, 400, "stop"}, {"", `"stop": [1]`, 400, "stop"}, {"", `"stop": [null]`, 400, "stop"},
		{"", `"logit_bias": {"x": 1}`, 400, "logit_bias"}, {"", `"logit_bias": {"256": 1}`, 400, "logit_bias"}, {"", `"logit_bias": {"1": 101}`, 400, "logit_bias"}, {"", `"logit_bias": {"1": null}`, 400, "logit_bias"},
		{"", `"stream": 1`, 400, "stream"}, {"", `"stream_options": {"include_usage": true}`, 400, "stream_options"}, {"", `"stream": true, "stream_options": {"x": true}`, 400, "stream_options.x"}, {"", `"stream": true, "stream_options": {"include_usage": "yes"}`, 400, "stream_options.include_usage"}, {"", `"stream": true, "stream_options": 7`, 400, "stream_options"},
		{"", `"model": "gpt-4o"`, 404, "model"}, {"", `"frobnicate": 1`, 400, "frobnicate"}, {"", `"frobnicate": null`, 400, "frobnicate"}, {"", `"n": 1, "n": 1`, 400, "n"},
		{"", `"response_format": {"type": "grammar"}`, 400, "response_format.type"},
		{"c", `"best_of": 2`, 400, "best_of"}, {"c", `"suffix": "b"`, 400, "suffix"}, {"c", `"logprobs": 21`, 400, "logprobs"}, {"c", `"logprobs": true`, 400, "logprobs"}, {"p", `"echo": true, "prompt": [` + strings.Repeat("1,", 499) + `1], "logprobs": 20, "n": 101`, 400, "logprobs"}, {"c", `"messages": []`, 400, "messages"},
		{"t", `"tools": [{}]`, 400, "tools"}, {"t", `"tool_choice": "required"`, 400, "tool_choice"}, {"t", `"functions": [{}]`, 400, "functions"}, {"t", `"top_logprobs": 2`, 400, "top_logprobs"}, {"t", `"logprobs": 2`, 400, "logprobs"},
		{"t", `"max_tokens": 3, "max_completion_tokens": 4`, 400, "max_completion_tokens"}, {"t", `"modalities": ["audio"]`, 400, "modalities"}, {"t", `"reasoning_effort": "low"`, 400, "reasoning_effort"}, {"t", `"prompt": "a"`, 400, "prompt"},
		{"p", `"prompt": ""`, 400, "prompt"}, {"p", `"prompt": []`, 400, "prompt"}, {"p", `"prompt": [256]`, 400, "prompt"}, {"p", `"prompt": [-1]`, 400, "prompt"}, {"p", `"prompt": ["a", null]`, 400, "prompt"}, {"p", `"prompt": [[1], [null]]`, 400, "prompt"}, {"p", `"prompt": [["a"]]`, 400, "prompt"}, {"p", `"prompt": {}`, 400, "prompt"}, {"p", `"prompt": [` + strings.Repeat(`"a",`, 299) + `"a"]`, 400, "prompt"}, {"p", `"prompt": ["a","a","a"], "n": 100`, 400, "n"}, {"", biases(256, -100), 400, "logit_bias"}, {"p", `"prompt": null`, 400, "prompt"}, {"p", `"n": 1`, 400, "prompt"},
		{"m", `"n": 1`, 400, "messages"}, {"m", `"messages": []`, 400, "messages"}, {"m", `"messages": [{"role": "user"}]`, 400, "messages[0].content"}, {"m", `"messages": [{"content": "a"}]`, 400, "messages[0].role"}, {"m", `"messages": [{"role": "user", "content": null}]`, 400, "messages[0].content"},
		{"m", `"messages": [{"role": "user", "content": [{"type": "image_url"}]}]`, 400, "messages[0].content"}, {"m", `"messages": [{"role": "user", "content": "a", "tool_calls": []}]`, 400, "messages[0].tool_calls"}, {"m", `"messages": [{"role": 1, "content": "a"}]`, 400, "messages[0].role"},
		{"p", `"prompt": "` + strings.Repeat("a", 5000) + `"`, 413, ""}, {"p", `"prompt": "a"} {`, 400, ""}, {"p", `"prompt": "a`, 400, ""}, {"p", `"prompt": ` + strings.Repeat("[", 3000), 400, ""},
	} {
		var full []string
		switch c.path {
		case "":
			full = []string{"/v1/completions", completion, "/v1/chat/completions", talk}
		case "c":
			full = []string{"/v1/completions", completion}
		case "t":
			full = []string{"/v1/chat/completions", talk}
		case "p":
			full = []string{"/v1/completions", ""}
		case "m":
			full = []string{"/v1/chat/completions", ""}
		}
		for i := 0; i < len(full); i += 2 {
			status, text := post(t, h, full[i], "{"+full[i+1]+c.body+"}")
			var a answer
			if err := json.Unmarshal([]byte(text), &a); err != nil || status != c.status || a.Error == nil || a.Error.Param != c.param || a.Error.Type != "invalid_request_error" || a.Error.Message == "" {
				t.Errorf("%s %.80s: %d %s, want %d %s", full[i], c.body, status, text, c.status, c.param)
			}
		}
	}
	for _, c := range []struct{ body, want string }{
		{`"top_p": 0`, "it is 0; it must be above 0 and at most 1"}, {`"repetition_penalty": 0`, "it is 0; it must be above 0 and at most 100"},
		{`"stream": true, "stream_options": {"include_usage": "yes"}`, `stream_options.include_usage: it is \"yes\"; it must be true or false`},
		{`"user": "日` + "\xff" + `"`, "the body is not UTF-8: byte 28 is"},
		{biases(256, -100), "all 256 tokens have bias -100"},
	} {
		if _, text := post(t, h, "/v1/completions", "{"+completion+c.body+"}"); !strings.Contains(text, c.want) {
			t.Errorf("%.80s: %s, want %s", c.body, text, c.want)
		}
	}
	for _, fine := range []string{`"stream": true, "stream_options": {"include_usage": null}`, biases(255, -100), biases(255, -100) + `, "ignore_eos": true`} {
		if status, text := post(t, h, "/v1/completions", "{"+completion+`"max_tokens": 1, `+fine+"}"); status != 200 {
			t.Errorf("%.80s: %d %s", fine, status, text)
		}
	}
	for _, harmless := range []string{`"tools": null`, `"tools": []`, `"tool_choice": "auto"`, `"response_format": {"type": "text"}`, `"store": true`, `"metadata": {"a": "b"}`, `"service_tier": "flex"`, `"safety_identifier": "a"`, `"prompt_cache_key": "a"`, `"priority": 3`, `"user": "me"`, `"model": "tiny-mamba"`} {
		ask(t, h, "/v1/chat/completions", "{"+talk+`"max_tokens": 1, `+harmless+"}")
	}
	r, err := http.Post(h.URL+"/v1/completions", "text/plain", strings.NewReader("{}"))
	if err != nil || r.StatusCode != 415 {
		t.Errorf("text/plain: %v %v", r, err)
	}
	for _, path := range []string{"/health", "/ready", "/v1/models"} {
		if r, err := http.Head(h.URL + path); err != nil || r.StatusCode != 200 {
			t.Errorf("HEAD %s: %v %v", path, r, err)
		}
	}
	for path, want := range map[string]int{"/v1/completions": 405, "/none": 404, "/v1/models": 200, "/health": 200, "/ready": 200} {
		if r, err := http.Get(h.URL + path); err != nil || r.StatusCode != want || r.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v %v", path, r, err)
		}
	}
}

// biases gives the tokens below n the same bias.
func biases(n, bias int) string {
	list := make([]string, n)
	for id := range list {
		list[id] = fmt.Sprintf(`"%d": %d`, id, bias)
	}
	return `"logit_bias": {` + strings.Join(list, ", ") + "}"
}

// TestTokenize: ids of texts and conversations, and back.
func TestTokenize(t *testing.T) {
	_, h, _ := server(t, openai.Options{}, 1)
	for _, c := range []struct{ path, body, want string }{
		{"/tokenize", `{"prompt": "Hi"}`, `{"count":2,"tokens":[72,105]}`},
		{"/tokenize", `{"prompt": ""}`, `{"count":0,"tokens":[]}`},
		{"/tokenize", `{"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": false}`, `{"count":8,"tokens":[85,115,101,114,58,32,97,10]}`},
		{"/detokenize", `{"tokens": [72, 105]}`, `{"prompt":"Hi"}`},
		{"/detokenize", `{"tokens": []}`, `{"prompt":""}`},
	} {
		if status, text := post(t, h, c.path, c.body); status != 200 || strings.TrimSpace(text) != c.want {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, text)
		}
	}
	for path, body := range map[string]string{"/tokenize": `{}`, "/detokenize": `{"tokens": [256]}`} {
		if status, text := post(t, h, path, body); status != 400 {
			t.Errorf("%s %s: %d %s", path, body, status, text)
		}
	}
}

// TestConcurrent: 64 at the same time, and with KRAIT_TEST_ALL 256, get what they get one after
// the other, greedy and seeded, with a prefix cache and without, and streamed or not.
func TestConcurrent(t *testing.T) {
	n := 24
	if goldens.All() {
		n = 256
	}
	_, plain, _ := serverOf(t, openai.Options{}, krait.Options{Slots: 8})
	_, h, m := server(t, openai.Options{}, 8)
	body := func(i int) string {
		return fmt.Sprintf(`{"prompt": %q, "temperature": %d, "seed": %d, "max_tokens": %d`, strings.Repeat(genesis, 4)[:80+i%64], i%2, i, 4+i%13) // all begin with the same 64 tokens
	}
	want := make([]string, n)
	for i := range want {
		want[i] = ask(t, plain, "/v1/completions", body(i)+"}").Choices[0].Text
	}
	var all sync.WaitGroup
	for i := range 2 * n {
		h, i := h, i
		if i >= n {
			h, i = plain, i-n
		}
		all.Go(func() {
			var got string
			if i%4 < 2 {
				texts, _, _, _ := stream(t, h, "/v1/completions", body(i)+`, "stream": true}`)
				got = texts[0]
			} else {
				got = ask(t, h, "/v1/completions", body(i)+"}").Choices[0].Text
			}
			if got != want[i] {
				t.Errorf("request %d: %q, and alone %q", i, got, want[i])
			}
		})
	}
	all.Wait()
	if m.Session().PrefixCache().Hits == 0 {
		t.Errorf("the prefix cache had nothing: %+v", m.Session().PrefixCache())
	}
	cached := 0 // which have a state depends on the order in which they came
	for i := range 16 {
		u := ask(t, h, "/v1/completions", body(i)+"}").Usage
		if cached += u.Details.Cached; u.Details.Cached > u.Prompt {
			t.Errorf("%+v", u)
		}
	}
	if cached == 0 {
		t.Error("no answer says that something of its prompt was cached")
	}
}

// TestBreakpoints: a message with cache_control leaves a state behind it, and without one the last
// two messages do, so that the first prompt that begins with the messages up to there hits.
func TestBreakpoints(t *testing.T) {
	rules := strings.Repeat("Answer in the words of the book. ", 12)
	system := func(control string) string {
		return fmt.Sprintf(`{"role": "system", "content": [{"type": "text", "text": %q%s}]}`, rules, control)
	}
	said := func(role, text string) string {
		return fmt.Sprintf(`, {"role": %q, "content": %q}`, role, strings.Repeat(text, 20))
	}
	chat := func(h *httptest.Server, messages string) int {
		return ask(t, h, "/v1/chat/completions", `{"messages": [`+messages+`], "max_tokens": 2}`).Usage.Details.Cached
	}
	const control = `, "cache_control": {"type": "ephemeral"}`
	who, call, result := said("user", "Who? "), said("assistant", "I look it up. "), said("tool", "A king. ")
	for name, c := range map[string]struct{ first, then, shared string }{
		"the system prompt":     {system("") + who, system("") + said("user", "When? "), system("")},
		"a breakpoint":          {system(control) + who + call + who, system("") + said("user", "When? "), system("")},
		"a tool's result":       {system("") + who + call + result, system("") + who + call + result + said("user", "When? "), system("") + who + call + result},
		"before the last":       {system("") + who + call + result + who, system("") + who + call + result + said("user", "When? "), system("") + who + call + result},
		"an answer in a thread": {system("") + who + call, system("") + who + said("user", "When? "), system("") + who},
	} {
		_, h, _ := server(t, openai.Options{}, 2)
		if cached := chat(h, c.first); cached != 0 {
			t.Errorf("%s: an empty cache hits %d tokens", name, cached)
		}
		_, text := post(t, h, "/tokenize", `{"messages": [`+c.shared+`], "add_generation_prompt": false}`)
		var shared struct{ Count int }
		json.Unmarshal([]byte(text), &shared)
		if cached, want := chat(h, c.then), (shared.Count-1)/64*64; cached < want || want == 0 {
			t.Errorf("%s: %d tokens hit, want %d", name, cached, want)
		}
	}
	// Items of /v1/responses are messages, too: what a call gave is the one before the last.
	_, items, _ := server(t, openai.Options{}, 2)
	respond := func(input string) int {
		status, text := post(t, items, "/v1/responses", `{"input": [`+input+`], "max_output_tokens": 2}`)
		var r struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"input_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(text), &r); status != 200 || err != nil {
			t.Fatalf("%d %s", status, text)
		}
		return r.Usage.Details.Cached
	}
	thread := system("") + who + call + fmt.Sprintf(`, {"type": "function_call_output", "call_id": "c", "output": %q}`, strings.Repeat("A king. ", 20))
	_, text := post(t, items, "/tokenize", `{"messages": [`+system("")+who+call+result+`], "add_generation_prompt": false}`)
	var shared struct{ Count int }
	json.Unmarshal([]byte(text), &shared)
	if cached := respond(thread + who); cached != 0 {
		t.Errorf("responses: an empty cache hits %d tokens", cached)
	}
	if cached, want := respond(thread+said("user", "When? ")), (shared.Count-1)/64*64; cached < want || want == 0 {
		t.Errorf("responses: %d tokens hit, want %d", cached, want)
	}

	_, plain, _ := server(t, openai.Options{}, 2)
	list := strings.Repeat(system(control)+", ", 4) + system(control)
	if status, text := post(t, plain, "/v1/chat/completions", `{"messages": [`+list+`]}`); status != 400 || !strings.Contains(text, "more than 4 of them have cache_control") {
		t.Errorf("%d %s", status, text)
	}
}

const long = `{"prompt": "In the", "max_tokens": 100000, "stream": true}`

// hold begins a generation that does not end, and returns when its first part is here.
func hold(t *testing.T, h *httptest.Server) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/completions", strings.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := h.Client().Do(r)
	if err != nil || got.StatusCode != 200 {
		t.Fatal(got, err)
	}
	if _, err := bufio.NewReader(got.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return func() { cancel(); got.Body.Close() }
}

// until waits for what must come to be.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not come: " + what)
}

// TestCancel: a client that goes away frees its slot, which is the only one.
func TestCancel(t *testing.T) {
	s, h, m := server(t, openai.Options{}, 1)
	hold(t, h)()
	ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`)
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} && m.Session().Scheduler().Load().Running == 0 })
}

// TestFull: at the limit there is 429 with a time to come back; what waits is served, and
// the server is what it was afterwards.
func TestFull(t *testing.T) {
	s, h, _ := server(t, openai.Options{Queue: openai.Queue{Requests: 1, Tokens: 150_000}}, 1)
	end := hold(t, h)
	waits := make(chan int)
	go func() {
		status, _ := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`)
		waits <- status
	}()
	until(t, "one that waits", func() bool { return s.Load().Waiting == 1 })
	for _, body := range []string{`{"prompt": "a", "max_tokens": 1}`, `{"prompt": "a", "max_tokens": 1, "stream": true}`} {
		r, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil || r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
			t.Errorf("%v %v", r, err)
		}
	}
	end()
	if status := <-waits; status != 200 {
		t.Errorf("who waited got %d", status)
	}
	end = hold(t, h)
	if status, text := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 100000}`); status != 429 || !strings.Contains(text, "queued texts may take") {
		t.Errorf("%d %s", status, text)
	}
	end()
	if status, text := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 200000}`); status != 400 {
		t.Errorf("more than fits: %d %s", status, text)
	}
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} })
}

// TestDrain: what was taken ends, nothing else begins.
func TestDrain(t *testing.T) {
	s, h, _ := server(t, openai.Options{}, 1)
	got := make(chan answer)
	go func() { got <- ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 300}`) }()
	until(t, "one running", func() bool { return s.Load().Running == 1 })
	s.Drain()
	for path, body := range map[string]string{"/v1/completions": `{"prompt": "a"}`, "/v1/chat/completions": `{"messages": [{"role": "user", "content": "a"}]}`} {
		if status, text := post(t, h, path, body); status != 503 {
			t.Errorf("%d %s", status, text)
		}
	}
	if r, err := http.Get(h.URL + "/ready"); err != nil || r.StatusCode != 503 {
		t.Errorf("ready: %v %v", r, err)
	}
	if a := <-got; a.Usage.Completion != 300 {
		t.Errorf("%+v", a)
	}
}

// TestDeadline: a request that takes too long ends with an error, in a stream, too, and frees its
// slot.
func TestDeadline(t *testing.T) {
	s, h, _ := server(t, openai.Options{Deadline: 200 * time.Millisecond}, 1)
	if status, text := post(t, h, "/v1/completions", strings.Replace(long, "true", "false", 1)); status != 504 || !strings.Contains(text, `"timeout"`) {
		t.Errorf("%d %s", status, text)
	}
	if _, text := post(t, h, "/v1/completions", long); !strings.Contains(text, `"timeout"`) || strings.Contains(text, "[DONE]") {
		t.Errorf("%.200s", text)
	}
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} })
}

// TestKeys: only those with a key may ask, and logs have their names, and no prompts.
func TestKeys(t *testing.T) {
	file := fmt.Sprintf("# keys\n\nann %x\nbob %x\n", sha256.Sum256([]byte("sesame")), sha256.Sum256([]byte("open")))
	keys, err := openai.ReadKeys(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	_, h, _ := server(t, openai.Options{Keys: keys, Log: slog.New(slog.NewTextHandler(&log, nil))}, 1)
	for auth, want := range map[string]int{"": 401, "Bearer": 401, "Bearer x": 401, "Basic sesame": 401, "Bearer sesame": 200, "bearer open": 200} {
		r, err := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(`{"prompt": "xyzzy"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", auth)
		got, err := h.Client().Do(r)
		if err != nil || got.StatusCode != want {
			t.Errorf("%q: %v %v", auth, got, err)
		}
	}
	if r, err := http.Get(h.URL + "/health"); err != nil || r.StatusCode != 200 {
		t.Errorf("health: %v %v", r, err)
	}
	post(t, h, "/v1/completions", `{"xyzzy": 1}`)
	h.Close()
	if text := log.String(); !strings.Contains(text, "tenant=ann") || !strings.Contains(text, "tenant=bob") || strings.Contains(text, "xyzzy") || strings.Contains(text, "sesame") {
		t.Error(text)
	}
	for _, wrong := range []string{"", "ann", "ann xyz", "ann sesame", "a b " + strings.Repeat("0", 64)} {
		if _, err := openai.ReadKeys(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// TestSlowClient: who does not send a body in time is told so, and keeps no slot.
func TestSlowClient(t *testing.T) {
	s, h, _ := server(t, openai.Options{Stall: 100 * time.Millisecond}, 1)
	body, writer := io.Pipe()
	defer writer.Close()
	go io.WriteString(writer, `{"prompt"`)
	r, err := http.Post(h.URL+"/v1/completions", "application/json", body)
	if err == nil && r.StatusCode != 408 {
		t.Errorf("slow body: %v", r.Status)
	}
	ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`)
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} })
}

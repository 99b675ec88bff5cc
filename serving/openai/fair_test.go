package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
)

// shapes are requests of kinds whose texts must not change where they are paused.
var shapes = []string{
	`{"prompt": %q, "max_tokens": 45, "temperature": 0, "ignore_eos": true, "logprobs": 2, "stream": %v}`,
	`{"prompt": %q, "max_tokens": 45, "seed": 7, "ignore_eos": true, "presence_penalty": 0.5, "frequency_penalty": 0.3, "logprobs": 0, "echo": true, "stream": %v}`,
	`{"prompt": %q, "max_tokens": 45, "seed": 8, "temperature": 1.2, "top_p": 0.9, "stop": ["zz", " and the L"], "stream": %v}`,
	`{"prompt": %q, "max_tokens": 45, "seed": 9, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 3, "maxItems": 4}}}, "stream": %v}`,
	`{"prompt": %q, "max_tokens": 40, "seed": 10, "n": 3, "ignore_eos": true, "stream": %v}`,
}

// TestPausedTexts: five keys, of which one asks for much more, share few slots, so that texts are
// paused again and again. Each answer is the one of a lone request, to the last
// log-probability.
func TestPausedTexts(t *testing.T) {
	for dir, cache := range map[string]int64{"": 0, "../../testdata/golden/jamba": 16 << 20} {
		open := func(slots int, cache int64) *krait.Model {
			o := krait.Options{Slots: slots, PrefixCache: cache}
			m, err := krait.Embedded(o)
			if dir != "" {
				m, err = krait.Open(dir, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Close() })
			return m
		}
		names := []string{"a", "b", "c", "d", "e"}
		_, alone := serve(t, open(1, 0), openai.Options{Keys: keysOf(t, names...)})
		m := open(2, cache)
		_, h := serve(t, m, openai.Options{Keys: keysOf(t, names...)})
		var all sync.WaitGroup
		for k, name := range names {
			n := 1 + len(shapes)*(1-min(k, 1))
			if goldens.All() {
				n = 2 + len(shapes)*(2-min(k, 2))
			}
			for i := range n {
				all.Go(func() {
					body := fmt.Sprintf(shapes[(i+k)%len(shapes)], strings.Repeat(genesis, 4)[:20+53*i%180], i%2 == 0)
					got, want := send(t, h, name, body), send(t, alone, name, body)
					if got.StatusCode != 200 || said(got.text) != said(want.text) {
						t.Errorf("%s %s: %d\n%s, alone\n%s", dir, body, got.StatusCode, said(got.text), said(want.text))
					}
				})
			}
		}
		all.Wait()
		if l := m.Session().Scheduler().Load(); l.Paused == 0 {
			t.Errorf("%s: no text was paused: %+v", dir, l)
		} else {
			t.Logf("%s: %+v", dir, l)
		}
	}
}

// said is what an answer says: all choices' texts, log-probabilities and reasons, however they were
// divided into parts, and the numbers of tokens.
func said(text []byte) string {
	choices := map[int]*strings.Builder{}
	usage := ""
	for line := range strings.Lines(string(text)) {
		var a answer
		if json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "data: ")), &a) != nil {
			continue
		}
		for _, c := range a.Choices {
			if choices[c.Index] == nil {
				choices[c.Index] = &strings.Builder{}
			}
			fmt.Fprintf(choices[c.Index], "%s", c.Text)
			if len(c.LogProbs) > 0 && string(c.LogProbs) != "null" {
				fmt.Fprintf(choices[c.Index], "«%s»", c.LogProbs)
			}
			if c.Finish != nil {
				fmt.Fprintf(choices[c.Index], " (%s)", *c.Finish)
			}
		}
		if a.Usage != nil {
			a.Usage.Details.Cached = 0 // a cache changes it
			usage = fmt.Sprintf(", %+v", *a.Usage)
		}
	}
	out := ""
	for i := range len(choices) {
		out += fmt.Sprintf("%d: %s\n", i, choices[i])
	}
	return out + usage
}

// TestFlood: one key that takes all slots, all tokens or all places keeps none of the others out: a
// request of each is answered though nothing of the flood has ended.
func TestFlood(t *testing.T) {
	for what, c := range map[string]struct {
		n, texts int // requests, and texts of them
		body     string
	}{
		"tokens": {1, 1, `{"prompt": "a", "max_tokens": 999990, "ignore_eos": true, "stream": true}`},
		"slots":  {8, 8, `{"prompt": "a", "max_tokens": 100000, "ignore_eos": true, "stream": true}`},
		"places": {2, 256, `{"prompt": "a", "n": 128, "max_tokens": 3000, "ignore_eos": true, "stream": true}`},
	} {
		names := []string{"flood", "b", "c", "d", "e"}
		s, h, m := serverOf(t, openai.Options{Keys: keysOf(t, names...), Deadline: 20 * time.Second}, krait.Options{Slots: 8})
		var ends []func()
		for range c.n {
			ends = append(ends, flood(t, h, names[0], c.body))
		}
		until(t, "the flood runs", func() bool {
			l := s.Load()
			return l.Running+l.Waiting == c.texts && l.Running == min(c.texts, 8)
		})
		for round := range 2 {
			for _, name := range names[1:] {
				if status, a := as(t, h, name, `{"prompt": "Moses", "max_tokens": 5, "temperature": 0, "ignore_eos": true}`); status != 200 || a.Usage.Completion != 5 {
					t.Errorf("%s: %s, round %d: %d %+v", what, name, round, status, a.Error)
				}
			}
		}
		if what == "tokens" {
			if r := send(t, h, "flood", `{"prompt": "a", "max_tokens": 450000}`); r.StatusCode != 429 {
				t.Errorf("the flood gets more than there is: %d", r.StatusCode)
			}
		} else if m.Session().Scheduler().Load().Paused == 0 {
			t.Errorf("%s: no text was paused", what)
		}
		for _, end := range ends {
			end()
		}
		until(t, "the server idle", func() bool { return s.Load() == openai.Load{} })
	}
}

// flood sends a request, and returns what ends it.
func flood(t *testing.T, h *httptest.Server, key, body string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		if got, err := h.Client().Do(r); err == nil {
			io.Copy(io.Discard, got.Body)
			got.Body.Close()
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestChoicesReadOnce: the n texts of a prompt are those that n requests with the seeds get, and
// the prompt is prefilled once, with and without a prefix cache, log-probabilities and echo, on one
// rank and on several.
func TestChoicesReadOnce(t *testing.T) {
	prompt := strings.Repeat(genesis+" ", 12)[:100]
	const n = 5
	for i, o := range []krait.Options{
		{Slots: 3}, {Slots: 1, PrefixCache: 16 << 20}, {Slots: 2, Sharding: krait.Sharding{Ranks: 2, Strategy: "sequence"}}, {Slots: 2, Sharding: krait.Sharding{States: "conv=bf16,ssm=bf16"}},
	} {
		if i > 1 && goldens.Few(t) {
			continue
		}
		_, h, m := serverOf(t, openai.Options{}, o)
		for _, more := range []string{``, `, "logprobs": 1, "echo": true`} {
			body := func(n, seed int) string {
				return fmt.Sprintf(`{"prompt": %q, "max_tokens": 9, "ignore_eos": true, "n": %d, "seed": %d%s}`, prompt, n, seed, more)
			}
			before := m.Session().Scheduler().Load().Tokens
			a := ask(t, h, "/v1/completions", body(n, 40))
			fed, want := int(m.Session().Scheduler().Load().Tokens-before), len(prompt)+n*8
			if o.Sharding.States != "" && more != "" {
				want = n * (len(prompt) + 8) // a step has rows for no other but those of the prompt
			}
			if fed != want || a.Usage.Prompt != len(prompt) || len(a.Choices) != n {
				t.Errorf("%+v%s: %d tokens were fed, want %d: %+v", o, more, fed, want, a.Usage)
			}
			for i := range n {
				if o.PrefixCache > 0 {
					break // from which a request of its own goes on
				}
				one := ask(t, h, "/v1/completions", body(1, 40+i))
				if c := one.Choices[0]; c.Text != a.Choices[i].Text || string(c.LogProbs) != string(a.Choices[i].LogProbs) || *c.Finish != *a.Choices[i].Finish {
					t.Errorf("%+v%s: choice %d is %q, alone %q", o, more, i, a.Choices[i].Text, c.Text)
				}
			}
		}
		if l := m.Session().Scheduler().Load(); l.Waiting+l.Running > 0 || l.Restarted > 0 {
			t.Errorf("%+v", l)
		}
	}
}

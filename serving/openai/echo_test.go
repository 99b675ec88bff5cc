package openai_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// TestEcho: with echo and logprobs there are those of the prompt's tokens, too, the first null, as
// krait.Generate gives them, whole and in a stream; max_tokens 0 gives these alone, and an
// echo alone.
func TestEcho(t *testing.T) {
	_, h, m := server(t, openai.Options{}, 3)
	const prompts = `"prompt": ["In thé", [65, 32, 98, 195, 169]]`
	texts := []string{"In thé", "A bé"}
	ask(t, h, "/v1/completions", `{"prompt": "In thé heart", "max_tokens": 1}`)
	for _, c := range []struct{ most, n, top int }{{0, 1, 2}, {5, 2, 0}, {5, 1, 3}} {
		body := fmt.Sprintf(`{%s, "temperature": 0, "ignore_eos": true, "echo": true, "max_tokens": %d, "n": %d, "logprobs": %d`, prompts, c.most, c.n, c.top)
		a := ask(t, h, "/v1/completions", body+"}")
		streamed, ends, parts, last := stream(t, h, "/v1/completions", body+`, "stream": true, "stream_options": {"include_usage": true}}`)
		if len(a.Choices) != 2*c.n || a.Usage.Completion != 2*c.n*c.most || a.Usage.Prompt != 7+5 || *last.Usage != *a.Usage {
			t.Errorf("%s: %+v, %+v", body, a, a.Usage)
		}
		for i, x := range a.Choices {
			var whole, joined echoed
			if err := json.Unmarshal(x.LogProbs, &whole); err != nil {
				t.Fatal(err)
			}
			for _, p := range parts[i] {
				var one echoed
				if err := json.Unmarshal(p, &one); err != nil {
					t.Fatal(err)
				}
				joined.Tokens, joined.Probs = append(joined.Tokens, one.Tokens...), append(joined.Probs, one.Probs...)
				joined.Top, joined.Offsets = append(joined.Top, one.Top...), append(joined.Offsets, one.Offsets...)
			}
			if !reflect.DeepEqual(whole, joined) || streamed[i] != x.Text || *x.Finish != "length" || ends[i] != "length" {
				t.Errorf("%s, choice %d: %+v, streamed %+v of %q", body, i, x, joined, streamed[i])
			}
			g, err := m.Generate(t.Context(), texts[i/c.n], krait.Generate{MaxTokens: max(c.most, 1), IgnoreEOS: true, LogProbs: true, TopLogProbs: c.top, PromptLogProbs: true})
			if err != nil {
				t.Fatal(err)
			}
			checkEcho(t, texts[i/c.n], whole, g, c.most, c.top)
			if want := texts[i/c.n] + g.Text; c.most > 0 && x.Text != want || c.most == 0 && x.Text != texts[i/c.n] {
				t.Errorf("%q, want %q", x.Text, want)
			}
		}
	}
	if a := ask(t, h, "/v1/completions", `{"prompt": "In the", "echo": true, "max_tokens": 0}`); a.Choices[0].Text != "In the" || string(a.Choices[0].LogProbs) != "null" || a.Usage.Total != 6 {
		t.Errorf("%+v", a)
	}
}

// echoed are log-probabilities as completions have them.
type echoed struct {
	Tokens  []string
	Probs   []*float64           `json:"token_logprobs"`
	Top     []map[string]float64 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

// checkEcho holds those of a text and of what follows it against a generation.
func checkEcho(t *testing.T, text string, got echoed, g *krait.Generation, most, top int) {
	t.Helper()
	want := append(slices.Clone(g.PromptLogProbs), g.LogProbs[:most]...)
	if len(got.Probs) != len(want)+1 || len(got.Tokens) != len(got.Probs) || len(got.Top) != len(got.Probs) || len(got.Offsets) != len(got.Probs) || got.Probs[0] != nil || got.Top[0] != nil {
		t.Fatalf("%q: %+v, want %d", text, got, len(want)+1)
	}
	for i, w := range want {
		if p := got.Probs[i+1]; p == nil || *p != w.Chosen || len(got.Top[i+1]) < max(top, 1) || len(got.Top[i+1]) > top+1 {
			t.Errorf("%q, token %d: %v of %v, want %+v", text, i+1, p, got.Top[i+1], w)
		}
	}
	chars, tokens := utf8.RuneCountInString(text), len(text) // a token is a byte
	for i, at := range got.Offsets {
		if i < tokens && at != utf8.RuneCountInString(strings.ToValidUTF8(text[:i], "")) || i >= tokens && at != chars+i-tokens {
			t.Errorf("%q: offsets %v", text, got.Offsets)
			break
		}
	}
}

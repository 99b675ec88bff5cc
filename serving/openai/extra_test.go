package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// extras is an answer with what other servers add.
type extras struct {
	Choices []struct {
		Text   string
		IDs    []int `json:"token_ids"`
		Prompt []int `json:"prompt_token_ids"`
		Scores []map[string]struct {
			LogProb float64
			Token   string `json:"decoded_token"`
		} `json:"prompt_logprobs"`
		LogProbs struct {
			Probs []*float64 `json:"token_logprobs"`
		}
		Timings map[string]float64
		Finish  string `json:"finish_reason"`
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
	}
}

func extraOf(t *testing.T, h string, path, body string) (e extras) {
	t.Helper()
	r, err := http.Post(h+path, "application/json", strings.NewReader("{"+body+"}"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text := readAll(t, r.Body)
	if err := json.Unmarshal([]byte(text), &e); err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: %d %s", body, r.StatusCode, text)
	}
	return e
}

// TestExtras: parameters of other servers do what they say, in completions and chats.
func TestExtras(t *testing.T) {
	_, h, m := server(t, openai.Options{}, 2)
	want, err := m.Generate(t.Context(), genesis, krait.Generate{MaxTokens: 40})
	if err != nil {
		t.Fatal(err)
	}
	prompt := fmt.Sprintf(`"prompt": %q, "temperature": 0`, genesis)
	e := extraOf(t, h.URL, "/v1/completions", prompt+`, "max_tokens": 40, "return_token_ids": true, "timings": true`)
	c := e.Choices[0]
	if !slices.Equal(c.IDs, want.IDs) || len(c.Prompt) != want.PromptTokens || c.Timings["predicted_n"] != 40 || c.Timings["predicted_ms"] <= 0 || c.Timings["prompt_ms"] <= 0 || c.Timings["prompt_n"]+c.Timings["cache_n"] != float64(want.PromptTokens) {
		t.Errorf("%+v", c)
	}
	_, text := post(t, h, "/v1/completions", "{"+prompt+`, "max_tokens": 40, "return_token_ids": true, "stream": true}`)
	var ids, prompts []int
	for event := range strings.SplitSeq(text, "\n\n") {
		var part extras
		if json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &part) == nil && len(part.Choices) == 1 {
			ids, prompts = append(ids, part.Choices[0].IDs...), append(prompts, part.Choices[0].Prompt...)
		}
	}
	if !slices.Equal(ids, want.IDs) || !slices.Equal(prompts, c.Prompt) {
		t.Errorf("streamed %v of %v", ids, prompts)
	}
	space := strings.Index(want.Text[1:], " ") + 1
	if e := extraOf(t, h.URL, "/v1/completions", prompt+`, "max_tokens": 40, "stop_token_ids": [32], "ignore_eos": true, "min_tokens": 1`).Choices[0]; e.Text != want.Text[:space] && want.Text[0] != ' ' || e.Finish != "stop" {
		t.Errorf("%q, %s; want up to byte %d of %q", e.Text, e.Finish, space, want.Text)
	}
	if e := extraOf(t, h.URL, "/v1/completions", prompt+`, "max_tokens": 40, "stop_token_ids": [32], "min_tokens": 30`).Choices[0]; len(e.Text) < 30 || strings.Contains(e.Text[:30], " ") {
		t.Errorf("%q", e.Text)
	}
	// The last tokens of a prompt give what they give alone.
	short, err := m.GenerateIDs(t.Context(), c.Prompt[len(c.Prompt)-5:], krait.Generate{MaxTokens: 9})
	if err != nil {
		t.Fatal(err)
	}
	if e := extraOf(t, h.URL, "/v1/completions", prompt+`, "max_tokens": 9, "truncate_prompt_tokens": 5`); e.Choices[0].Text != short.Text || e.Usage.Prompt != 5 {
		t.Errorf("%+v, want %q", e, short.Text)
	}
	echoed := extraOf(t, h.URL, "/v1/completions", prompt+`, "max_tokens": 0, "echo": true, "logprobs": 2`).Choices[0]
	for _, at := range []string{"", `, "logprobs": 2`} {
		got := extraOf(t, h.URL, "/v1/completions", prompt+`, "max_tokens": 3, "prompt_logprobs": 2`+at).Choices[0]
		if got.Text != want.Text[:3] || len(got.Scores) != len(c.Prompt) || got.Scores[0] != nil {
			t.Fatalf("%+v", got)
		}
		for i, id := range c.Prompt[1:] {
			if p := got.Scores[i+1][fmt.Sprint(id)]; p.LogProb != *echoed.LogProbs.Probs[i+1] || p.Token != string(rune(id)) || len(got.Scores[i+1]) < 2 || len(got.Scores[i+1]) > 3 {
				t.Errorf("token %d: %+v, want %v", i, got.Scores[i+1], *echoed.LogProbs.Probs[i+1])
			}
		}
	}
	for body, param := range map[string]string{
		`"stop_token_ids": [256]`: "stop_token_ids", `"stop_token_ids": 1`: "stop_token_ids", `"prompt_logprobs": 21`: "prompt_logprobs", `"prompt_logprobs": 1, "stream": true`: "prompt_logprobs",
		`"min_tokens": 5, "max_tokens": 4`: "min_tokens", `"truncate_prompt_tokens": 0`: "truncate_prompt_tokens", `"prompt_logprobs": 1, "logprobs": 2`: "prompt_logprobs", `"stop_token_ids": [` + strings.Repeat("1,", 256) + `1]`: "stop_token_ids",
	} {
		if status, text := post(t, h, "/v1/completions", `{"prompt": "a", `+body+"}"); status != 400 || !strings.Contains(text, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// TestContinue: an answer may continue the last message, or begin without the template's beginning.
func TestContinue(t *testing.T) {
	h := play(t, actor{"Fine.", chatting(""), nil}, openai.Options{})
	for body, want := range map[string]string{
		`[{"role": "user", "content": "Hi"}]`:                                 "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
		`[{"role": "user", "content": "Hi"}], "add_generation_prompt": false`: "<|im_start|>user\nHi<|im_end|>\n",
		`[{"role": "assistant", "content": "One "}, {"role": "assistant", "content": "One "}], "add_generation_prompt": false, "continue_final_message": true`: "<|im_start|>assistant\nOne <|im_end|>\n<|im_start|>assistant\nOne ",
	} {
		e := extraOf(t, h.URL, "/v1/chat/completions", `"return_token_ids": true, "temperature": 0, "messages": `+body)
		ids, err := json.Marshal(e.Choices[0].Prompt)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Prompt string }
		if _, text := post(t, h, "/detokenize", `{"tokens": `+string(ids)+"}"); json.Unmarshal([]byte(text), &got) != nil || got.Prompt != want {
			t.Errorf("%s: %q, want %q", body, got.Prompt, want)
		}
	}
	checkError(t, h, user+`, "continue_final_message": true`, [2]string{"continue_final_message", "add_generation_prompt"})
	checkError(t, h, user+`, "continue_final_message": true, "add_generation_prompt": false`, [2]string{"messages", "must be the assistant's"})
	if e := extraOf(t, h.URL, "/v1/chat/completions", user+`, "min_tokens": 9, "max_tokens": 12`); e.Choices[0].Finish != "length" && e.Choices[0].Finish != "stop" {
		t.Errorf("%+v", e)
	}
}

// TestWarnings: unknown parameters have no effect and are named in a header, some of them.
func TestWarnings(t *testing.T) {
	_, h, _ := server(t, openai.Options{}, 1)
	body := `{"prompt": "a", "max_tokens": 1, "n\u00e9\n": 1`
	for i := range 20 {
		body += fmt.Sprintf(`, "x%d": null`, i)
	}
	r, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(body+"}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	got := r.Header.Values("Krait-Warning")
	if r.StatusCode != 200 || len(got) != 8 || got[0] != `unknown parameter "n\u00e9\n"` || got[1] != `unknown parameter "x0"` {
		t.Errorf("%d %q", r.StatusCode, got)
	}
}

// TestCORS: pages of the sites that are named may call the server, and no others.
func TestCORS(t *testing.T) {
	_, h, _ := server(t, openai.Options{Origins: []string{"https://a.example"}, Keys: keysOf(t, "ann")}, 1)
	for _, c := range []struct {
		method, origin, allowed string
		status                  int
	}{{"OPTIONS", "https://a.example", "https://a.example", 204}, {"OPTIONS", "https://b.example", "", 401}, {"OPTIONS", "", "", 401}, {"GET", "https://a.example", "https://a.example", 401}, {"GET", "https://b.example", "", 401}} {
		r, err := http.NewRequest(c.method, h.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", c.origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if got := a.Header.Get("Access-Control-Allow-Origin"); a.StatusCode != c.status || got != c.allowed || c.status == 204 && !reflect.DeepEqual(a.Header["Access-Control-Allow-Headers"], []string{"authorization,content-type"}) {
			t.Errorf("%+v: %d %q", c, a.StatusCode, got)
		}
	}
}

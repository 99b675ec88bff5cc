package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Server is whom to ask.
type Server struct {
	URL   string // to which /completions is appended, as http://127.0.0.1:8080/v1
	Key   string // empty: none
	Model string
	Chat  bool // ask for chats, not for completions
}

const (
	longestEvent = 1 << 20 // bytes of a line of a stream
	longestError = 1 << 16 // bytes of an answer that is none
)

func (s Server) check() error {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the server is %q: give an address such as http://127.0.0.1:8080/v1", s.URL)
	case strings.ContainsAny(s.Key, "\r\n\x00"):
		return errors.New("the key has more than a line")
	}
	return nil
}

// client follows no redirection: keys and prompts are for the server that was named.
func (s Server) client(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request is one with the key, of a body if there is one.
func (s Server) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.Key != "" {
		r.Header.Set("Authorization", "Bearer "+s.Key)
	}
	return r, nil
}

// Model is what a server says of a model that it lists.
type Model struct {
	ID    string
	Ranks int // 0: the server does not say
}

// FindModel is the model of the server's name, or the first that the server lists.
func (s Server) FindModel(ctx context.Context) (m Model, err error) {
	if err := s.check(); err != nil {
		return m, err
	}
	r, err := s.request(ctx, "GET", "/models", nil)
	if err != nil {
		return m, err
	}
	a, err := s.client(http.DefaultTransport).Do(r)
	if err != nil {
		return m, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return m, fmt.Errorf("%s: %w", r.URL, refusal(a))
	}
	var list struct{ Data []Model }
	if err := json.NewDecoder(io.LimitReader(a.Body, longestEvent)).Decode(&list); err != nil {
		return m, fmt.Errorf("%s: %w", r.URL, err)
	}
	for _, m := range list.Data {
		if m.ID != "" && (s.Model == "" || m.ID == s.Model) {
			return m, nil
		}
	}
	if s.Model != "" {
		return m, fmt.Errorf("%s does not list model %q", r.URL, s.Model)
	}
	return m, fmt.Errorf("%s lists no model; name one", r.URL)
}

// Failure is why a request failed.
type Failure struct{ Kind, Message string }

func (f *Failure) Error() string { return f.Kind + ": " + f.Message }

// Kinds of failures, beside "status 429" and its like.
const (
	Unreached = "connection" // it failed before there was an answer
	Timeout   = "timeout"    // of the client
	Told      = "stream"     // an error event
	Cut       = "cut"        // the stream ended without its last event
	Malformed = "malformed"  // no stream of the API's
	Empty     = "empty"      // it ended well, and there was no text
)

func refusal(a *http.Response) *Failure {
	text, _ := io.ReadAll(io.LimitReader(a.Body, longestError))
	return &Failure{fmt.Sprintf("status %d", a.StatusCode), message(text)}
}

// message is the error's in the API's shape, or the text itself.
func message(text []byte) string {
	var e struct{ Error struct{ Message string } }
	if json.Unmarshal(text, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return strings.TrimSpace(string(text))
}

// outcome is what became of a request.
type outcome struct {
	sent, first, last, ended time.Time // of first and last, those of parts with text
	gaps                     []float64 // seconds from one such part to the next
	parts                    int
	prompt, cached, tokens   int
	counted                  bool // the server said how many tokens
	err                      *Failure
}

// exchange makes request i, and reads the stream.
func (g *generator) exchange(ctx context.Context, i int, out *outcome) *Failure {
	body, most := g.body(i)
	path := "/completions"
	if g.Server.Chat {
		path = "/chat/completions"
	}
	r, err := g.Server.request(ctx, "POST", path, body)
	if err != nil {
		return &Failure{Unreached, err.Error()}
	}
	a, err := g.client.Do(r)
	if err != nil {
		return failed(ctx, Unreached, err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return refusal(a)
	}
	if kind := a.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return &Failure{Malformed, fmt.Sprintf("the answer is %q, and no stream of events", kind)}
	}
	return g.read(ctx, a.Body, most, out)
}

// body is request i's, and how many tokens it asks for.
func (g *generator) body(i int) (body []byte, most int) {
	t := g.Trace[i]
	most = g.MaxTokens
	if most == 0 {
		most = max(1, t.Tokens.Len()-t.InputLen)
	}
	text := prompt(t.Tokens, t.InputLen, g.Vocab, g.salt)
	fields := map[string]any{"model": g.Server.Model, "max_tokens": most, "temperature": 0, "stream": true, "stream_options": map[string]any{"include_usage": true}}
	if g.Server.Chat {
		fields["messages"] = []any{map[string]any{"role": "user", "content": text}}
	} else {
		fields["prompt"] = text
	}
	if g.IgnoreEOS {
		fields["ignore_eos"] = true
	}
	body, err := json.Marshal(fields)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return body, most
}

// event is a part of a stream, of completions or of chats.
type event struct {
	Choices []struct {
		Text  string
		Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
		}
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error json.RawMessage
}

// read reads events to the last. The clock is asked once for each.
func (g *generator) read(ctx context.Context, body io.Reader, most int, out *outcome) *Failure {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // comments, names of events, and the empty lines between them
		}
		now := g.Clock.Now()
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return out.settle()
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return &Failure{Malformed, err.Error()}
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return &Failure{Told, message(data)}
		}
		out.take(&e, now)
		if out.parts > 2*most+16 {
			return &Failure{Malformed, fmt.Sprintf("%d parts for %d tokens", out.parts, most)}
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return &Failure{Malformed, fmt.Sprintf("a line of more than %d bytes", longestEvent)}
		}
		return failed(ctx, Cut, err)
	}
	return &Failure{Cut, "the stream ended without its last event, [DONE]"}
}

func (out *outcome) take(e *event, now time.Time) {
	if u := e.Usage; u != nil {
		out.prompt, out.cached, out.tokens, out.counted = u.Prompt, u.Details.Cached, u.Completion, true
	}
	for _, c := range e.Choices {
		if c.Text == "" && c.Delta.Content == "" && c.Delta.Reasoning == "" {
			continue
		}
		if out.parts == 0 {
			out.first = now
		} else {
			out.gaps = append(out.gaps, now.Sub(out.last).Seconds())
		}
		out.last = now
		out.parts++
		return // one choice was asked for
	}
}

// settle looks at a stream that ended well.
func (out *outcome) settle() *Failure {
	if !out.counted {
		out.tokens = out.parts
	}
	if out.parts == 0 {
		return &Failure{Empty, "there was no text"}
	}
	return nil
}

// failed is the failure of a kind, if it was not the client that gave up.
func failed(ctx context.Context, kind string, err error) *Failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Failure{Timeout, "it took longer than the client waits"}
	}
	return &Failure{kind, err.Error()}
}

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

// Server is a server of the API.
type Server struct {
	URL   string // base URL, such as http://127.0.0.1:8080/v1
	Key   string // empty: none
	Model string
	Chat  bool // use chat completions
}

const (
	longestEvent = 1 << 20 // bytes of a line of a stream
	longestError = 1 << 16 // bytes of an error response
)

func (s Server) check() error {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the server is %q; it must be a URL such as http://127.0.0.1:8080/v1", s.URL)
	case strings.ContainsAny(s.Key, "\r\n\x00"):
		return errors.New("the key must be one line")
	}
	return nil
}

// client follows no redirects, so that keys and prompts go to the named server only.
func (s Server) client(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request returns a request with the key, and a body unless that is nil.
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

// Model is an entry of a server's list of models.
type Model struct {
	ID    string
	Ranks int // 0: unknown
}

// FindModel returns the server's model of the name in s.Model, or its first model.
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
	Unreached  = "connection" // no answer
	Timeout    = "timeout"    // of the client
	ErrorEvent = "stream"     // an error event in the stream
	Cut        = "cut"        // the stream ended without its last event
	Malformed  = "malformed"  // not a stream of the API
	Empty      = "empty"      // no text
)

func refusal(a *http.Response) *Failure {
	text, _ := io.ReadAll(io.LimitReader(a.Body, longestError))
	return &Failure{fmt.Sprintf("status %d", a.StatusCode), message(text)}
}

// message returns the message of an error response, or the text itself.
func message(text []byte) string {
	var e struct{ Error struct{ Message string } }
	if json.Unmarshal(text, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return strings.TrimSpace(string(text))
}

// Outcome is the outcome of a request.
type Outcome struct {
	Sent, First, Last, Ended time.Time // First and Last are those of parts with text
	Gaps                     []float64 // seconds between such parts
	Parts                    int
	Prompt, Cached, Tokens   int
	Counted                  bool // the server reported usage
	Err                      *Failure
}

// exchange sends request i and reads its stream.
func (g *generator) exchange(ctx context.Context, i int, out *Outcome) *Failure {
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
		return &Failure{Malformed, fmt.Sprintf("the answer is %q, not an event stream", kind)}
	}
	return g.read(ctx, a.Body, most, out)
}

// body returns the body of request i, and its max_tokens.
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

// event is a part of a stream of completions or chats.
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

// read reads the events of a stream, and the clock once for each.
func (g *generator) read(ctx context.Context, body io.Reader, most int, out *Outcome) *Failure {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // comments, event names and empty lines
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
			return &Failure{ErrorEvent, message(data)}
		}
		out.take(&e, now)
		if out.Parts > 2*most+16 {
			return &Failure{Malformed, fmt.Sprintf("%d parts for %d tokens", out.Parts, most)}
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

func (out *Outcome) take(e *event, now time.Time) {
	if u := e.Usage; u != nil {
		out.Prompt, out.Cached, out.Tokens, out.Counted = u.Prompt, u.Details.Cached, u.Completion, true
	}
	for _, c := range e.Choices {
		if c.Text == "" && c.Delta.Content == "" && c.Delta.Reasoning == "" {
			continue
		}
		if out.Parts == 0 {
			out.First = now
		} else {
			out.Gaps = append(out.Gaps, now.Sub(out.Last).Seconds())
		}
		out.Last = now
		out.Parts++
		return // one choice was asked for
	}
}

// settle checks a complete stream.
func (out *Outcome) settle() *Failure {
	if !out.Counted {
		out.Tokens = out.Parts
	}
	if out.Parts == 0 {
		return &Failure{Empty, "the answer has no text"}
	}
	return nil
}

// failed returns a failure, which is a timeout if the client's deadline has passed.
func failed(ctx context.Context, kind string, err error) *Failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Failure{Timeout, "the request exceeded the client's timeout"}
	}
	return &Failure{kind, err.Error()}
}

package openai_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// TestCounts: the tokens of a prompt are counted once for all its texts, and each text counts
// with its prompt in the bound on tokens.
func TestCounts(t *testing.T) {
	_, h, _ := server(t, openai.Options{Queue: openai.Queue{Tokens: 100}}, 4)
	for _, c := range []struct {
		prompt          string
		n, most, status int
	}{
		{`"` + strings.Repeat("a", 60) + `"`, 1, 40, 200},
		{`"` + strings.Repeat("a", 60) + `"`, 1, 41, 400},
		{`"` + strings.Repeat("a", 30) + `"`, 2, 20, 200},
		{`"` + strings.Repeat("a", 30) + `"`, 2, 21, 400},
		{`["` + strings.Repeat("a", 11) + `", "bcd"]`, 3, 9, 200}, // 3·11 + 3·3 + 6·9 = 96
		{`["` + strings.Repeat("a", 11) + `", "bcd"]`, 3, 10, 400},
	} {
		body := fmt.Sprintf(`{"prompt": %s, "n": %d, "max_tokens": %d, "ignore_eos": true}`, c.prompt, c.n, c.most)
		if c.status != 200 {
			if status, text := post(t, h, "/v1/completions", body); status != c.status || !strings.Contains(text, "this server's limit is 100") {
				t.Errorf("%s: %d %s", body, status, text)
			}
			continue
		}
		a := ask(t, h, "/v1/completions", body)
		prompt := strings.Count(c.prompt, "a") + 3*strings.Count(c.prompt, "bcd")
		if a.Usage.Prompt != prompt || a.Usage.Completion != len(a.Choices)*c.most || a.Usage.Total != prompt+len(a.Choices)*c.most {
			t.Errorf("%s: %+v", body, a.Usage)
		}
	}
}

// TestClip: a chat that says no max_tokens gets what there is room for; one that asks for
// more than that is refused.
func TestClip(t *testing.T) {
	const room = 37
	m, err := krait.Open("../../testdata/golden/jamba", krait.Options{Slots: 1, Context: room})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	const talk = `{"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": true`
	a := ask(t, h, "/v1/chat/completions", talk+"}")
	if a.Usage.Completion != room-a.Usage.Prompt+1 || a.Usage.Completion < 2 || *a.Choices[0].Finish != "length" {
		t.Errorf("%+v %s", a.Usage, *a.Choices[0].Finish)
	}
	for more, want := range map[int]int{0: 200, 1: 400} {
		if status, text := post(t, h, "/v1/chat/completions", fmt.Sprintf(`%s, "max_tokens": %d}`, talk, a.Usage.Completion+more)); status != want {
			t.Errorf("%d more than there is room for: %d %s", more, status, text)
		}
	}
}

// TestStalledReader: a client that stays and reads nothing of its stream ends by Stall, long
// before its tokens do, and the server goes on.
func TestStalledReader(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{Stall: 100 * time.Millisecond, Queue: openai.Queue{Tokens: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(s)
	h.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		c.(*net.TCPConn).SetWriteBuffer(1 << 12) // or megabytes would go before anybody waits
		return ctx
	}
	h.Start()
	defer h.Close()
	c, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(1 << 12)
	const body = `{"prompt": "a", "max_tokens": 10000000, "ignore_eos": true, "stream": true}`
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	until(t, "it begins", func() bool { return m.Session().Scheduler().Load().Tokens > 0 })
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} && m.Session().Scheduler().Load().Running == 0 })
	ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`)
}

// counted is a body that says how much of it was read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// TestLargeBodies: bodies of 100 MB and deep JSON are refused, with a status and in bounded
// memory, of what is too large no more is read than may come, and the server goes on.
func TestLargeBodies(t *testing.T) {
	const most, memory = 1 << 20, 64 << 20
	s, h, _ := server(t, openai.Options{Body: most}, 1)
	deep := func(head, open, tail string) io.Reader {
		n := (most - len(head) - len(tail)) / len(open)
		return strings.NewReader(head + strings.Repeat(open, n) + tail)
	}
	huge := func(head string) io.Reader {
		return io.MultiReader(strings.NewReader(head), io.LimitReader(endless("aaaaaaaa"), 100<<20), strings.NewReader(`"}`))
	}
	for name, c := range map[string]struct {
		path   string
		body   io.Reader
		status int
	}{
		"100 MB":             {"/v1/completions", huge(`{"prompt": "`), 413},
		"100 MB of a chat":   {"/v1/chat/completions", huge(`{"messages": [{"role": "user", "content": "`), 413},
		"100 MB to tokenize": {"/tokenize", huge(`{"prompt": "`), 413},
		"100 MB of a name":   {"/v1/completions", huge(`{"`), 413},
		"deep":               {"/v1/completions", deep("", "[", ""), 400},
		"deep objects":       {"/v1/completions", deep("", `{"a":`, ""), 400},
		"deep prompt":        {"/v1/completions", deep(`{"prompt": `, "[", ""), 400},
		"deep messages":      {"/v1/chat/completions", deep(`{"messages": `, `[{"content":`, ""), 400},
		"deep variables":     {"/v1/chat/completions", deep(`{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"a": `, "[", ""), 400},
		"many messages":      {"/tokenize", deep(`{"messages": [`, `{"role": "user", "content": "a"},`, `{"role": "user", "content": "a"}]}`), 400},
		"many variables":     {"/v1/chat/completions", deep(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "chat_template_kwargs": {"a": [`, `0,`, `0]}}`), 400},
		"a large schema":     {"/v1/completions", deep(`{"prompt": "a", "max_tokens": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [`, `1,`, `1]}}}}`), 400},
		"whole":              {"/v1/completions", strings.NewReader(`{"prompt": ` + strings.Repeat("[", most/3) + strings.Repeat("]", most/3) + "}"), 400},
		"ids":                {"/detokenize", deep(`{"tokens": `, "[", ""), 400},
	} {
		body := &counted{Reader: c.body}
		r := httptest.NewRequest(http.MethodPost, c.path, body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; w.Code != c.status || took > memory || body.n > most+1 || w.Body.Len() > 2000 {
			t.Errorf("%s: status %d, want %d; %d bytes of memory, of %d that were read; %.200s", name, w.Code, c.status, took, body.n, w.Body)
		}
	}
	if r, err := http.Post(h.URL+"/v1/completions", "application/json", huge(`{"prompt": "`)); err == nil && r.StatusCode != 413 { // or it was cut while it sent
		t.Error(r.Status)
	}
	ask(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`)
}

package openai_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// TestContext: if a model's KV cache has room for n tokens, a prompt and what is to
// come must fit, to the token, and the error says so.
func TestContext(t *testing.T) {
	m, err := krait.Open("../../testdata/golden/jamba", krait.Options{Slots: 1, Context: 12})
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
	if status, text := post(t, h, "/v1/completions", `{"prompt": [1, 2, 3, 4, 5], "max_tokens": 8, "ignore_eos": true}`); status != 200 {
		t.Errorf("5 tokens and 8, of which the last is not fed: %d %s", status, text)
	}
	status, text := post(t, h, "/v1/completions", `{"prompt": [1, 2, 3, 4, 5], "max_tokens": 9, "ignore_eos": true}`)
	if status != 400 || !strings.Contains(text, `"param":"max_tokens"`) || !strings.Contains(text, "context_length_exceeded") {
		t.Errorf("one more: %d %s", status, text)
	}
}

// deaf takes a few writes and then no more, as a connection does whose deadline for writing
// has passed; the request is not cancelled.
type deaf struct {
	*httptest.ResponseRecorder
	left int
}

func (d *deaf) Write(data []byte) (int, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("the client does not read")
	}
	return d.ResponseRecorder.Write(data)
}

// TestUnread: a stream that the client does not read ends, long before its tokens do.
func TestUnread(t *testing.T) {
	s, _, m := server(t, openai.Options{Queue: openai.Queue{Tokens: 1 << 30}}, 1)
	before := m.Session().Scheduler().Load().Tokens
	body := `{"prompt": "a", "max_tokens": 100000, "ignore_eos": true, "stream": true}`
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(&deaf{httptest.NewRecorder(), 3}, r)
	if n := m.Session().Scheduler().Load().Tokens - before; n > 10_000 {
		t.Errorf("%d tokens that no client read", n)
	}
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} })
}

// TestPauses: over HTTP/2, too, a stream may pause for longer than a write may take.
func TestPauses(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const stall = 300 * time.Millisecond // a busy machine writes in less
	s, err := openai.New(m, openai.Options{Stall: stall})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(&slow{ResponseWriter: w, pause: stall * 3 / 2, left: 2}, r)
	}))
	h.EnableHTTP2 = true
	h.StartTLS()
	defer h.Close()
	r, err := h.Client().Post(h.URL+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "a", "max_tokens": 3, "ignore_eos": true, "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err != nil || r.ProtoMajor != 2 || !strings.Contains(string(text), "[DONE]") {
		t.Errorf("HTTP/%d: %q, %v", r.ProtoMajor, text, err)
	}
}

// slow pauses before the first writes.
type slow struct {
	http.ResponseWriter
	pause time.Duration
	left  int // pauses
}

func (s *slow) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && s.left > 0 {
		s.left--
		time.Sleep(s.pause) // before the deadline that it sets
		at = at.Add(s.pause)
	}
	return http.NewResponseController(s.ResponseWriter).SetWriteDeadline(at)
}

func (s *slow) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// TestTenants: what one key has sent is no hit for another, unless all are to share, and each
// gets the texts that it would get alone.
func TestTenants(t *testing.T) {
	for _, share := range []bool{false, true} {
		_, h, _ := server(t, openai.Options{Keys: keysOf(t, "ann", "bob"), ShareCache: share}, 2)
		text := ""
		ask := func(key string, hit bool, tail string) {
			t.Helper()
			status, a := as(t, h, key, fmt.Sprintf(`{"prompt": %q, "temperature": 0, "max_tokens": 4}`, genesis+genesis+tail))
			if status != 200 || (a.Usage.Details.Cached > 0) != hit {
				t.Errorf("share %v, %s%q: %d, %+v", share, key, tail, status, a.Usage)
			}
			if tail == " c" {
				if text == "" {
					text = a.Choices[0].Text
				} else if text != a.Choices[0].Text {
					t.Errorf("share %v, %s: %q, want %q", share, key, a.Choices[0].Text, text)
				}
			}
		}
		for _, tail := range []string{" a", "\nb", " c"} { // after 64 tokens the first leaves a state
			ask("ann", tail != " a", tail)
		}
		for _, tail := range []string{" d", "\ne", " c"} {
			ask("bob", share || tail != " d", tail)
		}
	}
}

// keysOf are keys with the names of their tenants.
func keysOf(t *testing.T, names ...string) *openai.Keys {
	t.Helper()
	file := ""
	for _, name := range names {
		file += fmt.Sprintf("%s %x\n", name, sha256.Sum256([]byte(name)))
	}
	keys, err := openai.ReadKeys(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// as asks for a completion with a key.
func as(t *testing.T, h *httptest.Server, key, body string) (status int, a answer) {
	t.Helper()
	r := send(t, h, key, body)
	if err := json.Unmarshal(r.text, &a); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, a
}

// TestRateRetryAfter: a key that has had its requests, or tokens, of a minute gets 429 with the
// seconds, rounded up, after which it may come again, and the API's error; another key is served.
func TestRateRetryAfter(t *testing.T) {
	for _, c := range []struct {
		rate  openai.Rate
		body  string
		times int     // that it is served
		retry float64 // seconds, had it all taken no time
	}{
		{openai.Rate{Requests: 2}, `{"prompt": "a", "max_tokens": 1}`, 2, 30}, // one per 30 s
		{openai.Rate{Requests: 1}, `{"prompt": "a", "max_tokens": 1, "stream": true}`, 1, 60},
		{openai.Rate{Tokens: 100}, `{"prompt": "aaaaaaaaaa", "max_tokens": 70, "ignore_eos": true}`, 1, 36}, // 60 more than the 20 left of 100
	} {
		_, h, _ := server(t, openai.Options{Keys: keysOf(t, "ann", "bob"), Queue: openai.Queue{Rate: c.rate}}, 2)
		begun := time.Now()
		for i := range c.times + 2 {
			r := send(t, h, "ann", c.body)
			if i < c.times {
				if r.StatusCode != 200 || r.Header.Get("Retry-After") != "" {
					t.Errorf("%+v, request %d: %d", c.rate, i, r.StatusCode)
				}
				continue
			}
			var a answer
			after, wrong := strconv.Atoi(r.Header.Get("Retry-After"))
			if err := json.Unmarshal(r.text, &a); err != nil || wrong != nil || r.StatusCode != 429 || float64(after) > c.retry ||
				float64(after) < c.retry-time.Since(begun).Seconds() || a.Error == nil || a.Error.Code != "rate_limit_exceeded" || a.Error.Type != "rate_limit_error" || a.Error.Param != "" {
				t.Errorf("%+v, request %d: %d, Retry-After %q, want %v: %s", c.rate, i, r.StatusCode, r.Header.Get("Retry-After"), c.retry, r.text)
			}
		}
		if r := send(t, h, "bob", c.body); r.StatusCode != 200 {
			t.Errorf("%+v, another key: %d", c.rate, r.StatusCode)
		}
	}
}

// sent is an answer, all of which was read.
type sent struct {
	*http.Response
	text []byte
}

// send asks for a completion with a key.
func send(t *testing.T, h *httptest.Server, key, body string) sent {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, h.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	got, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return sent{got, text}
}

package openai

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/text/tokenizer"
)

// counter is a tokenizer that counts the texts that it encodes. Each token is decoded as piece, if
// there is one.
type counter struct {
	tokenizer.Tokenizer
	encoded atomic.Int64
	piece   string
}

func (c *counter) Encode(text string, special bool) ([]int, error) {
	c.encoded.Add(1)
	return c.Tokenizer.Encode(text, special)
}

func (c *counter) NewStream(skip bool) tokenizer.Stream {
	if c.piece == "" {
		return c.Tokenizer.NewStream(skip)
	}
	return repeated(c.piece)
}

type repeated string

func (r repeated) Push(int) string { return string(r) }
func (r repeated) Flush() string   { return "" }

// counted serves the embedded model to ann and bob, or without keys to all, with metrics.
func counted(t *testing.T, o Options, keys bool) (*Server, *counter) {
	t.Helper()
	m, err := krait.Embedded(krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if keys {
		file := fmt.Sprintf("ann %x\nbob %x\n", sha256.Sum256([]byte("ann")), sha256.Sum256([]byte("bob")))
		if o.Keys, err = ReadKeys(strings.NewReader(file)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{Tokenizer: s.tokens}
	s.tokens = c
	return s, c
}

// post asks a server with a key, and returns the answer.
func post(s *Server, key, path string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// codeOf is the code of an error's answer.
func codeOf(w *httptest.ResponseRecorder) string {
	var a struct{ Error struct{ Code string } }
	json.Unmarshal(w.Body.Bytes(), &a)
	return a.Error.Code
}

// TestBodiesAtOnce: of many large bodies at once, as many are accepted as half of the bound has
// room for, the others are refused unread; another key has room; and all of it is given back.
func TestBodiesAtOnce(t *testing.T) {
	const body, most = 1 << 16, 1 << 19
	for path, large := range map[string]string{"/tokenize": `{"prompt": "%s"}`, "/v1/completions": `{"prompt": "a", "max_tokens": 1, "user": "%s"}`} {
		s, c := counted(t, Options{Body: body, Bodies: most}, true)
		text := fmt.Sprintf(large, strings.Repeat("a", body-100))
		goOn := make(chan struct{})
		var refused, read atomic.Int64
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				sent := &started{Reader: strings.NewReader(text), read: &read, goOn: goOn}
				switch w := post(s, "ann", path, sent); {
				case w.Code == http.StatusTooManyRequests:
					if sent.begun || w.Header().Get("Retry-After") == "" || codeOf(w) != "bodies_full" {
						t.Errorf("%s: %s, read: %t", path, w.Body, sent.begun)
					}
					refused.Add(1)
				case w.Code != http.StatusOK:
					t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
				}
			})
		}
		for refused.Load()+read.Load() < 40 {
			time.Sleep(time.Millisecond)
		}
		if held := s.intake.bytes.Held(); read.Load() != most/2/body || held != most/2 {
			t.Errorf("%s: %d bodies of %d bytes are read at once, %d bytes; the bound of a key is %d", path, read.Load(), body, held, most/2)
		}
		if w := post(s, "bob", path, strings.NewReader(`{"prompt": "a"}`)); w.Code != http.StatusOK {
			t.Errorf("%s: another key gets %d %s", path, w.Code, w.Body)
		}
		close(goOn)
		all.Wait()
		if s.intake.bytes.Held() != 0 || s.intake.busy != 0 || c.encoded.Load() != read.Load()+1 {
			t.Errorf("%s: %d bytes are held at the end; %d texts were encoded, want %d", path, s.intake.bytes.Held(), c.encoded.Load(), read.Load()+1)
		}
	}
}

// started is a body that says when it is first read, and goes on then.
type started struct {
	io.Reader
	begun bool
	read  *atomic.Int64
	goOn  chan struct{}
}

func (s *started) Read(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.read.Add(1)
		<-s.goOn
	}
	return s.Reader.Read(p)
}

// TestRefusedUnread: a request is refused before its body is read, if that can be known: without a
// key, for its length, for the rate, for the queue and while the server drains.
func TestRefusedUnread(t *testing.T) {
	s, c := counted(t, Options{Queue: Queue{Requests: 1, Rate: Rate{Requests: 1}}}, true)
	ask := func(key string, length int64, status int, code string) {
		t.Helper()
		for _, path := range []string{"/tokenize", "/detokenize", "/v1/completions", "/v1/chat/completions"} {
			body := &started{Reader: strings.NewReader("{}"), read: new(atomic.Int64), goOn: make(chan struct{})}
			close(body.goOn)
			r := httptest.NewRequest(http.MethodPost, path, body)
			r.ContentLength = length
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != status || codeOf(w) != code || body.begun || s.intake.bytes.Held() != 0 {
				t.Errorf("%s with the key %q: %d %s, want %d %s; read: %t", path, key, w.Code, w.Body, status, code, body.begun)
			}
			if retry := w.Header().Get("Retry-After"); (retry != "") != (status == 429 || status == 503) {
				t.Errorf("%s: %d with Retry-After %q", path, status, retry)
			}
		}
	}
	ask("eve", 1<<20, 401, "invalid_api_key")
	ask("ann", 1<<30, 413, "body_too_large")
	if w := post(s, "ann", "/tokenize", strings.NewReader(`{"prompt": "a"}`)); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	ask("ann", 2, 429, "rate_limit_exceeded")
	tickets, err := s.queue.Enter("bob", []admit.Text{{Prompt: 1}, {Prompt: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ask("bob", 2, 429, "queue_full")
	for _, k := range tickets {
		k.Leave(1)
	}
	s.Drain()
	ask("ann", 2, 503, "draining")
	if c.encoded.Load() != 1 {
		t.Errorf("%d texts were encoded", c.encoded.Load())
	}
}

// TestRefusedUnencoded: a prompt that cannot fit, or that a key has no tokens left for, is refused
// before it is encoded; tokens of /tokenize and /detokenize count.
func TestRefusedUnencoded(t *testing.T) {
	s, c := counted(t, Options{Queue: Queue{Tokens: 1000, Rate: Rate{Tokens: 200}}}, true)
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	for _, step := range []struct {
		key, path, body string
		status          int
		code            string
		encoded         int64
	}{
		{"ann", "/v1/completions", `{"prompt": ` + text(1001) + `}`, 400, "context_length_exceeded", 0},
		{"ann", "/v1/completions", `{"prompt": [` + text(500) + "," + text(501) + `]}`, 400, "context_length_exceeded", 0},
		{"ann", "/v1/chat/completions", `{"messages": [{"role": "user", "content": ` + text(1001) + `}]}`, 400, "context_length_exceeded", 0},
		{"ann", "/tokenize", `{"prompt": ` + text(150) + `}`, 200, "", 1},
		{"ann", "/tokenize", `{"prompt": ` + text(51) + `}`, 429, "rate_limit_exceeded", 1},
		{"ann", "/tokenize", `{"messages": [{"role": "user", "content": ` + text(51) + `}]}`, 429, "rate_limit_exceeded", 1},
		{"ann", "/v1/completions", `{"prompt": ` + text(51) + `}`, 429, "rate_limit_exceeded", 1},
		{"ann", "/v1/chat/completions", `{"messages": [{"role": "user", "content": ` + text(51) + `}]}`, 429, "rate_limit_exceeded", 1},
		{"ann", "/detokenize", `{"tokens": [` + strings.Repeat("9,", 50) + `9]}`, 429, "rate_limit_exceeded", 1},
		{"ann", "/detokenize", `{"tokens": [` + strings.Repeat("9,", 40) + `9]}`, 200, "", 1},
		{"ann", "/detokenize", `{"tokens": [` + strings.Repeat("9,", 40) + `9]}`, 429, "rate_limit_exceeded", 1},
		{"bob", "/tokenize", `{"prompt": ` + text(150) + `}`, 200, "", 2},
	} {
		if w := post(s, step.key, step.path, strings.NewReader(step.body)); w.Code != step.status || codeOf(w) != step.code || c.encoded.Load() != step.encoded {
			t.Errorf("%s %s %.60s: %d %.200s; %d texts were encoded, want %d %s, %d", step.key, step.path, step.body, w.Code, w.Body, c.encoded.Load(), step.status, step.code, step.encoded)
		}
	}
}

// TestEstimate: the estimate of a text's tokens is replaced by their number once it is encoded.
func TestEstimate(t *testing.T) {
	s, _ := counted(t, Options{Queue: Queue{Rate: Rate{Tokens: 100}}}, false)
	s.longestToken = func() int { return 10 }
	body := `{"prompt": "` + strings.Repeat("a", 150) + `"}` // at least 15 tokens by the estimate, and 150
	if w := post(s, "", "/tokenize", strings.NewReader(body)); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	w := post(s, "", "/tokenize", strings.NewReader(`{"prompt": "a"}`))
	if retry := w.Header().Get("Retry-After"); w.Code != 429 || retry < "30" || retry > "31" { // 50 too many were taken, of 100 per minute
		t.Errorf("after 150 tokens of 100: %d, Retry-After %s", w.Code, retry)
	}
}

// TestDecodedBound: a text of tokens is no longer than a body, however long the tokens are.
func TestDecodedBound(t *testing.T) {
	s, c := counted(t, Options{Body: 1000}, false)
	c.piece = strings.Repeat("a", 100)
	for n, status := range map[int]int{10: 200, 11: 400} {
		if w := post(s, "", "/detokenize", strings.NewReader(`{"tokens": [`+strings.Repeat("9,", n-1)+`9]}`)); w.Code != status || w.Body.Len() > 1100 {
			t.Errorf("%d tokens of 100 bytes: %d %.100s", n, w.Code, w.Body)
		}
	}
}

// TestTurns: bodies wait while one more does not fit the bound; the first of another sender
// begins before those of one that has had much, and none passes a larger one before it.
func TestTurns(t *testing.T) {
	in := newIntake(160_000, 10_000) // 20,000 bytes at once
	var order []string
	enter := func(sender string, size int) *lease {
		t.Helper()
		l, err := in.take(sender, int64(size))
		if err != nil {
			t.Fatal(err)
		}
		go l.wait(context.Background())
		for {
			in.mu.Lock()
			entered := l.has || slices.Contains(in.waiting, l)
			in.mu.Unlock()
			if entered {
				return l
			}
			time.Sleep(time.Millisecond)
		}
	}
	name := map[*lease]string{}
	for i, l := range []*lease{enter("a", 10_000), enter("a", 10_000), enter("a", 10_000), enter("a", 20_000), enter("a", 5000), enter("b", 5000), enter("c", 10_000)} {
		name[l] = fmt.Sprint(l.sender, i)
	}
	var under []*lease // that have their turn, the first of them ends next
	for len(name) > 0 {
		in.mu.Lock()
		for _, l := range slices.SortedFunc(maps.Keys(name), func(a, b *lease) int { return cmp.Compare(a.start, b.start) }) {
			if l.has {
				under, order = append(under, l), append(order, name[l])
				delete(name, l)
			}
		}
		in.mu.Unlock()
		if len(under) == 0 {
			t.Fatal("no lease has a turn")
		}
		under[0].end()
		under = under[1:]
	}
	for _, l := range under {
		l.end()
	}
	if want := "a0 a1 b5 c6 a2 a3 a4"; strings.Join(order, " ") != want {
		t.Errorf("turns begin in the order %v, want %s", order, want)
	}
	if in.busy != 0 || in.bytes.Held() != 0 || len(in.waiting)+len(in.finish) != 0 {
		t.Errorf("something is left: %d bytes busy, %d held, %d wait", in.busy, in.bytes.Held(), len(in.waiting))
	}
}

// TestGone: who waits for a turn and has gone waits no more, and leaves nothing behind.
func TestGone(t *testing.T) {
	in := newIntake(160_000, 10_000)
	first, err := in.take("a", 20_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancelCause(t.Context())
	second, err := in.take("a", 20_000)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	leave(gone)
	if err := second.wait(ctx); !errors.Is(err, gone) {
		t.Errorf("who has gone waits until %v", err)
	}
	second.end()
	first.end()
	first.end()
	if in.busy != 0 || in.bytes.Held() != 0 || len(in.waiting)+len(in.finish) != 0 {
		t.Errorf("something is left: %d bytes busy, %d held, %d wait", in.busy, in.bytes.Held(), len(in.waiting))
	}
}

// deadlines keeps the deadlines that a request's reading is given.
type deadlines struct {
	http.ResponseWriter
	list []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.list = append(d.list, at)
	return nil
}

// TestTimedBody: a body must begin in a third of the time, and come at the rate of the largest.
func TestTimedBody(t *testing.T) {
	d := &deadlines{ResponseWriter: httptest.NewRecorder()}
	w := &response{ResponseWriter: d, control: http.NewResponseController(d), stall: 30 * time.Second}
	begun := time.Now()
	b := &timedBody{ReadCloser: io.NopCloser(strings.NewReader("abcdef")), w: w, begun: begun, rate: 2}
	for range 3 {
		if _, err := io.ReadFull(b, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := []time.Time{begun.Add(10 * time.Second), begun.Add(11 * time.Second), begun.Add(12 * time.Second), begun.Add(13 * time.Second), {}}
	if !slices.Equal(d.list, want) {
		t.Errorf("deadlines %v, want %v", d.list, want)
	}
}

// FuzzMembers finds the members of objects where the library's decoder does.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{`{}`, ` { "a" : 1 , "b":[1,{"c":"]}"}] }`, `{"\"\\":"\\\"","x":-1.5e3,"y":null}`, `{"a":[[],{}],"b":true}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			return
		}
		got := map[string]json.RawMessage{}
		maps.Insert(got, members(data))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	})
}

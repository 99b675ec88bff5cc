package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/prefix"
)

// clock is told the time. A server that has sent a part waits until the client has looked.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	looks int
	slept []time.Duration
	look  *sync.Cond
}

func newClock() *clock {
	c := &clock{now: time.Unix(1000, 0)}
	c.look = sync.NewCond(&c.mu)
	return c
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	c.look.Broadcast()
	return c.now
}

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.slept = append(c.slept, d)
	return ctx.Err()
}

// send lets time go by, sends an event, and waits until the client has seen it.
func (c *clock) send(w http.ResponseWriter, after time.Duration, data string) {
	c.mu.Lock()
	c.now = c.now.Add(after)
	want := c.looks + 1
	c.mu.Unlock()
	fmt.Fprintf(w, ": hold on\n\ndata: %s\n\n", data)
	w.(http.Flusher).Flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.looks < want {
		c.look.Wait()
	}
}

const ms = time.Millisecond

func uniform(t *testing.T, n, prompt, output int) []prefix.Request {
	t.Helper()
	trace, err := load.Uniform(n, prompt, output)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func scripted(t *testing.T, handle http.HandlerFunc) load.Server {
	t.Helper()
	h := httptest.NewServer(handle)
	t.Cleanup(h.Close)
	return load.Server{URL: h.URL + "/v1", Model: "m"}
}

func stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
}

const usage = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":3}}}`

// TestTimes: request i has its first token after 100·(i+1) ms, and each of the 4 others after
// 10·(i+1) ms more, but one that takes 25 ms more still.
func TestTimes(t *testing.T) {
	for _, chat := range []bool{false, true} {
		c := newClock()
		asked := 0
		s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
			var q struct {
				Model    string
				Prompt   *string
				Messages []struct{ Role, Content string }
				Most     int `json:"max_tokens"`
				Stream   bool
				Options  map[string]bool `json:"stream_options"`
				EOS      bool            `json:"ignore_eos"`
			}
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			if q.Model != "m" || q.Most != 5 || !q.Stream || !q.Options["include_usage"] || !q.EOS || r.Header.Get("Authorization") != "Bearer sesame" || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("asked for %+v with %v", q, r.Header)
			}
			text := `{"choices":[{"text":"x"}]}`
			if chat {
				if r.URL.Path != "/v1/chat/completions" || q.Prompt != nil || len(q.Messages) != 1 || q.Messages[0].Role != "user" || len(strings.Fields(q.Messages[0].Content)) != 3 {
					t.Errorf("%s is asked for %+v", r.URL.Path, q)
				}
				text = `{"choices":[{"delta":{"content":"x"}}]}`
			} else if r.URL.Path != "/v1/completions" || q.Messages != nil || len(strings.Fields(*q.Prompt)) != 3 {
				t.Errorf("%s is asked for %+v", r.URL.Path, q)
			}
			asked++
			k := time.Duration(asked)
			stream(w)
			c.send(w, 50*k*ms, `{"choices":[{"delta":{"role":"assistant","content":""},"text":""}]}`) // no token yet
			c.send(w, 50*k*ms, text)
			for i := range 4 {
				wait := 10 * k * ms
				if i == 2 {
					wait += 25 * ms
				}
				c.send(w, wait, text)
			}
			c.send(w, 5*ms, fmt.Sprintf(usage, 5))
			c.send(w, 0, "[DONE]")
		})
		s.Chat, s.Key = chat, "sesame"
		var done []int
		r, err := load.Run(t.Context(), load.Options{Server: s, Trace: uniform(t, 10, 3, 5), Loads: []load.Load{{Concurrency: 1}}, IgnoreEOS: true, Clock: c, Ranks: 2,
			Progress: func(n, all int) { done = append(done, n, all) }})
		if err != nil {
			t.Fatal(err)
		}
		x := r.Loads[0]
		// Of ten values the 5th is the median, and the 10th the others.
		close := func(what string, got *load.Times, p50, p95, p99, most float64) {
			t.Helper()
			for _, v := range [][2]float64{{got.P50, p50}, {got.P95, p95}, {got.P99, p99}, {got.Most, most}} {
				if math.Abs(v[0]-v[1]) > 1e-9 {
					t.Errorf("chat %v: %s is %+v", chat, what, got)
				}
			}
		}
		close("TTFT", x.TTFT, 0.5, 1, 1, 1)
		close("TPOT", x.TPOT, 0.05+0.00625, 0.1+0.00625, 0.1+0.00625, 0.1+0.00625)
		close("latency", x.Latency, 0.5+0.2+0.025, 1.425, 1.425, 1.425)
		close("gaps", x.Gaps, 0.06, 0.105, 0.125, 0.125) // of 40 the 20th, 38th and 40th
		seconds := 55*0.14 + 10*0.030
		if x.OK != 10 || x.Failed() != 0 || x.Prompt != 70 || x.Cached != 30 || x.Tokens != 50 || x.Parts != 0 || math.Abs(x.Seconds-seconds) > 1e-9 ||
			math.Abs(x.TokensPerSecond-50/seconds) > 1e-9 || math.Abs(x.PerRank-25/seconds) > 1e-9 || math.Abs(x.RequestsPerSecond-10/seconds) > 1e-9 || math.Abs(*x.PerUser-1/0.05625) > 1e-6 {
			t.Errorf("chat %v: %+v", chat, x)
		}
		if len(done) != 20 || done[18] != 10 || done[19] != 10 {
			t.Errorf("progress was %v", done)
		}
	}
}

// prompts are those that a server was asked for.
func prompts(t *testing.T, o load.Options) (texts []string) {
	t.Helper()
	var mu sync.Mutex
	o.Server = scripted(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Prompt json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		mu.Lock()
		texts = append(texts, string(q.Prompt))
		mu.Unlock()
		stream(w)
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n")
	})
	r, err := load.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Loads {
		if x.OK != len(o.Trace) || x.Parts != x.OK || x.Tokens != x.OK || x.TPOT != nil || x.PerUser != nil {
			t.Errorf("%+v", x)
		}
	}
	return texts
}

// TestSeeds: the same seed asks the same, another one another; loads of a sweep share nothing.
func TestSeeds(t *testing.T) {
	o := load.Options{Trace: uniform(t, 5, 7, 1), Loads: []load.Load{{Concurrency: 1}, {Concurrency: 1}}}
	first := prompts(t, o)
	if !slices.Equal(first, prompts(t, o)) {
		t.Error("the same options ask for others")
	}
	o.Seed = 1
	all := append(first, prompts(t, o)...)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 20 {
		t.Errorf("of 20 prompts %d are different", n)
	}
	o.Vocab = 11
	for _, p := range prompts(t, o) {
		var ids []int
		if err := json.Unmarshal([]byte(p), &ids); err != nil || len(ids) != 7 || slices.Min(ids) < 0 || slices.Max(ids) > 10 {
			t.Errorf("the ids are %s", p)
		}
	}
}

// TestShared: what requests of a trace share their prompts share, and no more.
func TestShared(t *testing.T) {
	var b prefix.Builder
	var trace []prefix.Request
	for i := range 2 {
		b.Append(10, 6)
		b.Append(int32(100*(i+1)), 4)
		trace = append(trace, prefix.Request{At: float64(i), Tokens: b.Tokens(), InputLen: 9})
	}
	c := newClock()
	texts := prompts(t, load.Options{Trace: trace, Loads: []load.Load{{Concurrency: 1}}, Clock: c})
	a, z := strings.Fields(strings.Trim(texts[0], `"`)), strings.Fields(strings.Trim(texts[1], `"`))
	if len(a) != 9 || !slices.Equal(a[:6], z[:6]) || a[6] == z[6] {
		t.Errorf("%q", texts)
	}
}

// TestOpen: requests come when the trace says, or after random times of the right mean, which
// the seed decides, and none waits for another.
func TestOpen(t *testing.T) {
	var here sync.WaitGroup
	const n = 400
	here.Add(n)
	s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		here.Done()
		here.Wait() // all are running
		stream(w)
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n")
	})
	c := newClock()
	if _, err := load.Run(t.Context(), load.Options{Server: s, Trace: uniform(t, n, 1, 1), Loads: []load.Load{{Rate: 50}}, Clock: c}); err != nil {
		t.Fatal(err)
	}
	var all time.Duration
	short := 0
	for _, d := range c.slept {
		if all += d; d < 20*ms {
			short++
		}
	}
	// The mean of 400 has a deviation of 5 %, and 63 % are shorter than it.
	if m := all.Seconds() / n; len(c.slept) < n-1 || m < 0.017 || m > 0.023 || short < 220 || short > 290 {
		t.Errorf("%d times of %g seconds, %d of them short", len(c.slept), m, short)
	}
	trace := uniform(t, 3, 1, 1)
	for i, at := range []float64{5, 5.5, 7} {
		trace[i].At = at
	}
	c = newClock()
	prompts(t, load.Options{Trace: trace, Loads: []load.Load{{}}, Clock: c})
	if want := []time.Duration{500 * ms, 1500 * ms}; !reflect.DeepEqual(c.slept, want) {
		t.Errorf("times are %v, want %v", c.slept, want)
	}
}

// TestFailures: each is counted by its kind, with what the server said, and the times of the
// others are there.
func TestFailures(t *testing.T) {
	part := "data: {\"choices\":[{\"text\":\"x\"}]}\n\n"
	hold := make(chan struct{})
	cases := []struct {
		kind, message string
		handle        http.HandlerFunc
	}{
		{"", "", func(w http.ResponseWriter, r *http.Request) { stream(w); io.WriteString(w, part+"data: [DONE]\n\n") }},
		{"status 429", "come later", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(429)
			io.WriteString(w, `{"error":{"message":"come later"}}`)
		}},
		{"status 502", "no gateway", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502); io.WriteString(w, "no gateway\n") }},
		{"status 307", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/v1/completions")
			w.WriteHeader(307)
		}},
		{load.ErrorEvent, "step failed", func(w http.ResponseWriter, r *http.Request) {
			stream(w)
			io.WriteString(w, part+"data: {\"error\":{\"message\":\"step failed\"}}\n\n")
		}},
		{load.Cut, "without its last event", func(w http.ResponseWriter, r *http.Request) { stream(w); io.WriteString(w, part) }},
		{load.Cut, "unexpected EOF", func(w http.ResponseWriter, r *http.Request) {
			stream(w)
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		{load.Unreached, "EOF", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }},
		{load.Malformed, "application/json", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":[]}`)
		}},
		{load.Malformed, "invalid character", func(w http.ResponseWriter, r *http.Request) { stream(w); io.WriteString(w, "data: {x\n\n") }},
		{load.Malformed, "a line of more than", func(w http.ResponseWriter, r *http.Request) {
			stream(w)
			io.WriteString(w, "data: "+strings.Repeat("x", 1<<20))
		}},
		{load.Malformed, "parts for 2 tokens", func(w http.ResponseWriter, r *http.Request) { stream(w); io.WriteString(w, strings.Repeat(part, 99)) }},
		{load.Empty, "no text", func(w http.ResponseWriter, r *http.Request) { stream(w); io.WriteString(w, "data: [DONE]\n\n") }},
		{load.Timeout, "exceeded the client's timeout", func(w http.ResponseWriter, r *http.Request) {
			stream(w)
			w.(http.Flusher).Flush()
			<-hold
		}},
	}
	for _, c := range cases {
		s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			c.handle(w, r)
		})
		o := load.Options{Server: s, Trace: uniform(t, 1, 2, 2), Loads: []load.Load{{Concurrency: 3}}}
		if c.kind == load.Timeout {
			o.Timeout = ms
		}
		r, err := load.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		x := r.Loads[0]
		if c.kind == "" {
			if x.OK != 1 || x.Failed() != 0 {
				t.Errorf("%+v", x)
			}
			continue
		}
		if x.OK != 0 || x.TTFT != nil || !reflect.DeepEqual(x.Errors, map[string]int{c.kind: 1}) || !strings.Contains(x.Messages[c.kind], c.message) {
			t.Errorf("%+v, want %s: %s", x, c.kind, c.message)
		}
	}
	close(hold)
}

// TestCancelled: who stops it gets an error, and waits for no server.
func TestCancelled(t *testing.T) {
	for _, l := range []load.Load{{Concurrency: 2}, {Rate: 1000}} {
		ctx, stop := context.WithCancel(t.Context())
		s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			stop()
			<-r.Context().Done()
		})
		if _, err := load.Run(ctx, load.Options{Server: s, Trace: uniform(t, 9, 1, 1), Loads: []load.Load{l}}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestBad: what is wrong is said.
func TestBad(t *testing.T) {
	s := load.Server{URL: "http://127.0.0.1:1/v1", Model: "m"}
	chat := s
	chat.Chat = true
	trace, once := uniform(t, 1, 1, 1), []load.Load{{Concurrency: 1}}
	for want, o := range map[string]load.Options{
		"no request":                {Server: s, Loads: once},
		"no load":                   {Server: s, Trace: trace},
		"the vocabulary is 1":       {Server: s, Trace: trace, Loads: once, Vocab: 1},
		"chats take texts":          {Server: chat, Trace: trace, Loads: once, Vocab: 9},
		"-1 tokens":                 {Server: s, Trace: trace, Loads: once, MaxTokens: -1},
		"-2 at once":                {Server: s, Trace: trace, Loads: []load.Load{{Concurrency: -2}}},
		"and NaN per second":        {Server: s, Trace: trace, Loads: []load.Load{{Rate: math.NaN()}}},
		"1 at once and 1":           {Server: s, Trace: trace, Loads: []load.Load{{Concurrency: 1, Rate: 1}}},
		`the server is "ftp://x/"`:  {Server: load.Server{URL: "ftp://x/"}, Trace: trace, Loads: once},
		`the server is "localhost"`: {Server: load.Server{URL: "localhost"}, Trace: trace, Loads: once},
		"must be one line":          {Server: load.Server{URL: s.URL, Key: "a\nb"}, Trace: trace, Loads: once},
	} {
		if _, err := load.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, x := range [][3]int{{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1 << 20, 1 << 20, 1}, {math.MaxInt, math.MaxInt, 1}} {
		if _, err := load.Uniform(x[0], x[1], x[2]); err == nil {
			t.Errorf("%v is no error", x)
		}
	}
}

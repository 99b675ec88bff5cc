package tests

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/serving/route"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// hop is a span that a collector got.
type hop struct {
	Trace   string `json:"traceId"`
	Span    string `json:"spanId"`
	Parent  string `json:"parentSpanId"`
	Name    string `json:"name"`
	Kind    int    `json:"kind"`
	Start   string `json:"startTimeUnixNano"`
	End     string `json:"endTimeUnixNano"`
	service string
}

// collector is one for OpenTelemetry.
type collector struct {
	mu   sync.Mutex
	hops []hop
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []struct {
					Value struct{ StringValue string }
				}
			}
			ScopeSpans []struct{ Spans []hop }
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
		s.service = m.ResourceSpans[0].Resource.Attributes[0].Value.StringValue
		c.hops = append(c.hops, s)
	}
}

// shared is a log of several writers.
type shared struct {
	mu sync.Mutex
	bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(p)
}

// text is all of it.
func (s *shared) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.String()
}

// TestHops: a request's id and trace go through router, decode and prefill server: each logs the
// id, and the spans are a tree of one trace, whose times lie within their parents'.
func TestHops(t *testing.T) {
	got := &collector{}
	at := httptest.NewServer(got)
	defer at.Close()
	logs := map[string]*shared{}
	parts := map[string]*trace.Exporter{}
	logOf := func(service string) *slog.Logger {
		e, err := trace.New(trace.Options{URL: at.URL, Service: service})
		if err != nil {
			t.Fatal(err)
		}
		parts[service], logs[service] = e, &shared{}
		return slog.New(slog.NewJSONHandler(logs[service], nil))
	}
	open := func() *krait.Model {
		m, err := krait.Embedded(krait.Options{Slots: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	log := logOf("prefill")
	_, address := serveModel(t, open(), transfer.ServerOptions{Log: log, Trace: parts["prefill"]})
	m := open()
	client, err := prefill.New(m.Session(), prefill.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	log = logOf("decode")
	s, err := openai.New(m, openai.Options{Log: log, Trace: parts["decode"], Prefill: []krait.Prefiller{client}, PrefillNames: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	decode := httptest.NewServer(s)
	defer decode.Close()
	log = logOf("route")
	r, err := route.New(route.Options{Servers: []string{decode.URL}, Prefill: []string{address}, Log: log, Trace: parts["route"]})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := httptest.NewServer(r)
	defer h.Close()

	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ask := func(body string) (status int, id, text string) {
		q, err := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]string{"Content-Type": "application/json", "X-Request-Id": "mine:7", "Traceparent": parent} {
			q.Header.Set(name, v)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		all, _ := io.ReadAll(a.Body)
		return a.StatusCode, a.Header.Get("X-Request-Id"), string(all)
	}
	if status, id, text := ask(`{"prompt": "In the beginning God created", "max_tokens": 5, "n": 2, "ignore_eos": true}`); status != 200 || id != "mine:7" {
		t.Fatal(status, id, text)
	}
	if status, id, text := ask(`{"prompt": 3.5}`); status != 400 || id != "mine:7" || !strings.Contains(text, `"request_id":"mine:7"`) {
		t.Error(status, id, text)
	}
	decode.Close() // the handlers have ended
	for service, e := range parts {
		e.Close(t.Context())
		if e.Dropped() != 0 || e.Sent() == 0 {
			t.Errorf("%s: %d spans sent, %d dropped", service, e.Sent(), e.Dropped())
		}
		if !strings.Contains(logs[service].text(), `"id":"mine:7"`) {
			t.Errorf("the log of %s is %s", service, logs[service].text())
		}
	}
	got.check(t, trace.Parse(parent))
}

// check holds the spans of two requests, of which the second was rejected, against the tree they
// must be.
func (c *collector) check(t *testing.T, client trace.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID, counts := map[string]hop{}, map[string]int{}
	for _, s := range c.hops {
		byID[s.Span] = s
	}
	path := func(s hop) (all string) {
		for ok := true; ok; s, ok = byID[s.Parent] {
			all = s.service + " " + s.Name + "/" + all
			if s.Parent == hex.EncodeToString(client.Span[:]) {
				return all
			}
		}
		return "(no parent) " + all
	}
	for _, s := range c.hops {
		if s.Trace != hex.EncodeToString(client.Trace[:]) {
			t.Errorf("%+v is of another trace", s)
		}
		counts[path(s)]++
		if p, ok := byID[s.Parent]; ok {
			const slack = 2 * time.Millisecond // phases are added up
			if nanos(t, s.Start) < nanos(t, p.Start)-slack || nanos(t, s.End) > nanos(t, p.End)+slack || nanos(t, s.End) < nanos(t, s.Start) {
				t.Errorf("%s takes from %s to %s, and its parent from %s to %s", path(s), s.Start, s.End, p.Start, p.End)
			}
		}
	}
	const router, server = "route POST /v1/completions/", "route POST /v1/completions/route forward/decode POST /v1/completions/"
	for path, n := range map[string]int{router: 2, router + "route forward/": 2, server: 2, server + "decode queue/": 2, server + "decode prefill/": 1, server + "decode prefill/prefill prefill/": 1,
		server + "decode transfer/": 1, server + "decode decode/": 2} {
		if counts[path] != n {
			t.Errorf("%d spans %s, want %d", counts[path], path, n)
		}
		delete(counts, path)
	}
	if len(counts) > 0 {
		t.Errorf("there are also %v", counts)
	}
}

func nanos(t *testing.T, text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Error(err)
	}
	return time.Duration(n)
}

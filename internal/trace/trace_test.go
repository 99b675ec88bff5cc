package trace_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/trace"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" // the example of W3C's recommendation

// TestParse: a traceparent is what it was printed as, and a malformed one is none.
func TestParse(t *testing.T) {
	for _, text := range []string{parent, strings.TrimSuffix(parent, "1") + "0"} {
		if got := trace.Parse(text).String(); got != text {
			t.Errorf("%s is %s", text, got)
		}
	}
	if c := trace.Parse("cc" + parent[2:] + "-what-the-future-will-be-like"); c.String() != parent {
		t.Errorf("a later version is %s", c)
	}
	for name, text := range map[string]string{
		"empty": "", "short": parent[:54], "a later field in version 00": parent + "-x", "version ff": "ff" + parent[2:], "capitals": strings.ToUpper(parent), "glued": "cc" + parent[2:] + ".x",
		"no trace": "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "no span": "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"other dashes": strings.ReplaceAll(parent, "-", "_"), "no digits": strings.ReplaceAll(parent, "f", "g"),
	} {
		if c := trace.Parse(text); c.Valid() || c.String() != "" {
			t.Errorf("%s: %q is %s", name, text, c)
		}
	}
}

// TestCall: headers are read as they were written; what is malformed, or too long, is left out.
func TestCall(t *testing.T) {
	h := http.Header{}
	want := trace.Call{ID: "a-B_1.2:3", Context: trace.Parse(parent)}
	want.State = "vendor=1"
	want.Write(h)
	if got := trace.Read(h); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, id := range []string{"a b", "a\nb", "ä", `"`, "<", strings.Repeat("x", 129)} {
		if got := trace.CheckID(id); got != "" {
			t.Errorf("the id %q is taken", id)
		}
	}
	h.Set("Tracestate", strings.Repeat("x", 513))
	if got := trace.Read(h); got.State != "" || got.ID != want.ID {
		t.Errorf("%+v", got)
	}
	if got := trace.From(trace.With(t.Context(), want)); got != want || trace.From(t.Context()) != (trace.Call{}) {
		t.Errorf("%+v", got)
	}
}

// exporter makes an exporter of a collector.
func exporter(t *testing.T, o trace.Options) *trace.Exporter {
	t.Helper()
	o.Service = "test"
	e, err := trace.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExporter: a collector gets spans as OTLP's JSON has them; traces that are not sampled are not
// sent, and a redirect is not followed.
func TestExporter(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=se%20same, other = 1")
	bodies := make(chan string, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/base/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Key") != "se same" || r.Header.Get("Other") != "1" {
			t.Error(r.URL.Path, r.Header)
		}
		bodies <- string(text)
	}))
	defer h.Close()
	e := exporter(t, trace.Options{URL: h.URL + "/base/"})
	from := trace.Parse(parent)
	own := e.Start(from)
	if own.Trace != from.Trace || own.Span == from.Span || !own.Sampled {
		t.Errorf("a child of %s is %s", from, own)
	}
	if alone := e.Start(trace.Context{}); !alone.Valid() || alone.Sampled { // the ratio is 0
		t.Errorf("a new trace is %s", alone)
	} else {
		e.Record(trace.Span{Context: alone, Name: "not sampled"})
	}
	e.Record(trace.Span{Context: own, Parent: from.Span, Name: "prefill", Kind: trace.Client, Start: time.Unix(1, 2), End: time.Unix(3, 4), Error: "broken",
		Attributes: []trace.Attribute{{Key: "n", Value: 7}, {Key: "x", Value: 0.5}, {Key: "s", Value: "text"}}})
	e.Close(t.Context())
	var got any
	if err := json.Unmarshal([]byte(<-bodies), &got); err != nil {
		t.Fatal(err)
	}
	one := got.(map[string]any)["resourceSpans"].([]any)[0].(map[string]any)["scopeSpans"].([]any)[0].(map[string]any)["spans"].([]any)
	text, _ := json.Marshal(one)
	want := `[{"attributes":[{"key":"n","value":{"intValue":"7"}},{"key":"x","value":{"doubleValue":0.5}},{"key":"s","value":{"stringValue":"text"}}],"endTimeUnixNano":"3000000004","flags":1,"kind":3,"name":"prefill",` +
		`"parentSpanId":"00f067aa0ba902b7","spanId":"` + own.String()[36:52] + `","startTimeUnixNano":"1000000002","status":{"code":2,"message":"broken"},"traceId":"4bf92f3577b34da6a3ce929d0e0e4736"}]`
	if string(text) != want {
		t.Errorf("it has\n%s, want\n%s", text, want)
	}
	if e.Sent() != 1 || e.Dropped() != 0 {
		t.Errorf("%d sent, %d dropped", e.Sent(), e.Dropped())
	}

	moved := httptest.NewServer(http.RedirectHandler(h.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	e = exporter(t, trace.Options{URL: moved.URL, Ratio: 1})
	e.Record(trace.Span{Context: e.Start(trace.Context{})})
	e.Close(t.Context())
	if e.Sent() != 0 || e.Dropped() != 1 {
		t.Errorf("redirected: %d sent, %d dropped", e.Sent(), e.Dropped())
	}
	if _, err := trace.New(trace.Options{URL: "localhost:4318"}); err == nil {
		t.Error("an address without a scheme is taken")
	}
}

// TestSlowCollector: a collector that does not answer, or is away, makes no caller wait; the queue
// is bounded, and lost spans are counted.
func TestSlowCollector(t *testing.T) {
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	e := exporter(t, trace.Options{URL: slow.URL, Ratio: 1})
	const n = 20000
	own, begun := e.Start(trace.Context{}), time.Now()
	for range n {
		e.Record(trace.Span{Context: own, Name: "x"})
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("%d spans took %v", n, took)
	}
	if d := e.Dropped(); d < n-4096-2*512 || d >= n {
		t.Errorf("%d of %d were dropped", d, n)
	}
	ctx, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	e.Close(ctx) // returns although the collector does not answer

	away := exporter(t, trace.Options{URL: "http://127.0.0.1:1", Ratio: 1})
	away.Record(trace.Span{Context: away.Start(trace.Context{})})
	away.Close(t.Context())
	if away.Dropped() != 1 {
		t.Errorf("%d dropped", away.Dropped())
	}
	var none *trace.Exporter
	if c := trace.Parse(parent); none.Start(c) != c {
		t.Error("without an exporter a trace is not passed on")
	}
	none.Record(trace.Span{Context: own})
	none.Close(t.Context())
}

package trace

import (
	"bytes"
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queued     = 4096 // spans that wait to be sent; more are dropped
	batch      = 512  // spans in a message
	mostAnswer = 64 << 10
)

// Options configure an exporter.
type Options struct {
	// URL is the collector's, to which /v1/traces is added unless it ends so.
	URL string
	// Service is the service.name; OTEL_SERVICE_NAME goes before it.
	Service string
	// Ratio is the share of the traces that begin here that are recorded; others follow the caller.
	Ratio float64
	// Every is the longest time that a span waits; 0: 2 seconds.
	Every time.Duration
	// Timeout bounds a message to the collector; 0: 10 seconds.
	Timeout time.Duration
	// Log gets a warning when sending fails, at most one a minute; nil: no log.
	Log *slog.Logger
}

// Exporter sends spans to a collector. Its methods may be called from several goroutines; only
// Close waits for the collector. A nil one records nothing.
type Exporter struct {
	o        Options
	url      string
	headers  http.Header
	client   *http.Client
	resource resource
	spans    chan Span
	stop     chan struct{}
	once     sync.Once
	done     chan struct{}

	sent, dropped atomic.Int64
	warned        time.Time
}

// New returns an exporter, and starts it. OTEL_EXPORTER_OTLP_HEADERS has further headers, such as a
// collector's key.
func New(o Options) (*Exporter, error) {
	to, err := Collector(o.URL)
	if err != nil {
		return nil, err
	}
	o.Every, o.Timeout = cmp.Or(o.Every, 2*time.Second), cmp.Or(o.Timeout, 10*time.Second)
	e := &Exporter{o: o, url: to, headers: http.Header{}, resource: newResource(cmp.Or(os.Getenv("OTEL_SERVICE_NAME"), o.Service)),
		spans: make(chan Span, queued), stop: make(chan struct{}), done: make(chan struct{})}
	for _, pair := range strings.Split(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		if value, err = url.PathUnescape(strings.TrimSpace(value)); err == nil && strings.TrimSpace(name) != "" {
			e.headers.Set(strings.TrimSpace(name), value)
		}
	}
	// A redirect could lead the headers elsewhere.
	e.client = &http.Client{Timeout: o.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	go e.run()
	return e, nil
}

// Collector returns where a collector takes spans, of its address.
func Collector(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%.200q is no collector's address; it must be http://host:port or https://host:port", address)
	}
	if !strings.HasSuffix(u.Path, "/v1/traces") {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/v1/traces"
	}
	return u.String(), nil
}

// Start returns the context of a new span: a child of its parent, or if there is none the first of
// a trace. Without an exporter it is the parent, which is then passed on.
func (e *Exporter) Start(parent Context) Context {
	switch {
	case e == nil:
		return parent
	case parent.Valid():
		return parent.Child()
	}
	var c Context
	crand.Read(c.Trace[:])
	c.Sampled = rand.Float64() < e.o.Ratio
	return c.Child()
}

// Record records a span that has ended, unless its trace is not sampled. If the queue is full, the
// span is dropped.
func (e *Exporter) Record(s Span) {
	if e == nil || !s.Sampled || !s.Valid() {
		return
	}
	select {
	case e.spans <- s:
	default:
		e.dropped.Add(1)
	}
}

// Sent returns the number of spans that the collector has accepted.
func (e *Exporter) Sent() int64 { return e.sent.Load() }

// Dropped returns the number of spans that were lost: the queue was full, or the collector did not
// accept them.
func (e *Exporter) Dropped() int64 { return e.dropped.Load() }

// Close sends the spans recorded so far, until ctx ends.
func (e *Exporter) Close(ctx context.Context) {
	if e == nil {
		return
	}
	e.once.Do(func() { close(e.stop) })
	select {
	case <-e.done:
	case <-ctx.Done():
	}
}

// run sends batches until Close, and then what is left.
func (e *Exporter) run() {
	defer close(e.done)
	tick := time.NewTicker(e.o.Every)
	defer tick.Stop()
	var list []Span
	flush := func() {
		if len(list) > 0 {
			e.send(list)
			list = list[:0]
		}
	}
	for {
		select {
		case s := <-e.spans:
			if list = append(list, s); len(list) == batch {
				flush()
			}
		case <-tick.C:
			flush()
		case <-e.stop:
			for len(e.spans) > 0 {
				if list = append(list, <-e.spans); len(list) == batch {
					flush()
				}
			}
			flush()
			return
		}
	}
}

// send sends spans once. A trace is not worth a retry, during which newer spans would wait.
func (e *Exporter) send(list []Span) {
	err := e.post(e.resource.encode(list))
	if err == nil {
		e.sent.Add(int64(len(list)))
		return
	}
	e.dropped.Add(int64(len(list)))
	if e.o.Log != nil && time.Since(e.warned) > time.Minute {
		e.warned = time.Now()
		e.o.Log.Warn("spans not sent to the collector", "url", e.url, "dropped", e.Dropped(), "error", err)
	}
}

// post sends a message, and returns an error unless the collector accepts it.
func (e *Exporter) post(body []byte) error {
	q, err := http.NewRequest(http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header = e.headers.Clone()
	q.Header.Set("Content-Type", "application/json")
	a, err := e.client.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	io.Copy(io.Discard, io.LimitReader(a.Body, mostAnswer))
	if a.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", a.StatusCode)
	}
	return nil
}

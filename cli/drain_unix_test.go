//go:build unix

package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/serving/route"
)

// draining is a server of h that a test stops as SIGTERM does.
type draining struct {
	url   string
	stop  func()
	ended chan error // the result of listenUntil
}

func newDraining(t *testing.T, h http.Handler, refuse func(), d drain, config *tls.Config) *draining {
	t.Helper()
	l, shown, err := listenAt("--listen", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	s := &draining{urlOf(shown, config), func() { stop(signalError{syscall.SIGTERM}) }, make(chan error, 1)}
	go func() { s.ended <- listenUntil(ctx, l, h, refuse, d, nil) }()
	t.Cleanup(s.stop)
	return s
}

// paused lets the first part of a stream pass, and the rest once go on is closed. It counts checks
// of readiness that found the server draining.
type paused struct {
	http.Handler
	goOn     chan struct{}
	begun    atomic.Int64 // requests for texts
	notReady atomic.Int64
}

func (p *paused) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ready":
		record := httptest.NewRecorder()
		if p.Handler.ServeHTTP(record, r); record.Code == http.StatusServiceUnavailable {
			p.notReady.Add(1)
		}
		w.WriteHeader(record.Code)
		return
	case "/v1/completions":
		p.begun.Add(1)
	}
	p.Handler.ServeHTTP(&pausedWriter{w, p, 0}, r)
}

type pausedWriter struct {
	http.ResponseWriter
	p *paused
	n int
}

func (w *pausedWriter) Write(data []byte) (int, error) {
	if w.n++; w.n == 2 {
		<-w.p.goOn
	}
	return w.ResponseWriter.Write(data)
}

func (w *pausedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestDrainBehindRouter: a stream through a router outlives many of its checks of a server that
// drains, a second server takes the new requests meanwhile, and then the first one ends.
func TestDrainBehindRouter(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var servers [2]*openai.Server
	var behind [2]*paused
	var urls [2]string
	var first *draining
	for i := range servers {
		if servers[i], err = openai.New(m, openai.Options{}); err != nil {
			t.Fatal(err)
		}
		behind[i] = &paused{Handler: servers[i], goOn: make(chan struct{})}
		s := newDraining(t, behind[i], servers[i].Drain, drain{most: time.Minute}, nil)
		if urls[i] = s.url; i == 0 {
			first = s
		}
	}
	close(behind[1].goOn)
	release := sync.OnceFunc(func() { close(behind[0].goOn) })
	defer release()
	r, err := route.New(route.Options{Servers: urls[:], Check: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := httptest.NewServer(r)
	defer h.Close()

	ask := func(url, more string) *http.Response {
		t.Helper()
		a, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "In the", "temperature": 0, "ignore_eos": true, "max_tokens": 9`+more+"}"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Body.Close() })
		return a
	}
	stream := bufio.NewReader(ask(h.URL, `, "stream": true`).Body)
	if line, err := stream.ReadString('\n'); err != nil || behind[0].begun.Load() != 1 {
		t.Fatalf("%q, %v; the first server has %d requests", line, err, behind[0].begun.Load())
	}
	rest := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(stream)
		rest <- fmt.Sprint(string(text), err)
	}()
	first.stop()
	for behind[0].notReady.Load() < 12 { // four times as many as a router takes a server for gone after
		select {
		case text := <-rest:
			t.Fatalf("the stream ends while its server drains: %s", text)
		case err := <-first.ended:
			t.Fatalf("the server ends before its stream: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	for range 3 {
		if a := ask(h.URL, ""); a.StatusCode != http.StatusOK {
			t.Errorf("a new request gets %d while one of two servers drains", a.StatusCode)
		}
	}
	if n := behind[1].begun.Load(); n != 3 {
		t.Errorf("the second server has %d of 3 new requests", n)
	}
	a := ask(first.url, "")
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || !a.Close {
		t.Errorf("a server that drains answers %d %v", a.StatusCode, a.Header)
	}
	if a, err := http.Get(first.url + "/health"); err != nil || a.StatusCode != http.StatusOK {
		t.Errorf("/health while the server drains: %v %v", a, err)
	}
	release()
	if text := <-rest; !strings.HasSuffix(text, "data: [DONE]\n\n<nil>") {
		t.Errorf("the stream ends by %s", text)
	}
	if err := <-first.ended; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(first.url, "http://")); err == nil {
		c.Close()
		t.Error("the port is open after the end")
	}
}

// TestDrainConnections: over HTTP/1 and HTTP/2, an active request continues while others on the
// same connections are refused, and idle connections do not hold up the end.
func TestDrainConnections(t *testing.T) {
	dir := t.TempDir()
	certificates(t, dir)
	flags := &tlsFlags{cert: dir + "/server.pem", key: dir + "/server.key"}
	config, err := flags.server()
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	flags.current.Load().NextProtos = config.NextProtos
	pool, err := readCAs("--tls-ca", dir+"/ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		began, goOn := make(chan struct{}), make(chan struct{})
		var drains atomic.Bool
		s := newDraining(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/long":
				io.WriteString(w, "begun ")
				http.NewResponseController(w).Flush()
				close(began)
				<-goOn
				io.WriteString(w, "ended")
			case drains.Load():
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}), func() { drains.Store(true) }, drain{most: time.Minute}, config)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}}
		get := func(path string) (status, proto int, text string) {
			a, err := client.Get(s.url + path)
			if err != nil {
				return 0, 0, err.Error()
			}
			defer a.Body.Close()
			data, err := io.ReadAll(a.Body)
			return a.StatusCode, a.ProtoMajor, fmt.Sprint(string(data), err)
		}
		get("/short") // its connection stays open
		long := make(chan string, 1)
		go func() {
			_, proto, text := get("/long")
			long <- fmt.Sprint(proto, text)
		}()
		<-began
		s.stop()
		for !drains.Load() {
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			if status, _, text := get("/short"); status != http.StatusServiceUnavailable {
				t.Errorf("HTTP/2 %t: a request during the drain gets %d %s", http2, status, text)
			}
		}
		close(goOn)
		want := map[bool]string{false: "1begun ended<nil>", true: "2begun ended<nil>"}[http2]
		if text := <-long; text != want {
			t.Errorf("HTTP/2 %t: an active request gets %s", http2, text)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("HTTP/2 %t: %v", http2, err)
		}
	}
}

// TestDrainLate: active requests are ended when --drain is over.
func TestDrainLate(t *testing.T) {
	began, why := make(chan struct{}), make(chan error, 1)
	s := newDraining(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		why <- context.Cause(r.Context())
	}), func() {}, drain{most: time.Millisecond, notice: time.Hour}, nil)
	go http.Get(s.url)
	<-began
	s.stop()
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "were ended") {
		t.Errorf("the server ends by %v", err)
	}
	if err := <-why; !errors.Is(err, krait.ErrClosed) {
		t.Errorf("the request ends by %v", err)
	}
}

// TestDrainNotice: a server that is idle keeps its port open for the notice, so that load balancers
// see 503; after an interrupt, at once idle, it does not.
func TestDrainNotice(t *testing.T) {
	s := newDraining(t, http.NotFoundHandler(), func() {}, drain{most: time.Hour, notice: 200 * time.Millisecond}, nil)
	begun := time.Now()
	s.stop()
	if err := <-s.ended; err != nil || time.Since(begun) < 200*time.Millisecond {
		t.Errorf("the server ends after %v: %v", time.Since(begun), err)
	}
	l, _, err := listenAt("--listen", "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(signalError{syscall.SIGINT})
	if err := listenUntil(ctx, l, http.NotFoundHandler(), func() {}, drain{most: time.Hour, notice: time.Hour}, nil); err != nil {
		t.Error(err)
	}
}

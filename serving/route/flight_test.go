package route

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestPortClosed: a stream goes on when the server's port is closed, as of one that drains, though
// checks are refused again and again, and though it answers before it reads the request.
func TestPortClosed(t *testing.T) {
	next := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/ready" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	defer s.Close()
	s.Config.SetKeepAlivesEnabled(false) // each check makes a connection
	const stall = 100 * time.Millisecond // writes to the client must take less
	r, err := New(Options{Servers: []string{s.URL}, Check: time.Millisecond, Stall: stall})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := httptest.NewServer(r)
	defer h.Close()
	a, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	s.Listener.Close()
	m := r.servers.machines[0]
	missed := func() int {
		r.servers.mu.Lock()
		defer r.servers.mu.Unlock()
		return m.missed
	}
	for begun := time.Now(); missed() < 4*misses || time.Since(begun) < 2*stall; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("only %d checks were refused: %v", missed(), m.why)
		}
	}
	close(next)
	text, err := io.ReadAll(a.Body)
	if err != nil || string(text) != "data: 0\n\ndata: 1\n\ndata: 2\n\n" {
		t.Errorf("%q %v", text, err)
	}
}

// TestGiveUp: of a machine that answers no checks the requests are given up to which nothing came
// for the stall, and no others.
func TestGiveUp(t *testing.T) {
	m, now := newMachine("a", nil), time.Now()
	p := &pool{machines: []*machine{m}}
	silent, speaks := p.fly(t.Context(), m), p.fly(t.Context(), m)
	silent.last.Store(now.Add(-time.Minute).UnixNano())
	speaks.last.Store(now.Add(-time.Second).UnixNano())
	for i := range misses + 1 {
		p.giveUp(m, now, 10*time.Second)
		if gone := i == misses; (silent.ctx.Err() != nil) != gone || speaks.ctx.Err() != nil {
			t.Errorf("after %d checks without an answer: %v and %v", i, silent.ctx.Err(), speaks.ctx.Err())
		}
		m.checked(io.ErrUnexpectedEOF)
	}
	heard{strings.NewReader("x"), silent}.Read(make([]byte, 1))
	if silent.last.Load() < now.UnixNano() {
		t.Error("a byte that came is not noted")
	}
	speaks.end(nil)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(m.flights)
		p.mu.Unlock()
		if n == 0 {
			return
		}
	}
	t.Error("requests that have ended are kept")
}

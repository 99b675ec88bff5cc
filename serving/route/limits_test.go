package route_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/serving/route"
	"github.com/krait-ml/krait/transfer/ping"
)

// TestHeaders: servers get a request's key and type, and nothing else that a client says; whom they
// redirect to gets nothing.
func TestHeaders(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the key was sent on") }))
	defer elsewhere.Close()
	list, h, _ := fakes(t, 1, route.Options{})
	list[0].do(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Request-Id", "req-1")
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	q, _ := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(prompt("x")))
	for name, v := range map[string]string{"Authorization": "Bearer k", "Content-Type": "application/json", "Krait-Prefill": "evil:1", "Cookie": "c=d", "X-Forwarded-For": "1.2.3.4",
		"X-Api-Key": "k2", "X-Request-Id": "mine-1", "Traceparent": parent, "Tracestate": "v=1"} {
		q.Header.Set(name, v)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != 307 || a.Header.Get("Location") != "" || a.Header.Get("Set-Cookie") != "" || a.Header.Get("X-Request-Id") != "mine-1" || a.Header.Get("Retry-After") != "7" {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
	got := list[0].last.Header
	if got.Get("Authorization") != "Bearer k" || got.Get("Content-Type") != "application/json" || got.Get("Krait-Prefill") != "" || got.Get("Cookie") != "" || got.Get("X-Forwarded-For") != "" ||
		got.Get("X-Api-Key") != "k2" || got.Get("X-Request-Id") != "mine-1" || got.Get("Traceparent") != parent || got.Get("Tracestate") != "v=1" {
		t.Error(got)
	}
	q.URL.Path = "/completions" // as llama.cpp's
	q.Header.Set("X-Request-Id", "two words")
	q.Header.Set("Traceparent", "none")
	q.Body = io.NopCloser(strings.NewReader(prompt("x")))
	if a, err = client.Do(q); err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if list[0].last.URL.Path != "/v1/completions" {
		t.Error(list[0].last.URL)
	}
	if got, made := list[0].last.Header, a.Header.Get("X-Request-Id"); !strings.HasPrefix(made, "route-") || got.Get("X-Request-Id") != made || got["Traceparent"] != nil || got["Tracestate"] != nil {
		t.Error(made, got)
	}
}

// answerPings answers as a prefill server does.
func answerPings(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		var m [16]byte
		if _, err := io.ReadFull(c, m[:]); err == nil {
			m[0] = byte(ping.Answer)
			binary.LittleEndian.PutUint32(m[12:], crc32.Checksum(m[:12], crc32.MakeTable(crc32.Castagnoli)))
			c.Write(m[:])
		}
		c.Close()
	}
}

// TestPrefill: the router names a ready prefill server to the server, the same for prompts
// that begin alike.
func TestPrefill(t *testing.T) {
	var waiting []net.Listener
	var names []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go answerPings(l)
		waiting, names = append(waiting, l), append(names, l.Addr().String())
	}
	hung, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	list, h, r := fakes(t, 2, route.Options{Prefill: append(names, hung.Addr().String()), CheckTimeout: 2 * time.Second})
	until(t, "ready", func() bool { _, n := r.Ready(); return n == 2 })
	if all := r.Machines(); all[4].Ready || all[4].Why == "" {
		t.Errorf("a machine that hangs: %+v", all[4])
	}
	named := func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, q.Header.Get("Krait-Prefill")) }
	list[0].do(named)
	list[1].do(named)
	_, one := ask(t, h, prompt(strings.Repeat("one ", 100)))
	_, two := ask(t, h, prompt(strings.Repeat("two ", 100)))
	if one == two || one != names[0] && one != names[1] {
		t.Errorf("%q and %q of %q", one, two, names)
	}
	for range 4 {
		if _, again := ask(t, h, prompt(strings.Repeat("two ", 150))); again != two {
			t.Errorf("%q, and then %q", two, again)
		}
	}
	if list[0].asked.Load() == 0 || list[1].asked.Load() == 0 {
		t.Error("one server answers all, without prefill servers")
	}
	for i, n := range names {
		if n == two {
			waiting[i].Close()
		}
	}
	until(t, "gone", func() bool { _, n := r.Ready(); return n == 1 })
	if _, other := ask(t, h, prompt(strings.Repeat("two ", 150))); other != one {
		t.Errorf("%q is gone, and %q was named", two, other)
	}
	status := func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error": {"code": "unknown_prefill", "message": "the header names"}}`)
	}
	list[0].do(status)
	list[1].do(status)
	if got, text := ask(t, h, prompt("x")); got != 502 || !strings.Contains(text, "unknown_prefill") {
		t.Errorf("a server that does not know it: %d %s", got, text)
	}
	list[0].do(cut)
	list[1].do(cut)
	if got, text := ask(t, h, prompt("x")); got != 502 || !strings.Contains(text, "server_failed") {
		t.Errorf("all die: %d %s", got, text)
	}
	until(t, "free", func() bool { return idle(r) })
}

// TestRefused: what the router refuses itself.
func TestRefused(t *testing.T) {
	list, h, r := fakes(t, 1, route.Options{Requests: 2, Body: 100, Local: true})
	if got, text := ask(t, h, prompt(strings.Repeat("x", 100))); got != 413 || !strings.Contains(text, "100 bytes") {
		t.Errorf("a large body: %d %s", got, text)
	}
	for _, path := range []string{"/", "/metrics", "/machines", "/board", "/v1/files"} {
		if a, err := http.Get(h.URL + path); err != nil || a.StatusCode != 404 {
			t.Errorf("%s: %v %v", path, a, err)
		}
	}
	q, _ := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(prompt("x")))
	q.Host = "evil.example"
	if a, err := http.DefaultClient.Do(q); err != nil || a.StatusCode != http.StatusMisdirectedRequest {
		t.Error(a, err)
	}
	in, out := io.Pipe()
	defer out.Close()
	go out.Write([]byte("{"))
	_, strict, _ := fakes(t, 1, route.Options{SlowStart: 50 * time.Millisecond})
	slow, _ := http.NewRequest("POST", strict.URL+"/v1/completions", in)
	if a, err := http.DefaultClient.Do(slow); err != nil || a.StatusCode != http.StatusRequestTimeout {
		t.Error(a, err)
	}
	hold := make(chan struct{})
	list[0].do(func(w http.ResponseWriter, _ *http.Request) { <-hold })
	ended := make(chan int, 1)
	go func() {
		got, _ := ask(t, h, prompt("x"))
		ended <- got
	}()
	until(t, "asked", func() bool { return list[0].asked.Load() == 1 })
	if got, text := ask(t, h, prompt("x")); got != 429 || !strings.Contains(text, "router_full") {
		t.Errorf("one too many: %d %s", got, text)
	}
	r.Drain()
	if got, text := ask(t, h, prompt("x")); got != 503 || !strings.Contains(text, "draining") {
		t.Errorf("it drains: %d %s", got, text)
	}
	close(hold)
	if got := <-ended; got != 200 {
		t.Error(got)
	}
}

// TestOptions: machines that cannot be are errors that name them.
func TestOptions(t *testing.T) {
	for _, wrong := range []struct {
		o    route.Options
		says string
	}{
		{route.Options{}, "no server"},
		{route.Options{Servers: []string{"a:1", "http://a:1"}}, "twice"},
		{route.Options{Servers: []string{"ftp://a:1"}}, "ftp"},
		{route.Options{Servers: []string{"http://a:1/v1"}}, "/v1"},
		{route.Options{Servers: []string{""}}, "host:port"},
		{route.Options{Servers: []string{"a:1"}, Prefill: []string{"b"}}, `"b"`},
		{route.Options{Servers: []string{"a:1"}, Prefill: []string{"b:1", "b:1"}}, "twice"},
		{route.Options{Servers: []string{"a:1"}, Body: -1}, "must not be negative"},
		{route.Options{Servers: []string{"a:1"}, Requests: 1}, "Requests is 1"},
		{route.Options{Servers: []string{"a:1"}, Bodies: 1 << 20}, "Bodies 1048576"},
	} {
		if r, err := route.New(wrong.o); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%+v: %v", wrong.o, err)
			if err == nil {
				r.Close()
			}
		}
	}
}

// TestAdmin: what is counted.
func TestAdmin(t *testing.T) {
	list, h, r := fakes(t, 2, route.Options{})
	list[0].do(cut)
	for range 4 {
		ask(t, h, prompt("x"))
	}
	w := httptest.NewRecorder()
	r.Admin()["/metrics"].ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	for _, want := range []string{`krait_route_requests_total{machine="` + list[1].URL + `",path="/v1/completions",status="200"} 4`,
		`krait_route_retries_total `, `krait_route_ready{machine="` + list[0].URL + `",role="server"} 1`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "krait_route_retries_total 0") {
		t.Error("nothing was asked again")
	}
}

// TestDeadline: a request that a server never ends is ended, before its answer or within.
func TestDeadline(t *testing.T) {
	list, h, r := fakes(t, 2, route.Options{Deadline: 300 * time.Millisecond, EjectAfter: 2})
	for want, begins := range map[string]bool{`{"error":{"message":"the request exceeded`: false, "data: 1\n\ndata: {\"error\":{\"message\":\"the request exceeded": true} {
		for _, f := range list {
			f.do(func(w http.ResponseWriter, q *http.Request) {
				if begins {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, "data: 1\n\n")
					w.(http.Flusher).Flush()
				}
				<-q.Context().Done()
			})
		}
		for range map[bool]int{false: 1, true: 3}[begins] {
			before := list[0].asked.Load() + list[1].asked.Load()
			got, text := ask(t, h, prompt("x"))
			for try := 0; begins && got == 504 && try < 20; try++ { // a busy machine had not begun the answer
				before = list[0].asked.Load() + list[1].asked.Load()
				got, text = ask(t, h, prompt("x"))
			}
			if !strings.HasPrefix(text, want) || !begins && got != 504 || list[0].asked.Load()+list[1].asked.Load() != before+1 {
				t.Errorf("%d %q", got, text)
			}
		}
		until(t, "free", func() bool { return idle(r) })
	}
	for _, m := range r.Machines() {
		if m.Ejected {
			t.Errorf("%s is left out for requests that take long", m.Name)
		}
	}
}

package route_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/serving/route"
)

// upload begins a request whose body has length bytes, and sends the first of them.
func upload(t *testing.T, h *httptest.Server, length, sent int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", length, strings.Repeat(" ", sent))
	return c
}

// TestSlowBodies: bodies that do not come to their end take no place, and those that are too large
// together push out each other; a request that is there at once is answered at once.
func TestSlowBodies(t *testing.T) {
	_, h, _ := fakes(t, 1, route.Options{Requests: 4, Body: 64 << 10, Bodies: 1 << 20})
	for range 20 {
		upload(t, h, 1000, 1)
	}
	if got, text := ask(t, h, prompt("x")); got != 200 {
		t.Errorf("20 slow bodies and 4 places: %d %s", got, text)
	}
	var large []net.Conn
	for range 40 {
		large = append(large, upload(t, h, 60<<10, 60<<10-1))
	}
	var refused atomic.Int64
	for _, c := range large {
		go func() {
			if a, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && a.StatusCode == http.StatusTooManyRequests {
				refused.Add(1)
			}
		}()
	}
	until(t, "refused", func() bool { return refused.Load() >= 25 }) // of 40, 13 have room
	if got, text := ask(t, h, prompt("x")); got != 200 {
		t.Errorf("40 bodies of 60 KiB, and room for 13: %d %s", got, text)
	}
}

// TestShares: neither an address nor a key takes all places, or all bytes; without a key of the
// file nothing is read, and no server asked.
func TestShares(t *testing.T) {
	line := func(name string) string { return fmt.Sprintf("%s %x\n", name, sha256.Sum256([]byte(name))) }
	keys, err := openai.ReadKeys(strings.NewReader(line("ann") + line("bob")))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]route.Options{
		"addresses": {Requests: 4}, "keys": {Requests: 4, Keys: keys}, "bytes": {Body: 200 << 10, Bodies: 900 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			list, _, r := fakes(t, 1, o)
			hold := make(chan struct{})
			list[0].do(func(w http.ResponseWriter, _ *http.Request) { <-hold })
			text := prompt("x")
			if name == "bytes" {
				text = prompt(strings.Repeat("x", 190<<10))
			}
			answers := make(chan int, 10)
			send := func(who string) *httptest.ResponseRecorder {
				q := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(text))
				q.RemoteAddr = map[string]string{"ann": "10.0.0.1:5", "bob": "10.0.0.2:5", "eve": "10.0.0.3:5"}[who]
				q.Header.Set("Authorization", "Bearer "+who)
				w := httptest.NewRecorder()
				r.ServeHTTP(w, q)
				answers <- w.Code
				return w
			}
			for i := range 2 {
				go send("ann")
				until(t, "asked", func() bool { return int(list[0].asked.Load()) == i+1 })
			}
			if w := send("ann"); w.Code != 429 || !strings.Contains(w.Body.String(), "router_full") {
				t.Errorf("a third of one client: %d %s", w.Code, w.Body)
			}
			<-answers
			go send("bob")
			until(t, "asked", func() bool { return list[0].asked.Load() == 3 })
			if name == "keys" {
				if w := send("eve"); w.Code != 401 || list[0].asked.Load() != 3 {
					t.Errorf("without a key: %d %s", w.Code, w.Body)
				}
				<-answers
			}
			close(hold)
			for range 3 {
				if got := <-answers; got != 200 {
					t.Errorf("answered by %d", got)
				}
			}
			go send("ann")
			if got := <-answers; got != 200 {
				t.Errorf("after all have ended: %d", got)
			}
		})
	}
}

// TestSetKeys: other keys are in force from the next request on.
func TestSetKeys(t *testing.T) {
	of := func(name string) *route.Keys {
		keys, err := openai.ReadKeys(strings.NewReader(fmt.Sprintf("%s %x", name, sha256.Sum256([]byte(name)))))
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	_, _, r := fakes(t, 1, route.Options{Keys: of("ann")})
	send := func(who string) int {
		q := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(prompt("x")))
		q.Header.Set("Authorization", "Bearer "+who)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		return w.Code
	}
	if a, b := send("ann"), send("bob"); a != 200 || b != 401 {
		t.Errorf("ann gets %d and bob %d, want 200 and 401", a, b)
	}
	r.SetKeys(of("bob"))
	if a, b := send("ann"), send("bob"); a != 401 || b != 200 {
		t.Errorf("then ann gets %d and bob %d, want 401 and 200", a, b)
	}
}

// TestKeyed: a server that answers without a key gets nothing, also if it was not there at first,
// until it demands keys.
func TestKeyed(t *testing.T) {
	var ready, keyed atomic.Bool
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ready" && !ready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/v1/models" && keyed.Load():
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost:
			asked.Add(1)
			w.Write([]byte("{}"))
		}
	}))
	defer s.Close()
	_, h, r := fakes(t, 0, route.Options{Servers: []string{s.URL}, Keyed: true})
	ready.Store(true)
	until(t, "found without keys", func() bool { return len(r.Keyless()) == 1 })
	if got, text := ask(t, h, prompt("x")); got != 503 || asked.Load() != 0 {
		t.Errorf("a server without keys: %d %s, asked %d times", got, text, asked.Load())
	}
	keyed.Store(true)
	until(t, "ready", func() bool { n, _ := r.Ready(); return n == 1 })
	if got, text := ask(t, h, prompt("x")); got != 200 {
		t.Errorf("a server with keys: %d %s", got, text)
	}
}

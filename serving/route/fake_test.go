package route_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/serving/route"
)

// fake is a server that answers by its name, unless it is told to do something else.
type fake struct {
	*httptest.Server
	name  string
	ready atomic.Int64 // status of /ready; 0: it hangs
	asked atomic.Int64 // requests for texts

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) // nil: by its name
	last   *http.Request
}

func (f *fake) do(answer func(w http.ResponseWriter, r *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ready" {
		status := int(f.ready.Load())
		if status == 0 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	f.asked.Add(1)
	f.mu.Lock()
	answer := f.answer
	f.last = r.Clone(context.Background())
	f.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	fmt.Fprintf(w, "{%q: %q}", "from", f.name)
}

// fakes are n of them behind a router.
func fakes(t *testing.T, n int, o route.Options) ([]*fake, *httptest.Server, *route.Router) {
	t.Helper()
	var list []*fake
	for i := range n {
		f := &fake{name: string(rune('a' + i))}
		f.ready.Store(200)
		f.Server = httptest.NewServer(f)
		t.Cleanup(f.Close)
		list = append(list, f)
		o.Servers = append(o.Servers, f.URL)
	}
	if o.Check == 0 {
		o.Check = 5 * time.Millisecond
	}
	r, err := route.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	h := httptest.NewServer(r)
	t.Cleanup(h.Close)
	return list, h, r
}

// ask posts a completion, and returns the status and the answer.
func ask(t *testing.T, h *httptest.Server, body string) (int, string) {
	t.Helper()
	a, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Error(err)
	}
	return a.StatusCode, string(text)
}

// until waits for something that comes soon.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s", what)
		}
	}
}

func prompt(text string) string { return fmt.Sprintf(`{"prompt": %q, "max_tokens": 4}`, text) }

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// cut ends the connection.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

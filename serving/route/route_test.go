package route_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/serving/route"
)

// TestAlike: prompts that begin alike go where the first of them went, with whatever key they have
// a cache of their own; others go around.
func TestAlike(t *testing.T) {
	_, h, _ := fakes(t, 3, route.Options{})
	counts := map[string]int{}
	for i := range 12 {
		begin := strings.Repeat(fmt.Sprintf("subject %02d ", i), 40)
		_, first := ask(t, h, prompt(begin))
		counts[first]++
		for j := range 3 {
			if _, next := ask(t, h, prompt(begin+strings.Repeat(fmt.Sprint(j), 100))); next != first {
				t.Errorf("subject %d: %s and then %s", i, first, next)
			}
		}
	}
	for who, n := range counts {
		if n != 4 {
			t.Errorf("%s got %d of 12 subjects", who, n)
		}
	}
	of := func(key string) string {
		q, _ := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(prompt(strings.Repeat("subject 00 ", 60))))
		q.Header.Set("Authorization", "Bearer "+key)
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, _ := io.ReadAll(a.Body)
		return string(text)
	}
	seen := map[string]bool{}
	for i := range 3 {
		seen[of(fmt.Sprint("key", i))] = true
	}
	if len(seen) != 3 {
		t.Errorf("three keys, whose caches are apart, were sent to %v", seen)
	}
}

// TestLeast: a server that works gets nothing while others have less to do, were it sent the same
// beginning, unless what it would save is more.
func TestLeast(t *testing.T) {
	list, h, r := fakes(t, 2, route.Options{})
	hold := make(chan struct{})
	held := func(w http.ResponseWriter, r *http.Request) { <-hold; w.Write([]byte(`"late"`)) }
	a, b := list[0], list[1]
	long := strings.Repeat("the same beginning ", 100)
	if _, text := ask(t, h, prompt(long)); !strings.Contains(text, `"a"`) {
		a, b = b, a
	}
	a.do(held)
	ended := make(chan string, 1)
	go func() {
		_, text := ask(t, h, prompt(long)) // it is known there, and counts 4 tokens
		ended <- text
	}()
	until(t, "asked", func() bool { return a.asked.Load() == 2 })
	if _, text := ask(t, h, prompt("short")); !strings.Contains(text, b.name) {
		t.Errorf("a server that works got a short prompt: %s", text)
	}
	go ask(t, h, prompt(long+"and more")) // 1900 bytes to save, by 64 for the running one
	until(t, "asked", func() bool { return a.asked.Load() == 3 })
	close(hold)
	if text := <-ended; text != `"late"` {
		t.Error(text)
	}
	until(t, "free", func() bool { return idle(r) })
}

// TestBegunStream: the prompt of a stream is work until its first event.
func TestBegunStream(t *testing.T) {
	list, h, r := fakes(t, 1, route.Options{})
	begin, hold := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(hold) })
	defer end()
	list[0].do(func(w http.ResponseWriter, _ *http.Request) {
		<-begin
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write([]byte("data: {}\n\n"))
		w.(http.Flusher).Flush()
		<-hold
	})
	work := func(prompt int) func() bool {
		return func() bool { m := r.Machines()[0]; return m.Running == 1 && m.Work == int64(prompt+4*16) }
	}
	go ask(t, h, prompt("five tokens of text"))
	until(t, "prefilling", work(len(`"five tokens of text"`)))
	close(begin)
	until(t, "decoding", work(0))
	end()
	until(t, "free", func() bool { return idle(r) })
}

// idle reports whether no request is active.
func idle(r *route.Router) bool {
	return !slices.ContainsFunc(r.Machines(), func(m route.Machine) bool { return m.Running != 0 || m.Work != 0 })
}

// TestAgain: what a server fails to answer before anything was sent back is asked of one more.
func TestAgain(t *testing.T) {
	short := func(w http.ResponseWriter, _ *http.Request) { // it dies in the middle of an answer
		w.Header().Set("Content-Length", "100")
		w.Write([]byte("{"))
		cut(nil, nil)
	}
	silent := func(w http.ResponseWriter, _ *http.Request) { // before a stream's first event
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.Write([]byte("data: {"))
		cut(nil, nil)
	}
	for name, fails := range map[string]func(http.ResponseWriter, *http.Request){
		"dies": cut, "answers half": short, "streams half an event": silent,
		"fails": status(500), "is a bad gateway": status(502), "drains": status(503), "is full": status(429),
	} {
		t.Run(name, func(t *testing.T) {
			list, h, r := fakes(t, 3, route.Options{EjectAfter: 100})
			list[0].do(fails)
			list[1].do(fails)
			var asked []int64
			for range 9 {
				ask(t, h, prompt("x"))
			}
			for _, f := range list {
				asked = append(asked, f.asked.Load())
			}
			if n := asked[0] + asked[1] + asked[2]; n <= 9 || n > 18 || asked[2] < 3 {
				t.Errorf("9 requests were asked %v times", asked)
			}
			list[1].do(nil)
			for range 9 {
				if status, text := ask(t, h, prompt("x")); status != 200 || !strings.Contains(text, "from") {
					t.Errorf("%d %s", status, text)
				}
			}
			list[1].do(fails)
			list[2].do(fails)
			before := list[0].asked.Load() + list[1].asked.Load() + list[2].asked.Load()
			got, text := ask(t, h, prompt("x"))
			if n := list[0].asked.Load() + list[1].asked.Load() + list[2].asked.Load() - before; n != 2 || got < 429 {
				t.Errorf("all fail: %d %s after %d tries", got, text, n)
			}
			until(t, "free", func() bool { return idle(r) })
		})
	}
	list, h, _ := fakes(t, 2, route.Options{})
	list[0].do(status(400))
	list[1].do(status(400))
	if got, _ := ask(t, h, prompt("x")); got != 400 || list[0].asked.Load()+list[1].asked.Load() != 1 {
		t.Errorf("a request that is wrong: %d, asked %d and %d times", got, list[0].asked.Load(), list[1].asked.Load())
	}
}

// TestLost: a stream that a server began is not begun again; the client gets the events that came
// whole, and an error.
func TestLost(t *testing.T) {
	list, h, r := fakes(t, 2, route.Options{})
	for _, f := range list {
		f.do(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\ndata: 2\n\ndata: {\"half")
			w.(http.Flusher).Flush()
			cut(nil, nil)
		})
	}
	got, text := ask(t, h, prompt("x"))
	rest, ok := strings.CutPrefix(text, "data: 1\n\ndata: 2\n\ndata: {\"error\":{")
	if got != 200 || !ok || !strings.Contains(rest, "server_lost") || !strings.HasSuffix(rest, "\n\n") || list[0].asked.Load()+list[1].asked.Load() != 1 {
		t.Errorf("%d %q", got, text)
	}
	until(t, "free", func() bool { return idle(r) })
}

// TestEnds: a stream that ends within an event is cut off, though its connection is not.
func TestEnds(t *testing.T) {
	list, h, _ := fakes(t, 1, route.Options{})
	list[0].do(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\ndata: 2\n")
	})
	if _, text := ask(t, h, prompt("x")); !strings.HasPrefix(text, "data: 1\n\ndata: {\"error\"") {
		t.Errorf("%q", text)
	}
}

// TestDone: a stream that has said its last event is whole, though its connection breaks then.
func TestDone(t *testing.T) {
	list, h, r := fakes(t, 1, route.Options{})
	list[0].do(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\ndata: [DONE]\n\n")
		w.(http.Flusher).Flush()
		cut(nil, nil)
	})
	if _, text := ask(t, h, prompt("x")); text != "data: 1\n\ndata: [DONE]\n\n" {
		t.Errorf("%q", text)
	}
	until(t, "free", func() bool { return idle(r) })
}

// TestStream: events are sent on as they come.
func TestStream(t *testing.T) {
	list, h, _ := fakes(t, 1, route.Options{})
	next := make(chan struct{})
	list[0].do(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d %s\r\n\r\n", i, strings.Repeat("x", 40<<10)) // more than a buffer
			w.(http.Flusher).Flush()
			<-next
		}
	})
	a, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(prompt("x")))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	lines := bufio.NewReader(a.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if empty, _ := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, fmt.Sprintf("data: %d ", i)) || len(line) != 8+40<<10+2 || empty != "\r\n" {
			t.Fatalf("event %d: %.20q %v", i, line, err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 || a.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("%q %v", rest, err)
	}
}

// TestGone: what waits for a server that does not answer any more, not even checks, is asked of
// another after the stall; a stream that it began ends by an error; and when it is back, it gets
// requests again.
func TestGone(t *testing.T) {
	list, h, r := fakes(t, 2, route.Options{CheckTimeout: 500 * time.Millisecond, Stall: 300 * time.Millisecond}) // a busy machine answers checks in less
	frozen := func(w http.ResponseWriter, q *http.Request) { <-q.Context().Done() }
	begun := func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}
	for want, f := range map[string]func(http.ResponseWriter, *http.Request){`{"from"`: frozen, "data: 1\n\ndata: {\"error\"": begun} {
		list[0].do(f)
		list[1].do(f)
		ended := make(chan string, 1)
		was := [2]int64{list[0].asked.Load(), list[1].asked.Load()}
		go func() {
			_, text := ask(t, h, prompt("x"))
			ended <- text
		}()
		until(t, "asked", func() bool { return list[0].asked.Load()+list[1].asked.Load() > was[0]+was[1] })
		bad, good := list[0], list[1]
		if bad.asked.Load() == was[0] {
			bad, good = good, bad
		}
		good.do(nil)
		bad.ready.Store(0)
		if text := <-ended; !strings.HasPrefix(text, want) {
			t.Errorf("%q, not %q", text, want)
		}
		for range 4 {
			if got, text := ask(t, h, prompt("x")); got != 200 || !strings.Contains(text, good.name) {
				t.Errorf("%d %s", got, text)
			}
		}
		bad.do(nil)
		bad.ready.Store(200)
		until(t, "back", func() bool { n, _ := r.Ready(); return n == 2 })
		until(t, "asked again", func() bool { _, text := ask(t, h, prompt("x")); return strings.Contains(text, bad.name) })
	}
	list[0].ready.Store(503)
	list[1].ready.Store(503)
	until(t, "unready", func() bool { n, _ := r.Ready(); return n == 0 })
	if got, text := ask(t, h, prompt("x")); got != 503 || !strings.Contains(text, "no_server") {
		t.Errorf("%d %s", got, text)
	}
	if a, err := http.Get(h.URL + "/ready"); err != nil || a.StatusCode != 503 {
		t.Error(a, err)
	}
}

// TestDrains: a server that drains gets nothing new, and what it has begun goes on.
func TestDrains(t *testing.T) {
	list, h, r := fakes(t, 1, route.Options{})
	hold := make(chan struct{})
	list[0].do(func(w http.ResponseWriter, _ *http.Request) { <-hold; w.Write([]byte("done")) })
	ended := make(chan string, 1)
	go func() {
		_, text := ask(t, h, prompt("x"))
		ended <- text
	}()
	until(t, "asked", func() bool { return list[0].asked.Load() == 1 })
	list[0].ready.Store(503)
	until(t, "unready", func() bool { n, _ := r.Ready(); return n == 0 })
	time.Sleep(50 * time.Millisecond) // ten checks
	close(hold)
	if text := <-ended; text != "done" {
		t.Error(text)
	}
}

// TestEjected: a server whose answers fail where another's do not, or which ends connections, is
// left out, though its checks do not fail, and tried again later; where all are, all are asked.
func TestEjected(t *testing.T) {
	const ejected = 300 * time.Millisecond
	list, h, r := fakes(t, 2, route.Options{EjectAfter: 2, EjectFor: ejected})
	list[0].do(status(500))
	begun := time.Now()
	out := func(i int) func() bool { return func() bool { return r.Machines()[i].Ejected } }
	until(t, "ejected", func() bool { ask(t, h, prompt("x")); return out(0)() })
	was := list[0].asked.Load()
	if was != 2 {
		t.Errorf("it failed %d times, and was to be left out after 2", was)
	}
	for range 5 {
		ask(t, h, prompt("x"))
	}
	if n := list[0].asked.Load(); n != was && time.Since(begun) < ejected {
		t.Errorf("it was asked %d times while it was left out", n-was)
	}
	list[1].do(cut)
	until(t, "ejected, too", func() bool { ask(t, h, prompt("x")); return out(1)() })
	list[0].do(nil)
	list[1].do(nil)
	if got, text := ask(t, h, prompt("x")); got != 200 {
		t.Errorf("all are left out: %d %s", got, text)
	}
	until(t, "asked again", func() bool { ask(t, h, prompt("x")); return list[0].asked.Load() > was+2 })
}

// TestClientGone: when a client goes, so does what was asked for it, and no server is blamed.
func TestClientGone(t *testing.T) {
	list, h, r := fakes(t, 2, route.Options{EjectAfter: 1})
	gone := make(chan struct{})
	for _, f := range list {
		f.do(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done(); close(gone) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	q, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/completions", strings.NewReader(prompt("x")))
	go func() {
		until(t, "asked", func() bool { return list[0].asked.Load()+list[1].asked.Load() == 1 })
		cancel()
	}()
	if _, err := http.DefaultClient.Do(q); err == nil {
		t.Error("it was answered")
	}
	<-gone
	until(t, "free", func() bool { return idle(r) })
	if list[0].asked.Load()+list[1].asked.Load() != 1 || slices.ContainsFunc(r.Machines(), func(m route.Machine) bool { return m.Ejected }) {
		t.Errorf("%+v", r.Machines())
	}
}

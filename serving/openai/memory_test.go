package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/session"
)

// pageTokens are those of a page in these tests.
const pageTokens = 8

// planned opens a hybrid with attention, with memory for this many KV pages: what else
// the plan counts, the test learns of a plan with plenty.
func planned(t *testing.T, pages int, o krait.Options) *krait.Model {
	t.Helper()
	o.PageTokens, o.Memory = pageTokens, 1<<34
	open := func() *krait.Model {
		m, err := krait.Open("../../testdata/golden/jamba", o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	p := m.MemoryPlan()
	m.Close()
	o.Memory = p.Weights + p.States + p.Prefixes + p.Activations + p.Page*int64(pages+2*o.Slots)
	m = open()
	t.Cleanup(func() { m.Close() })
	if p = m.MemoryPlan(); p.Room != pages*pageTokens {
		t.Fatalf("room for %d tokens, want %d pages: %+v", p.Room, pages, p)
	}
	return m
}

// serve serves a model.
func serve(t *testing.T, m *krait.Model, o openai.Options) (*openai.Server, *httptest.Server) {
	t.Helper()
	s, err := openai.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h
}

// TestPlannedLimit: 429, with Retry-After, comes where one page more is asked for than the memory
// plan has room for, and not before; as soon as a text ends there is room for as much again.
// One that can never have room is refused.
func TestPlannedLimit(t *testing.T) {
	const pages = 40
	m := planned(t, pages, krait.Options{Slots: 2})
	s, h := serve(t, m, openai.Options{})
	// A text of 31 pages is held: its last token is not read.
	body := func(tokens int, more string) string {
		return fmt.Sprintf(`{"prompt": [1, 2, 3], "max_tokens": %d, "ignore_eos": true%s}`, tokens-3+1, more)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	blocked := make(chan bool)
	var once sync.Once
	block := &gate{Handler: s, stop: func() { once.Do(func() { <-blocked }) }}
	slow := httptest.NewServer(block)
	defer slow.Close()
	held := make(chan int, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, "POST", slow.URL+"/v1/completions", strings.NewReader(body(31*pageTokens, `, "stream": true`)))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Content-Type", "application/json")
		got, err := slow.Client().Do(r)
		if err != nil {
			held <- 0
			return
		}
		defer got.Body.Close()
		held <- got.StatusCode
	}()
	until(t, "a running text", func() bool { return s.Load().Running == 1 })
	for _, c := range []struct{ tokens, want int }{
		{9 * pageTokens, 200}, {9*pageTokens + 1, 429}, {pages * pageTokens, 429}, {pages*pageTokens + 1, 400}, {9 * pageTokens, 200},
	} {
		r, err := h.Client().Post(h.URL+"/v1/completions", "application/json", strings.NewReader(body(c.tokens, "")))
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		after, _ := strconv.Atoi(r.Header.Get("Retry-After"))
		if r.StatusCode != c.want || (after > 0) != (c.want == 429) || c.want == 429 && a.Error.Code != "queue_full" || c.want == 400 && a.Error.Code != "context_length_exceeded" {
			t.Errorf("%d tokens beside %d of %d: %d, Retry-After %q, %+v; want %d", c.tokens, 31*pageTokens, pages*pageTokens, r.StatusCode, r.Header.Get("Retry-After"), a.Error, c.want)
		}
	}
	close(blocked)
	if status := <-held; status != 200 {
		t.Errorf("the text that was held: %d", status)
	}
	until(t, "the server idle", func() bool { return s.Load() == openai.Load{} })
	for i := range 2 {
		if status, text := post(t, h, "/v1/completions", body(pages*pageTokens, "")); status != 200 {
			t.Errorf("all of it, time %d: %d %s", i, status, text)
		}
	}
	if u := m.Engine().PageUse(); u.Pages > pages+2*2 || u.Free != u.Pages {
		t.Errorf("%+v", u)
	}
}

// gate is a server whose stream waits before something is written.
type gate struct {
	http.Handler
	stop func()
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.Handler.ServeHTTP(&gated{w, g.stop}, r)
}

type gated struct {
	http.ResponseWriter
	stop func()
}

func (g *gated) Write(data []byte) (int, error) {
	g.stop()
	return g.ResponseWriter.Write(data)
}

func (g *gated) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// TestNeverOutOfMemory: more clients than there is room for, with prompts that begin alike and a
// prefix cache that would take all pages, get what they get alone or 429, and pages are never
// more than planned.
func TestNeverOutOfMemory(t *testing.T) {
	goldens.CI(t)
	const pages, slots = 24, 4
	alone, err := krait.Open("../../testdata/golden/jamba", krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	for _, host := range []int64{0, 1 << 20} {
		m := planned(t, pages, krait.Options{Slots: slots, PrefixCache: 16 << 20, PrefixCacheHost: host})
		_, h := serve(t, m, openai.Options{})
		prompt := func(i int) []int {
			ids := make([]int, 66+i%5*9) // more than a prefix cache's grain
			for k := range ids {
				ids[k] = (k*7 + i%3) % alone.Vocab()
			}
			return append(ids, i%alone.Vocab())
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		full, well := 0, 0
		for c := range 2 * slots {
			all.Go(func() {
				for i := c; i < 24; i += 2 * slots {
					ids, _ := json.Marshal(prompt(i))
					tries := 0
					for done := false; !done; time.Sleep(2 * time.Millisecond) {
						if tries++; tries > 5000 {
							t.Errorf("prompt %d: there is never room", i)
							return
						}
						status, text := post(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 12, "ignore_eos": true, "temperature": 0%s}`, ids, []string{"", `, "echo": true, "logprobs": 1`}[i%2]))
						mu.Lock()
						switch status {
						case 200:
							well++
						case 429:
							full++
						default:
							t.Errorf("prompt %d: %d %s", i, status, text)
						}
						mu.Unlock()
						done = status != 429
					}
				}
			})
		}
		all.Wait()
		if u := m.Engine().PageUse(); u.Pages > pages+2*slots || well != 24 {
			t.Errorf("host tier of %d: %d answers, %d times 429, %+v of %d pages", host, well, full, u, pages+2*slots)
		}
		t.Logf("429 %d times", full)
		for i := range 12 { // and one after another the texts are right, while the cache gives way
			want, err := alone.GenerateIDs(t.Context(), prompt(i), krait.Generate{MaxTokens: 12, IgnoreEOS: true})
			if err != nil {
				t.Fatal(err)
			}
			ids, _ := json.Marshal(prompt(i))
			if a := ask(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 12, "ignore_eos": true, "temperature": 0}`, ids)); a.Choices[0].Text != want.Text {
				t.Errorf("prompt %d: %q, alone %q", i, a.Choices[0].Text, want.Text)
			}
		}
		if s := m.Session().PrefixCache(); s.Hits == 0 || s.Evictions == 0 || s.Failures > 0 {
			t.Errorf("the cache has nothing to give up, or something failed: %+v", s)
		}
	}
}

// TestPlanOfMamba: a model without attention is bounded by its slots, however long texts are; and
// a bound on tokens that is more than the plan is an error with its reason.
func TestPlanOfMamba(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 1, Memory: session.AllMemory})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if p := m.MemoryPlan(); p.Room != 0 || p.Page != 0 || p.States == 0 {
		t.Errorf("%+v", p)
	}
	s, h := serve(t, m, openai.Options{Queue: openai.Queue{Requests: 1}})
	end := hold(t, h)
	defer end()
	done := make(chan int)
	go func() {
		status, _ := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 700000}`)
		done <- status
	}()
	until(t, "one that waits", func() bool { return s.Load().Waiting == 1 })
	if status, text := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 1}`); status != 429 || !strings.Contains(text, "1 queued") {
		t.Errorf("%d %s", status, text)
	}
	s.Drain()
	m.Close()
	<-done

	hybrid := planned(t, 10, krait.Options{Slots: 1})
	if _, err := openai.New(hybrid, openai.Options{Queue: openai.Queue{Tokens: 10 * pageTokens}}); err != nil {
		t.Error(err)
	}
	if _, err := openai.New(hybrid, openai.Options{Queue: openai.Queue{Tokens: 10*pageTokens + 1}}); err == nil || !strings.Contains(err.Error(), "has a KV cache for 80 tokens") {
		t.Error(err)
	}
}

package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// asked posts a completion as a router does that names a prefill server.
func asked(t *testing.T, h *httptest.Server, prefill, body string) (int, string) {
	t.Helper()
	q, err := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Krait-Prefill", prefill)
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return r.StatusCode, string(text)
}

// TestElsewhere: two prefill servers share prompts, a common prefix always on the same one, and
// this server decodes the same text. When one dies, this server prefills its share of prompts until
// the other takes over.
func TestElsewhere(t *testing.T) {
	alone, _ := krait.Embedded(krait.Options{Slots: 2})
	defer alone.Close()
	m, err := krait.Embedded(krait.Options{Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var dead [2]atomic.Bool
	var from []*prefill.Client
	var mu sync.Mutex
	var second []net.Conn // the second server's
	for i := range 2 {
		other, err := krait.Embedded(krait.Options{Slots: 2, Sharding: krait.Sharding{Ranks: 1 + i}})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		s, err := prefill.NewServer(other.Session(), transfer.ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := prefill.New(m.Session(), prefill.Options{Address: "none", Dial: func(ctx context.Context) (net.Conn, error) {
			if dead[i].Load() {
				return nil, errors.New("it is dead")
			}
			conn, err := s.Pipe(ctx)
			if i == 1 && err == nil {
				mu.Lock()
				second = append(second, conn)
				mu.Unlock()
			}
			return conn, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		from = append(from, p)
	}
	counted := metrics.New()
	s, err := openai.New(m, openai.Options{Prefill: []krait.Prefiller{from[0], from[1]}, PrefillNames: []string{"a:1", "b:1"}, Metrics: counted})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	prompt := func(i int) string { return fmt.Sprintf("%d %s", i, genesis) }
	all := func() {
		t.Helper()
		for i := range 12 {
			want, err := alone.Generate(t.Context(), prompt(i), krait.Generate{MaxTokens: 5})
			if err != nil {
				t.Fatal(err)
			}
			if got := ask(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": 5, "temperature": 0}`, prompt(i))); got.Choices[0].Text != want.Text {
				t.Errorf("prompt %d: %q, and alone %q", i, got.Choices[0].Text, want.Text)
			}
		}
	}
	all()
	a, b := from[0].Stats(), from[1].Stats()
	if a.Fetched == 0 || b.Fetched == 0 || a.Fetched+b.Fetched != 12 {
		t.Errorf("%+v and %+v", a, b)
	}
	all() // again, to the same
	if x, y := from[0].Stats().Fetched, from[1].Stats().Fetched; x != 2*a.Fetched || y != 2*b.Fetched {
		t.Errorf("%d and %d prompts, after %d and %d", x, y, a.Fetched, b.Fetched)
	}
	for i, name := range []string{"a:1", "b:1"} { // either may have had it
		was := from[i].Stats().Fetched
		for k := range 4 {
			if status, text := asked(t, h, name, fmt.Sprintf(`{"prompt": %q, "max_tokens": 1}`, prompt(k))); status != 200 {
				t.Errorf("by %s: %d %s", name, status, text)
			}
		}
		if n := from[i].Stats().Fetched - was; n != 4 {
			t.Errorf("%s read %d of 4 prompts that a router sent there", name, n)
		}
	}
	if status, text := asked(t, h, "evil:1", `{"prompt": "x"}`); status != 400 || !strings.Contains(text, "unknown_prefill") {
		t.Errorf("an unknown prefill server: %d %s", status, text)
	}
	mine := 0 // a prompt of the second's
	for was := from[1].Stats().Fetched; from[1].Stats().Fetched == was; mine++ {
		ask(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": 1}`, prompt(mine)))
	}
	dead[1].Store(true)
	mu.Lock()
	for _, conn := range second { // without the goodbye of a server that is closed
		conn.Close()
	}
	mu.Unlock()
	all()
	read := from[0].Stats().Fetched
	until(t, "the first machine reads for the second", func() bool {
		ask(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": 1}`, prompt(mine-1)))
		return from[0].Stats().Fetched > read
	})
	if here := from[1].Stats().Fallbacks; here == 0 || !strings.Contains(scraped(t, h), fmt.Sprintf("\nkrait_fallbacks_total %d\n", here)) {
		t.Errorf("this server prefilled %d prompts", here)
	}
	if n := from[0].Stats().Fetched + from[1].Stats().Fetched; !strings.Contains(scraped(t, h), fmt.Sprintf("\nkrait_remote_prefill_seconds_count %d\n", n)) {
		t.Errorf("metrics do not have %d prompts", n)
	}
}

// TestTenantsElsewhere: a prefill server's prefix cache has no hits across tenants, unless the
// cache is shared.
func TestTenantsElsewhere(t *testing.T) {
	for _, share := range []bool{false, true} {
		reads, err := krait.Embedded(krait.Options{Slots: 2, PrefixCache: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer reads.Close()
		s, err := prefill.NewServer(reads.Session(), transfer.ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		m, err := krait.Embedded(krait.Options{Slots: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		p, err := prefill.New(m.Session(), prefill.Options{Address: "none", Dial: s.Pipe, Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		serves, err := openai.New(m, openai.Options{Keys: keysOf(t, "ann", "bob"), ShareCache: share, Prefill: []krait.Prefiller{p}})
		if err != nil {
			t.Fatal(err)
		}
		h := httptest.NewServer(serves)
		defer h.Close()
		ask := func(key string, hit bool, tail string) {
			t.Helper()
			before := reads.Session().PrefixCache().HitTokens
			status, a := as(t, h, key, fmt.Sprintf(`{"prompt": %q, "max_tokens": 1}`, genesis+genesis+tail))
			if got := reads.Session().PrefixCache().HitTokens > before; status != 200 || got != hit {
				t.Errorf("share %v, %s%q: %d, a hit: %v; %+v", share, key, tail, status, got, a)
			}
		}
		for _, tail := range []string{" a.", "\nb.", " c."} { // after 64 tokens the first leaves a state
			ask("ann", tail != " a.", tail)
		}
		for _, tail := range []string{" d.", "\ne.", " f."} {
			ask("bob", share || tail != " d.", tail)
		}
	}
}

package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
)

// TestMetrics: what the server counts is what its client saw.
func TestMetrics(t *testing.T) {
	counted := metrics.New()
	m, err := krait.Embedded(krait.Options{Slots: 2, PrefixCache: 64 << 20, Batches: counted.Batch, Record: counted.Record, Recording: counted.Recording})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{Metrics: counted})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	began := time.Now()
	var prompt, cached, chosen, texts int
	said := genesis
	for i := range 6 { // each continues the conversation of the one before
		asked, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		a := ask(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": %d, "seed": 1, "n": %d, "temperature": 0}`, asked, 3+i, 1+i%3))
		texts += len(a.Choices)
		prompt += a.Usage.Prompt
		chosen += a.Usage.Completion
		cached += a.Usage.Details.Cached
		said += a.Choices[0].Text + " and"
	}
	if status, _ := post(t, h, "/v1/completions", `{"prompt": 3.5}`); status != 400 {
		t.Errorf("status %d", status)
	}
	post(t, h, "/nowhere/"+strings.Repeat("x", 99), "")
	// A text that its client leaves.
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/completions", strings.NewReader(`{"prompt": "a", "max_tokens": 100000, "ignore_eos": true, "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	open, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	open.Body.Read(make([]byte, 1))
	leave()
	open.Body.Close()
	until(t, "the server is idle", func() bool { return s.Load() == openai.Load{} })
	elapsed := time.Since(began).Seconds()
	until(t, "the text has been counted", func() bool { return strings.Contains(scraped(t, h), `krait_texts_total{reason="failed"} 1`) })
	text := scraped(t, h)
	value := func(name string) float64 {
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
		if line == nil {
			t.Fatalf("no %s in %s", name, text)
		}
		x, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for name, want := range map[string]int{
		`krait_requests_total{path="/v1/completions",status="400"}`: 1, `krait_requests_total{path="other",status="404"}`: 1,
		`krait_texts_total{reason="length"}`: texts, "krait_queue_seconds_count": texts + 1, "krait_time_to_first_token_seconds_count": texts + 1,
		"krait_prompt_tokens_total": prompt + 1, "krait_slots": 2, "krait_running": 0, "krait_waiting": 0, "krait_held_tokens": 0,
	} {
		if got := value(name); got != float64(want) {
			t.Errorf("%s is %g, want %d", name, got, want)
		}
	}
	// The tokens of the client that left are unknown, but it had one.
	if got := value("krait_completion_tokens_total"); got < float64(chosen) {
		t.Errorf("%g tokens, and clients had %d", got, chosen)
	}
	if got := value("krait_cached_tokens_total"); got < float64(cached) || got == 0 {
		t.Errorf("%g tokens were cached, and clients were told of %d", got, cached)
	}
	read := value("krait_step_prompt_tokens_total") + value("krait_step_decode_tokens_total")
	if steps := value("krait_steps_total"); steps < 8 || read < steps || value("krait_measured_steps_total") < 1 {
		t.Errorf("%g steps of %g tokens, %g measured", steps, read, value("krait_measured_steps_total"))
	}
	if sum := value("krait_time_to_first_token_seconds_sum"); sum <= value("krait_queue_seconds_sum") || sum > elapsed*float64(texts+1) {
		t.Errorf("%g seconds to first tokens, of %g", sum, elapsed)
	}
}

// scraped is what /metrics answers.
func scraped(t *testing.T, h *httptest.Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.Config.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestDashboard: Grafana is asked to draw what there is, and all of ours but what needs no drawing.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../packaging/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	counted := metrics.New()
	counted.Request("/", 200) // those with labels are there from the first on
	counted.Text(metrics.Text{Reason: "stop"})
	counted.Recording()
	counted.Record([]exec.Event{{Start: 0, End: 1}})
	m, err := krait.Embedded(krait.Options{PrefixCache: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{Metrics: counted})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	there, drawn := map[string]bool{}, map[string]bool{}
	for _, name := range regexp.MustCompile(`(?m)^krait_\w+`).FindAllString(scraped(t, h), -1) {
		there[name] = true
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`krait_\w+`).FindAllString(target.Expr, -1) {
				if drawn[name] = true; !there[name] {
					t.Errorf("%s: there is no %s", p.Title, name)
				}
			}
		}
	}
	if len(board.Panels) != 10 || len(drawn) < 18 {
		t.Errorf("%d panels of %d metrics", len(board.Panels), len(drawn))
	}
}

package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
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
	until(t, "the text has been counted", func() bool {
		return strings.Contains(scraped(t, h), `krait_request_success_total{finished_reason="abort"} 1`)
	})
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
		`krait_request_success_total{finished_reason="length"}`: texts, `krait_request_success_total{finished_reason="error"}`: 0, "krait_request_queue_time_seconds_count": texts + 1, "krait_time_to_first_token_seconds_count": texts + 1,
		"krait_prompt_tokens_total": prompt + 1, "krait_slots": 2, "krait_num_requests_running": 0, "krait_num_requests_waiting": 0,
		`krait_requests_total{path="/v1/completions",status="499"}`: 1, "krait_e2e_request_latency_seconds_count": texts, "krait_held_tokens": 0,
	} {
		if got := value(name); got != float64(want) {
			t.Errorf("%s is %g, want %d", name, got, want)
		}
	}
	// The tokens of the client that left are unknown, but it had one.
	if got := value("krait_generation_tokens_total"); got < float64(chosen) {
		t.Errorf("%g tokens, and clients had %d", got, chosen)
	}
	if got := value("krait_prompt_tokens_cached_total"); got < float64(cached) || got == 0 {
		t.Errorf("%g tokens were cached, and clients were told of %d", got, cached)
	}
	read := value("krait_step_prompt_tokens_total") + value("krait_step_decode_tokens_total")
	if steps := value("krait_steps_total"); steps < 8 || read < steps || value("krait_measured_steps_total") < 1 {
		t.Errorf("%g steps of %g tokens, %g measured", steps, read, value("krait_measured_steps_total"))
	}
	if sum := value("krait_time_to_first_token_seconds_sum"); sum <= value("krait_request_queue_time_seconds_sum") || sum > elapsed*float64(texts+1) {
		t.Errorf("%g seconds to first tokens, of %g", sum, elapsed)
	}
	// Each token after the first has a gap, and gaps add up to the time of decoding.
	if n := value("krait_inter_token_latency_seconds_count"); n != value("krait_generation_tokens_total")-float64(texts+1) {
		t.Errorf("%g gaps of %g tokens", n, value("krait_generation_tokens_total"))
	}
	if gaps, decode := value("krait_inter_token_latency_seconds_sum"), value("krait_request_decode_time_seconds_sum"); gaps < 0.999*decode || gaps > 1.001*decode {
		t.Errorf("gaps of %g seconds in %g seconds of decoding", gaps, decode)
	}
}

// scraped is what /metrics answers.
func scraped(t *testing.T, h *httptest.Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.Config.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return plain(w.Body.String())
}

// plain takes the label model_name off metrics.
func plain(text string) string {
	return strings.NewReplacer("{}", "", "{,", "{").Replace(regexp.MustCompile(`,?model_name="[^"]*"`).ReplaceAllString(text, ""))
}

// TestFailedStream: a stream that fails after its first event counts as the failure, not as 200.
func TestFailedStream(t *testing.T) {
	counted := metrics.New()
	_, h, _ := server(t, openai.Options{Metrics: counted, Deadline: 300 * time.Millisecond}, 1)
	status, text := post(t, h, "/v1/completions", `{"prompt": "a", "max_tokens": 900000, "ignore_eos": true, "stream": true}`)
	if status != 200 || !strings.Contains(text, `"code":"timeout"`) {
		t.Errorf("status %d, %.300s", status, text[max(0, len(text)-300):])
	}
	text = scraped(t, h)
	for _, want := range []string{`krait_requests_total{path="/v1/completions",status="504"} 1`, `krait_request_success_total{finished_reason="error"} 1`, "krait_e2e_request_latency_seconds_count 0"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(text, `path="/v1/completions",status="200"`) {
		t.Error("the stream counts as answered")
	}
}

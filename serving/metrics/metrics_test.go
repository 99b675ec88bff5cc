package metrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/serving/metrics"
)

// scrape is what Prometheus would read.
func scrape(m *metrics.Metrics) string {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// has looks for lines of metrics of the model tiny.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		name, value, _ := strings.Cut(line, " ")
		name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if before, _, _ := strings.Cut(labels, "="); labels == "" {
			line = name + `{model_name="tiny"} ` + value
		} else if before < "model_name" {
			line = name + "{" + labels + `,model_name="tiny"} ` + value
		} else {
			line = name + `{model_name="tiny",` + labels + "} " + value
		}
		if !strings.Contains(text, "\n"+line+"\n") {
			_, rest, _ := strings.Cut(text, "\n"+name)
			rest, _, _ = strings.Cut(rest, "\n")
			t.Errorf("no line %q, but %s%s", line, name, rest)
		}
	}
}

// TestText: what texts are counted as; times of what did not come about are not. A gauge may come
// after the model's name.
func TestText(t *testing.T) {
	m := metrics.New()
	m.ServeTexts()
	m.SetModel("tiny")
	m.Text(metrics.Text{Reason: "length", Prompt: 20, Cached: 16, Chosen: 5, Began: 500 * time.Millisecond, First: time.Second, Last: 3 * time.Second, Ended: 4 * time.Second})
	m.Text(metrics.Text{Reason: "stop", Prompt: 7, Chosen: 1, Began: 250 * time.Millisecond, First: 2 * time.Second, Last: 2 * time.Second, Ended: 2 * time.Second})
	m.Text(metrics.Text{Reason: metrics.Failed, Ended: time.Second}) // it waited in vain
	m.Text(metrics.Text{Reason: metrics.Abort, Began: 250 * time.Millisecond, Ended: time.Second})
	m.Text(metrics.Text{Reason: "stop", Prompt: 0, Fetched: 9, Traveled: 1000, Prefill: 2 * time.Second, Transfer: time.Second})
	m.Text(metrics.Text{Reason: "stop", Fallback: true})
	m.Gap(3 * time.Millisecond)
	m.Gap(0)
	m.Request("/v1/completions", 200)
	m.Request("/v1/completions", 200)
	m.Request("other", 404)
	m.Gauge("krait_slots", "Slots.", func() float64 { return 3 })
	text := scrape(m)
	has(t, text, `krait_request_success_total{finished_reason="length"} 1`, `krait_request_success_total{finished_reason="stop"} 3`,
		`krait_request_success_total{finished_reason="error"} 1`, `krait_request_success_total{finished_reason="abort"} 1`,
		"krait_prompt_tokens_total 27", "krait_prompt_tokens_cached_total 16", "krait_generation_tokens_total 6",
		"krait_request_queue_time_seconds_count 3", "krait_request_queue_time_seconds_sum 1", "krait_time_to_first_token_seconds_count 2", "krait_time_to_first_token_seconds_sum 3",
		"krait_request_prefill_time_seconds_sum 2.25", "krait_request_decode_time_seconds_sum 2", "krait_e2e_request_latency_seconds_count 4", "krait_e2e_request_latency_seconds_sum 6",
		"krait_inter_token_latency_seconds_count 2", "krait_inter_token_latency_seconds_sum 0.003",
		"krait_request_prompt_tokens_sum 27", "krait_request_generation_tokens_count 4",
		"krait_fetched_tokens_total 9", "krait_fetched_bytes_total 1000", "krait_remote_prefill_seconds_count 1", "krait_remote_prefill_seconds_sum 2", "krait_transfer_seconds_sum 1", "krait_fallbacks_total 1",
		"krait_request_time_per_output_token_seconds_count 1", "krait_request_time_per_output_token_seconds_sum 0.5",
		`krait_requests_total{path="/v1/completions",status="200"} 2`, `krait_requests_total{path="other",status="404"} 1`, "krait_slots 3")
	if !strings.Contains(text, `krait_inter_token_latency_seconds_bucket{model_name="tiny",le="0.0025"} 1`) {
		t.Error("a gap of 3 ms is not above 2.5 ms")
	}
	if !strings.Contains(text, "\nkrait_build_info{goversion=") {
		t.Error("no krait_build_info")
	}
}

// TestSteps: batches by prompts and rows of one token, and of the steps that are measured
// what ranks did, on average.
func TestSteps(t *testing.T) {
	m := metrics.New()
	m.SetModel("tiny")
	for i := range 33 {
		w := &exec.Work{}
		w.Ends = []int{1, 8, 9}
		m.Batch(w)
		if now := m.Recording(); now != (i%32 == 0) {
			t.Errorf("step %d: %v", i, now)
		}
		m.Record([]exec.Event{
			{Rank: 0, Start: 1, End: 3}, {Rank: 0, Kind: lowering.Collective, Start: 3, End: 4, Bytes: 100}, {Rank: 0, Kind: lowering.Wait, Start: 4, End: 5},
			{Rank: 1, Start: 1, End: 2}, {Rank: 1, Kind: lowering.Collective, Start: 2, End: 4, Bytes: 100},
		})
	}
	has(t, scrape(m), "krait_steps_total 33", "krait_step_prompt_tokens_total 231", "krait_step_decode_tokens_total 66", "krait_iteration_tokens_total_sum 297",
		"krait_measured_steps_total 2", `krait_measured_seconds_total{what="step"} 8`, `krait_measured_seconds_total{what="kernels"} 3`,
		`krait_measured_seconds_total{what="collectives"} 3`, "krait_measured_collectives_total 2", "krait_measured_collective_bytes_total 200")
}

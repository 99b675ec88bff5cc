// Package metrics collects the metrics of a server for Prometheus.
//
// Latencies are histograms in seconds: time in the queue, to the first token, and per output token.
// Batches are counted before they run. The time of ranks is measured in one of 32 steps only,
// since measuring slows a step down.
package metrics

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/lowering"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// every is the number of steps per measured step.
const every = 32

// Metrics are those of one server. Its methods may be called from several goroutines.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	requests               *prometheus.CounterVec
	texts                  *prometheus.CounterVec
	prompt, cached, chosen prometheus.Counter
	queue, first, next     prometheus.Histogram

	fetched, traveled, fallbacks prometheus.Counter
	elsewhere                    prometheus.Histogram

	steps           prometheus.Counter
	prompts, rows   prometheus.Counter
	perStep         prometheus.Histogram
	measured        prometheus.Counter
	spent           *prometheus.CounterVec
	carried, called prometheus.Counter

	asked  atomic.Int64 // calls of Recording
	record atomic.Bool  // the next step is measured
}

// New returns metrics, all 0.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.requests = m.counters("krait_requests_total", "Answered HTTP requests by path and status.", "path", "status")
	m.texts = m.counters("krait_texts_total", "Ended sequences (choices) by reason: stop, length, or failed, which includes client disconnects.", "reason")
	m.prompt = m.counter("krait_prompt_tokens_total", "Prompt tokens of ended sequences.")
	m.cached = m.counter("krait_cached_tokens_total", "Prompt tokens that hit the prefix cache.")
	m.chosen = m.counter("krait_completion_tokens_total", "Output tokens of ended sequences.")
	m.queue = m.seconds("krait_queue_seconds", "Time that a sequence spends in the queue before it gets a slot.", 0.001, 18)
	m.first = m.seconds("krait_time_to_first_token_seconds", "Time to first token, including the time in the queue.", 0.001, 18)
	m.next = m.seconds("krait_time_per_output_token_seconds", "Time per output token (TPOT): decode time of a sequence divided by its tokens after the first.", 0.0001, 18)
	m.fetched = m.counter("krait_fetched_tokens_total", "Prompt tokens whose state was fetched from a prefill server.")
	m.traveled = m.counter("krait_fetched_bytes_total", "Bytes of states and KV pages fetched from prefill servers.")
	m.fallbacks = m.counter("krait_fallbacks_total", "Prompts that this server prefilled because no prefill server could.")
	m.elsewhere = m.seconds("krait_prefill_seconds", "Time from sending a prompt to a prefill server until it reports that prefill is done.", 0.001, 18)
	m.steps = m.counter("krait_steps_total", "Steps of the model; each runs one batch.")
	m.prompts = m.counter("krait_step_prompt_tokens_total", "Prefill tokens in steps.")
	m.rows = m.counter("krait_step_decode_tokens_total", "Decode tokens in steps: one per running sequence and step.")
	m.perStep = m.histogram("krait_step_tokens", "Tokens per step, prefill and decode.", prometheus.ExponentialBuckets(1, 2, 13))
	m.measured = m.counter("krait_measured_steps_total", "Steps that were measured: one in "+strconv.Itoa(every)+", on CPUs only.")
	m.spent = m.counters("krait_measured_seconds_total", "Time of measured steps: what=step is the whole step, kernels and collectives are means over ranks.", "what")
	m.called = m.counter("krait_measured_collectives_total", "Collectives in measured steps.")
	m.carried = m.counter("krait_measured_collective_bytes_total", "Payload bytes of collectives in measured steps; each operand counts once.")
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
	return m
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

// seconds adds a histogram of n buckets, each twice as wide as the one before.
func (m *Metrics) seconds(name, help string, least float64, n int) prometheus.Histogram {
	return m.histogram(name, help, prometheus.ExponentialBuckets(least, 2, n))
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// Gauge adds a gauge whose value is read at each scrape. A name that is taken panics.
func (m *Metrics) Gauge(name, help string, now func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, now))
}

// Counter adds a counter whose value is read at each scrape. A name that is taken panics.
func (m *Metrics) Counter(name, help string, now func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, now))
}

// CounterOf adds a counter with a label whose value is read at each scrape.
func (m *Metrics) CounterOf(name, help, label, value string, now func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}}, now))
}

// ServeHTTP writes the metrics in Prometheus' text format.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Request counts an answered request. Each pair of path and status is a time series.
func (m *Metrics) Request(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// Text is the outcome of one generated text.
type Text struct {
	Reason                 string // stop, length or failed
	Prompt, Cached, Chosen int    // tokens
	// Times since the request until the text had its slot and its first token, and ended; 0: never.
	Began, First, Ended time.Duration
	// Tokens, bytes and time of a prefill by a prefill server, and whether this server fell back to
	// prefilling the prompt itself.
	Fetched  int
	Traveled int64
	Prefill  time.Duration
	Fallback bool
}

// Text counts a text that ended.
func (m *Metrics) Text(t Text) {
	m.texts.WithLabelValues(t.Reason).Inc()
	m.prompt.Add(float64(t.Prompt))
	m.cached.Add(float64(t.Cached))
	m.chosen.Add(float64(t.Chosen))
	m.fetched.Add(float64(t.Fetched))
	m.traveled.Add(float64(t.Traveled))
	if t.Fetched > 0 {
		m.elsewhere.Observe(t.Prefill.Seconds())
	}
	if t.Fallback {
		m.fallbacks.Inc()
	}
	if t.Began > 0 {
		m.queue.Observe(t.Began.Seconds())
	}
	if t.First > 0 {
		m.first.Observe(t.First.Seconds())
	}
	if t.First > 0 && t.Chosen > 1 {
		m.next.Observe((t.Ended - t.First).Seconds() / float64(t.Chosen-1))
	}
}

// Batch counts a batch before it runs: it is [krait.Options.Batches]. It counts as [exec.Work.Mix]
// does.
func (m *Metrics) Batch(w *exec.Work) {
	_, prompts, rows := w.Mix()
	m.steps.Inc()
	m.prompts.Add(float64(prompts))
	m.rows.Add(float64(rows))
	m.perStep.Observe(float64(prompts + rows))
}

// Recording reports whether to measure the next step: it is [krait.Options.Recording].
func (m *Metrics) Recording() bool {
	now := m.asked.Add(1)%every == 1
	m.record.Store(now)
	return now
}

// Record counts the events of a measured step: it is [krait.Options.Record]. It ignores steps for
// which Recording returned false.
func (m *Metrics) Record(step []exec.Event) {
	if len(step) == 0 || !m.record.Load() {
		return
	}
	ranks, from, to := 0, step[0].Start, step[0].End
	var kernels, collectives, bytes float64
	count := 0
	for i := range step {
		e := &step[i]
		ranks, from, to = max(ranks, e.Rank+1), min(from, e.Start), max(to, e.End)
		switch {
		case e.Kind == lowering.Collective:
			collectives += e.End - e.Start
			if e.Rank == 0 {
				count++
				bytes += float64(e.Bytes)
			}
		case e.Kind != lowering.Wait:
			kernels += e.End - e.Start
		}
	}
	m.measured.Inc()
	m.spent.WithLabelValues("step").Add(to - from)
	m.spent.WithLabelValues("kernels").Add(kernels / float64(ranks))
	m.spent.WithLabelValues("collectives").Add(collectives / float64(ranks))
	m.called.Add(float64(count))
	m.carried.Add(bytes)
}

// Package metrics counts what a server does, for Prometheus.
//
// Times are histograms in seconds: of the queue, to the first token, and from one token to the
// next. What runs is told by batches, before they run, and what ranks do by a few of the
// steps, as to measure each takes time from all of them.
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

// every is how many steps there are to one that is measured.
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

	asked  atomic.Int64 // how often whether a step is to be measured
	record atomic.Bool  // the one that is to run
}

// New makes metrics, all of them 0.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.requests = m.counters("krait_requests_total", "Requests that were answered, by path and status.", "path", "status")
	m.texts = m.counters("krait_texts_total", "Texts that ended, by reason: stop, length, or failed, which those that clients left are, too.", "reason")
	m.prompt = m.counter("krait_prompt_tokens_total", "Tokens of the prompts of texts.")
	m.cached = m.counter("krait_cached_tokens_total", "Of these, tokens that the prefix cache had.")
	m.chosen = m.counter("krait_completion_tokens_total", "Tokens that were generated.")
	m.queue = m.seconds("krait_queue_seconds", "From a text's request to its slot.", 0.001, 18)
	m.first = m.seconds("krait_time_to_first_token_seconds", "From a text's request to its first token, waiting included.", 0.001, 18)
	m.next = m.seconds("krait_time_per_output_token_seconds", "Of a text after its first token, by the tokens after it.", 0.0001, 18)
	m.fetched = m.counter("krait_fetched_tokens_total", "Tokens of prompts that were read elsewhere.")
	m.traveled = m.counter("krait_fetched_bytes_total", "Bytes of states and rows of caches that came of them.")
	m.fallbacks = m.counter("krait_fallbacks_total", "Prompts that were read here, since nobody elsewhere could.")
	m.elsewhere = m.seconds("krait_prefill_seconds", "From a prompt's way elsewhere to the answer that it is read.", 0.001, 18)
	m.steps = m.counter("krait_steps_total", "Steps of the model.")
	m.prompts = m.counter("krait_step_prompt_tokens_total", "Tokens of prompts that steps read.")
	m.rows = m.counter("krait_step_decode_tokens_total", "Sequences of one token in steps: those that are continued.")
	m.perStep = m.histogram("krait_step_tokens", "Tokens of a step.", prometheus.ExponentialBuckets(1, 2, 13))
	m.measured = m.counter("krait_measured_steps_total", "Steps that were measured, one of "+strconv.Itoa(every)+"; on the CPU only.")
	m.spent = m.counters("krait_measured_seconds_total", "Seconds of measured steps: of ranks in kernels and in collectives, on average over ranks, and of the steps.", "what")
	m.called = m.counter("krait_measured_collectives_total", "Collectives of measured steps.")
	m.carried = m.counter("krait_measured_collective_bytes_total", "Bytes that collectives of measured steps carried, each operand whole and once.")
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

// seconds is a histogram of n buckets, each twice as wide as the one before.
func (m *Metrics) seconds(name, help string, least float64, n int) prometheus.Histogram {
	return m.histogram(name, help, prometheus.ExponentialBuckets(least, 2, n))
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// Gauge adds a number that is asked for when metrics are; a name that is there panics.
func (m *Metrics) Gauge(name, help string, now func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, now))
}

// Counter adds a number that only grows, as Gauge does.
func (m *Metrics) Counter(name, help string, now func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, now))
}

// ServeHTTP writes them in Prometheus' text format.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Request counts an answer. Paths and statuses are to be few: each pair is kept.
func (m *Metrics) Request(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// Text is how one text went.
type Text struct {
	Reason                 string // stop, length or failed
	Prompt, Cached, Chosen int    // tokens
	// Times from its request on; those of what did not come about are 0.
	Began, First, Ended time.Duration
	// Of a prompt that was read elsewhere: tokens, bytes that came of it, and how long that took;
	// and whether it was to be, and was read here.
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

// Batch is told of a batch before it runs: it is [krait.Options.Batches]. It counts as
// [exec.Work.Mix] does.
func (m *Metrics) Batch(w *exec.Work) {
	_, prompts, rows := w.Mix()
	m.steps.Inc()
	m.prompts.Add(float64(prompts))
	m.rows.Add(float64(rows))
	m.perStep.Observe(float64(prompts + rows))
}

// Recording reports whether the step that is next is to be measured: it is
// [krait.Options.Recording].
func (m *Metrics) Recording() bool {
	now := m.asked.Add(1)%every == 1
	m.record.Store(now)
	return now
}

// Record is told what ranks did in a step: it is [krait.Options.Record]. Steps that it did not
// ask for do not count.
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

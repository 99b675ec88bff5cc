// Package metrics collects the metrics of a server for Prometheus, with vLLM's names after krait_,
// and its buckets, where they mean the same.
//
// Latencies are histograms in seconds, from arrival on: times in the queue and in phases of a text,
// to the first token, between tokens, and to the end. Batches are counted before they run. The time
// of ranks is measured in one of 32 steps only, since measuring slows a step down.
package metrics

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/krait-ml/krait/serving/internal/scrape"
	"github.com/prometheus/client_golang/prometheus"
)

// every is the number of steps per measured step.
const every = 32

// Buckets of vLLM's histograms. Those of gaps begin lower, for small models.
var (
	firstBuckets = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	gapBuckets   = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	longBuckets  = []float64{0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	stepBuckets  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	sizeBuckets  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000}
)

// Metrics are those of one server. Its methods may be called from several goroutines.
type Metrics struct {
	own     *prometheus.Registry // of the model
	handler atomic.Pointer[http.Handler]

	requests                     *prometheus.CounterVec
	ends                         *prometheus.CounterVec
	prompt, cached, chosen       prometheus.Counter
	queue, first, mean, gaps     prometheus.Histogram
	whole, prefill, decode       prometheus.Histogram
	promptTokens, chosenTokens   prometheus.Histogram
	fetched, traveled, fallbacks prometheus.Counter
	elsewhere, transfer          prometheus.Histogram

	steps           prometheus.Counter
	prompts, rows   prometheus.Counter
	perStep         prometheus.Histogram
	measured        prometheus.Counter
	spent           *prometheus.CounterVec
	carried, called prometheus.Counter

	asked  atomic.Int64 // calls of Recording
	record atomic.Bool  // the next step is measured
}

// New returns metrics of steps, all 0. [Metrics.ServeTexts] adds those of a server of texts.
func New() *Metrics {
	m := &Metrics{own: prometheus.NewRegistry()}
	m.steps = m.counter("krait_steps_total", "Steps of the model; each runs one batch.")
	m.prompts = m.counter("krait_step_prompt_tokens_total", "Prefill tokens in steps.")
	m.rows = m.counter("krait_step_decode_tokens_total", "Decode tokens in steps: one per running sequence and step.")
	m.perStep = m.histogram("krait_iteration_tokens_total", "Tokens per step, prefill and decode.", stepBuckets)
	m.measured = m.counter("krait_measured_steps_total", "Steps that were measured: one in "+strconv.Itoa(every)+", on CPUs only.")
	m.spent = m.counters("krait_measured_seconds_total", "Time of measured steps: what=step is the whole step, kernels and collectives are means over ranks.", "what")
	m.called = m.counter("krait_measured_collectives_total", "Collectives in measured steps.")
	m.carried = m.counter("krait_measured_collective_bytes_total", "Payload bytes of collectives in measured steps; each operand counts once.")
	m.SetModel("")
	return m
}

// SetModel sets the label model_name of all metrics but those of the process.
func (m *Metrics) SetModel(name string) {
	all := prometheus.NewRegistry()
	prometheus.WrapRegistererWith(prometheus.Labels{"model_name": name}, all).MustRegister(unchecked{m.own})
	h := scrape.Handler(all)
	m.handler.Store(&h)
}

// unchecked is a registry that gets more metrics after it is registered in another.
type unchecked struct{ *prometheus.Registry }

func (unchecked) Describe(chan<- *prometheus.Desc) {}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.own.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.own.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.own.MustRegister(h)
	return h
}

// Gauge adds a gauge whose value is read at each scrape. A name that is taken panics.
func (m *Metrics) Gauge(name, help string, now func() float64) {
	m.own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, now))
}

// Counter adds a counter whose value is read at each scrape. A name that is taken panics.
func (m *Metrics) Counter(name, help string, now func() float64) {
	m.own.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, now))
}

// CounterOf adds a counter with a label whose value is read at each scrape.
func (m *Metrics) CounterOf(name, help, label, value string, now func() float64) {
	m.own.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}}, now))
}

// ServeHTTP writes the metrics in Prometheus' text format.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*m.handler.Load()).ServeHTTP(w, r)
}

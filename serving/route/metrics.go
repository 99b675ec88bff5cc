package route

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/krait-ml/krait/serving/internal/scrape"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the router's metrics for Prometheus.
type metrics struct {
	registry        *prometheus.Registry
	page            http.Handler
	requests        *prometheus.CounterVec
	retries         prometheus.Counter
	lost, ejections *prometheus.CounterVec
	first           prometheus.Histogram
}

func newMetrics(r *Router) *metrics {
	f := &metrics{registry: prometheus.NewRegistry()}
	f.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "krait_route_requests_total",
		Help: "Answered requests by path, status and server (machine; empty: the router itself answered)."}, []string{"path", "status", "machine"})
	f.retries = prometheus.NewCounter(prometheus.CounterOpts{Name: "krait_route_retries_total", Help: "Requests retried on a second server."})
	f.lost = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "krait_route_lost_total",
		Help: "Streams that ended with an error because the connection to their server was lost."}, []string{"machine"})
	f.ejections = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "krait_route_ejections_total",
		Help: "Ejections of a server after repeated failures (outlier ejection)."}, []string{"machine"})
	f.first = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "krait_route_first_part_seconds",
		Help: "Time from the end of a request's body to the first bytes of its answer, retries included.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)})
	f.registry.MustRegister(f.requests, f.retries, f.lost, f.ejections, f.first, machines{r})
	if e := r.o.Trace; e != nil {
		f.registry.MustRegister(
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "krait_spans_sent_total", Help: "Spans that the collector of --otlp has accepted."}, func() float64 { return float64(e.Sent()) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "krait_spans_dropped_total", Help: "Spans that were lost: the queue was full, or the collector did not accept them."}, func() float64 { return float64(e.Dropped()) }))
	}
	f.page = scrape.Handler(f.registry)
	return f
}

// request counts a request that has ended.
func (f *metrics) request(path string, o outcome) {
	f.requests.WithLabelValues(path, strconv.Itoa(o.status), o.machine).Inc()
	if o.tries > 1 {
		f.retries.Inc()
	}
	if o.begun {
		f.first.Observe(o.first.Seconds())
	}
}

// Machine is the state of a server or prefill server as the router sees it.
type Machine struct {
	Name    string `json:"name"`
	Role    string `json:"role"` // server or prefill
	Ready   bool   `json:"ready"`
	Ejected bool   `json:"ejected"`
	Running int    `json:"running"` // active requests
	Work    int64  `json:"work"`    // bytes of prompts to prefill, and 16 for each token to decode
	Why     string `json:"why,omitempty"`
}

// Machines returns the current state of all machines.
func (r *Router) Machines() (list []Machine) {
	now := time.Now()
	for i, p := range []*pool{&r.servers, &r.prefill} {
		role := []string{"server", "prefill"}[i]
		p.mu.Lock()
		for _, m := range p.machines {
			one := Machine{m.name, role, m.ready, now.Before(m.until), m.load.Running, m.load.Work, ""}
			if m.why != nil {
				one.Why = m.why.Error()
			}
			list = append(list, one)
		}
		p.mu.Unlock()
	}
	return list
}

// Admin returns the pages for an operator by their paths: /metrics for Prometheus, /machines, which
// is [Router.Machines] as JSON, and /ready. They name machines and require no key, so serve them on
// a separate address.
func (r *Router) Admin() map[string]http.Handler {
	return map[string]http.Handler{
		"/metrics": r.metrics.page,
		"/machines": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(r.Machines())
		}),
		"/ready": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { r.answerReady(w) }),
	}
}

// machines collects the state of machines for Prometheus.
type machines struct{ r *Router }

var (
	labels    = []string{"machine", "role"}
	isReady   = prometheus.NewDesc("krait_route_ready", "1 if a server is ready for requests, else 0.", labels, nil)
	isEjected = prometheus.NewDesc("krait_route_ejected", "1 while a server is ejected after repeated failures, else 0.", labels, nil)
	isRunning = prometheus.NewDesc("krait_route_running", "Active requests of a server.", labels, nil)
)

func (c machines) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{isReady, isEjected, isRunning} {
		to <- d
	}
}

func (c machines) Collect(to chan<- prometheus.Metric) {
	truth := map[bool]float64{true: 1}
	for _, m := range c.r.Machines() {
		for _, g := range []struct {
			desc *prometheus.Desc
			v    float64
		}{{isReady, truth[m.Ready]}, {isEjected, truth[m.Ejected]}, {isRunning, float64(m.Running)}} {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.v, m.Name, m.Role)
		}
	}
}

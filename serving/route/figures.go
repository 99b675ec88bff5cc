package route

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// figures count what a router does, for Prometheus.
type figures struct {
	registry        *prometheus.Registry
	requests        *prometheus.CounterVec
	retries         prometheus.Counter
	lost, ejections *prometheus.CounterVec
	first           prometheus.Histogram
}

func newFigures(r *Router) *figures {
	f := &figures{registry: prometheus.NewRegistry()}
	f.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "krait_route_requests_total",
		Help: "Requests that were answered, by path, status and the server that did; none: the router itself."}, []string{"path", "status", "machine"})
	f.retries = prometheus.NewCounter(prometheus.CounterOpts{Name: "krait_route_retries_total", Help: "Requests that were asked of a second server."})
	f.lost = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "krait_route_lost_total",
		Help: "Streams that ended by an error, as their server was lost."}, []string{"machine"})
	f.ejections = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "krait_route_ejections_total",
		Help: "How often a server was left out, as its answers failed."}, []string{"machine"})
	f.first = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "krait_route_first_part_seconds",
		Help: "From a request to the first part of its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)})
	f.registry.MustRegister(f.requests, f.retries, f.lost, f.ejections, f.first, machines{r},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return f
}

// request counts one that has ended.
func (f *figures) request(path string, o outcome) {
	f.requests.WithLabelValues(path, strconv.Itoa(o.status), o.machine).Inc()
	if o.tries > 1 {
		f.retries.Inc()
	}
	if o.begun {
		f.first.Observe(o.first.Seconds())
	}
}

// Machine is what a router knows of a machine.
type Machine struct {
	Name    string `json:"name"`
	Role    string `json:"role"` // server or prefill
	Ready   bool   `json:"ready"`
	Ejected bool   `json:"ejected"`
	Running int    `json:"running"` // requests
	Work    int64  `json:"work"`    // bytes to read, and 16 for each token to write
	Why     string `json:"why,omitempty"`
}

// Machines are what is known of them now.
func (r *Router) Machines() (list []Machine) {
	now := time.Now()
	for i, p := range []*pool{&r.servers, &r.prefill} {
		role := []string{"server", "prefill"}[i]
		p.mu.Lock()
		for _, m := range p.machines {
			one := Machine{m.name, role, m.ready, now.Before(m.until), m.running, m.work, ""}
			if m.why != nil {
				one.Why = m.why.Error()
			}
			list = append(list, one)
		}
		p.mu.Unlock()
	}
	return list
}

// Admin answers /metrics, for Prometheus, and /machines: [Router.Machines] as JSON. They name
// machines, and want no key: they are for an address of their own.
func (r *Router) Admin() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(r.figures.registry, promhttp.HandlerOpts{DisableCompression: true}))
	m.HandleFunc("GET /machines", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(r.Machines())
	})
	return m
}

// machines gives what is known of machines to Prometheus.
type machines struct{ r *Router }

var (
	labels    = []string{"machine", "role"}
	isReady   = prometheus.NewDesc("krait_route_ready", "Whether a machine takes requests.", labels, nil)
	isEjected = prometheus.NewDesc("krait_route_ejected", "Whether a machine is left out, as its answers failed.", labels, nil)
	isRunning = prometheus.NewDesc("krait_route_running", "Requests that a machine works for.", labels, nil)
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

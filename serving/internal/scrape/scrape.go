// Package scrape has what the server and the router serve to Prometheus alike.
package scrape

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/krait-ml/krait/internal/program"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves a registry, to which it adds metrics of Go, of the process, and of how the program
// was built. It answers at most 4 scrapes at the same time, and others with 503.
func Handler(all *prometheus.Registry) http.Handler {
	commit, modified := program.Revision()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "krait_build_info", Help: "1; the labels tell how the program was built.", ConstLabels: prometheus.Labels{
		"version": program.Version(), "revision": commit, "modified": strconv.FormatBool(modified), "goversion": runtime.Version()}})
	build.Set(1)
	all.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

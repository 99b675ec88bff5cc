package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/serving/route"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// metricNames are the names of Krait's metrics that servers of all roles have from the first on.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	e, err := trace.New(trace.Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	open := func(to *metrics.Metrics) *krait.Model {
		device, err := devices.Open("cpu", devices.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := krait.Open("../testdata/golden/jamba", krait.Options{Device: device, Memory: 64 << 20, PrefixCache: 1 << 20, Slots: 2, Speculate: "ngram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		countSpans(to, e)
		return m
	}
	api, reads := metrics.New(), metrics.New()
	if _, err := openai.New(open(api), openai.Options{Metrics: api}); err != nil {
		t.Fatal(err)
	}
	api.Request("/", 200) // those with labels are there once they have been counted
	m := open(reads)
	s, err := prefill.NewServer(m.Session(), transfer.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	measurePrefill(reads, m, s)
	h := httptest.NewServer(http.NotFoundHandler())
	defer h.Close()
	r, err := route.New(route.Options{Servers: []string{h.URL}, Trace: e})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	there := map[string]bool{}
	for _, page := range []http.Handler{api, reads, r.Admin()["/metrics"]} {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range regexp.MustCompile(`(?m)^# TYPE (krait_\w+) (\w+)$`).FindAllStringSubmatch(w.Body.String(), -1) {
			if there[line[1]] = true; line[2] == "histogram" {
				there[line[1]+"_bucket"], there[line[1]+"_sum"], there[line[1]+"_count"] = true, true, true
			}
		}
	}
	// Vectors without an observation have no TYPE.
	for _, name := range []string{"krait_route_requests_total", "krait_route_lost_total", "krait_route_ejections_total", "krait_measured_seconds_total"} {
		there[name] = true
	}
	return there
}

// TestDashboard: what Grafana draws and what Prometheus alerts of exists. Each histogram of latency
// is drawn, and each query of the dashboard lets a model be chosen if its metrics have that label.
func TestDashboard(t *testing.T) {
	there := metricNames(t)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(packaged(t, "grafana.json")), &board); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`krait_\w+`)
	drawn := map[string]bool{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range names.FindAllString(target.Expr, -1) {
				if drawn[name] = true; !there[name] {
					t.Errorf("%s: there is no %s", p.Title, name)
				}
				if chosen := strings.Contains(target.Expr, name+`{model_name=~"$model_name"`); chosen == (strings.HasPrefix(name, "krait_route_") || name == "krait_build_info") {
					t.Errorf("%s: the model is chosen: %t", p.Title, chosen)
				}
			}
		}
	}
	for name := range there {
		if strings.HasSuffix(name, "_seconds_bucket") && !drawn[name] && !strings.HasPrefix(name, "krait_route_") {
			t.Errorf("%s is not drawn", name)
		}
	}
	alerts := packaged(t, "prometheus/alerts.yaml")
	for _, name := range names.FindAllString(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(alerts, ""), -1) {
		if !there[name] {
			t.Errorf("alerts: there is no %s", name)
		}
	}
}

// TestAlerts: Prometheus's own tool accepts the alerts, and their tests pass there. CI installs it,
// or says that they are not tested.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		c := exec.Command("promtool", args...)
		c.Dir = "../packaging/prometheus"
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// TestAdminPages: pprof is for clients of this machine that address it as such; other pages are for
// all.
func TestAdminPages(t *testing.T) {
	h := adminPages(map[string]http.Handler{"/metrics": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("krait_x 1\n")) })})
	for _, c := range []struct {
		path, from, host string
		want             int
	}{
		{"/debug/pprof/goroutine?debug=1", "127.0.0.1:9", "127.0.0.1:9090", 200},
		{"/debug/pprof/profile?seconds=1", "[::1]:9", "localhost:9090", 200},
		{"/debug/pprof/heap", "127.0.0.1:9", "evil.example", 403},
		{"/debug/pprof/profile", "10.0.0.1:9", "10.0.0.2:9090", 403},
		{"/debug/pprof/goroutine", "[fe80::1%eth0]:9", "localhost", 403},
		{"/debug/pprof/", "127.0.0.1:9", "localhost", 200},
		{"/debug/pprof", "127.0.0.1:9", "localhost", 307},
		{"/debug/pprof/", "10.0.0.1:9", "localhost", 403},
		{"/debug/pprof/nothing", "127.0.0.1:9", "localhost", 404},
		{"/debug/pprof/profile?seconds=9999", "127.0.0.1:9", "localhost", 400},
		{"/debug/pprof/heap", "@", "localhost", 403},
		{"/metrics", "10.0.0.1:9", "krait.example", 200},
		{"/health", "10.0.0.1:9", "krait.example", 200},
		{"/v1/models", "127.0.0.1:9", "localhost", 404},
	} {
		r, w := httptest.NewRequest("GET", c.path, nil), httptest.NewRecorder()
		r.RemoteAddr, r.Host = c.from, c.host
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
		if c.path == "/debug/pprof/" && c.want == 200 && !strings.Contains(w.Body.String(), `<a href="goroutine?debug=1">goroutine</a>`) {
			t.Errorf("the index of profiles is %s", w.Body)
		}
	}
}

// TestObserveFlags: a port alone is one of this machine, wrong flags are refused, and a log of JSON
// is JSON in all lines.
func TestObserveFlags(t *testing.T) {
	c := newRoute()
	for _, port := range []string{"0", ":0"} {
		f := observeFlags{log: "text", admin: port}
		if err := f.check(c, false); err != nil || f.admin != "127.0.0.1:0" {
			t.Errorf("--admin %s is %s, %v", port, f.admin, err)
		}
	}
	for want, f := range map[string]observeFlags{
		"--log is \"yaml\"": {log: "yaml"}, "--otlp-ratio is 2": {log: "text", ratio: 2}, "--otlp: \"host:4318\" is no collector's address": {log: "text", otlp: "host:4318"},
		"--admin: listen": {log: "text", admin: "nowhere.invalid:1"},
	} {
		if err := f.check(c, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	var out bytes.Buffer
	f := observeFlags{log: "json", out: &out}
	f.say(slog.LevelInfo, "model", "tiny \"x\"\n")
	f.say(slog.LevelWarn, "chat", "no template")
	f.logger().Error("failed")
	for line := range strings.Lines(out.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	f.quiet = true
	out.Reset()
	f.say(slog.LevelInfo, "model", "x")
	f.logger().Info("x")
	if f.logger().Error("y"); strings.Count(out.String(), "\n") != 1 {
		t.Errorf("with -q it says %s", out.String())
	}
}

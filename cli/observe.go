package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/spf13/cobra"
)

// observeFlags say what a server tells its operators: the log, the admin listener, and traces.
type observeFlags struct {
	log, admin string
	otlp       string
	ratio      float64

	quiet bool
	out   io.Writer
}

// add adds the flags. Pages are those of the admin listener beside /health and /ready.
func (f *observeFlags) add(c *cobra.Command, pages string) {
	flags := c.Flags()
	flags.StringVar(&f.log, "log", "text", "format of the log on standard error: text or json")
	flags.StringVar(&f.admin, "admin", "", "address of "+pages+" without key: PORT, host:port, unix:PATH")
	flags.StringVar(&f.otlp, "otlp", "", "OpenTelemetry collector for traces, such as http://localhost:4318")
	flags.Float64Var(&f.ratio, "otlp-ratio", 1, "share of the traces that begin here that are sent, from 0 to 1")
	detail(c, "admin", "a port alone listens at 127.0.0.1. /debug/pprof answers clients of this machine only.")
	detail(c, "otlp", "the default is OTEL_EXPORTER_OTLP_ENDPOINT, and without one no traces are sent.")
	expert(c, "otlp", "otlp-ratio")
}

// check returns an error if a flag is wrong, before a model is loaded.
func (f *observeFlags) check(c *cobra.Command, quiet bool) error {
	switch {
	case f.log != "text" && f.log != "json":
		return fmt.Errorf("--log is %q; it must be text or json", f.log)
	case !(f.ratio >= 0 && f.ratio <= 1):
		return fmt.Errorf("--otlp-ratio is %v; it must be from 0 to 1", f.ratio)
	}
	f.quiet, f.out = quiet, c.ErrOrStderr()
	if f.otlp = cmp.Or(f.otlp, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")); f.otlp != "" {
		if _, err := trace.Collector(f.otlp); err != nil {
			return fmt.Errorf("--otlp: %w", err)
		}
	}
	if _, err := strconv.Atoi(f.admin); err == nil {
		f.admin = ":" + f.admin
	}
	if strings.HasPrefix(f.admin, ":") {
		f.admin = "127.0.0.1" + f.admin
	}
	if f.admin == "" {
		return nil
	}
	_, err := tryListen("--admin", f.admin)
	return err
}

// logger returns the log; with -q it has errors only.
func (f *observeFlags) logger() *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if f.quiet {
		o.Level = slog.LevelError
	}
	if f.log == "json" {
		return slog.New(slog.NewJSONHandler(f.out, o))
	}
	return slog.New(slog.NewTextHandler(f.out, o))
}

// say tells of a server that begins: as a line of the log if that is JSON, which programs read.
func (f *observeFlags) say(level slog.Level, subject, text string) {
	switch {
	case f.quiet:
	case f.log == "json":
		f.logger().Log(context.Background(), level, subject, "text", text)
	case level == slog.LevelWarn:
		fmt.Fprintln(f.out, "warning:", printable(text))
	default:
		fmt.Fprintf(f.out, "%-7s %s\n", subject, text)
	}
}

// tracer returns the exporter of traces, and a function that sends what it holds; without --otlp
// the exporter is nil.
func (f *observeFlags) tracer(service string) (e *trace.Exporter, end func(), err error) {
	if f.otlp == "" {
		return nil, func() {}, nil
	}
	if e, err = trace.New(trace.Options{URL: f.otlp, Service: service, Ratio: f.ratio, Log: f.logger()}); err != nil {
		return nil, nil, fmt.Errorf("--otlp: %w", err)
	}
	return e, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		e.Close(ctx)
	}, nil
}

// countSpans adds the counters of an exporter.
func countSpans(m *metrics.Metrics, e *trace.Exporter) {
	if e == nil {
		return
	}
	m.Counter("krait_spans_sent_total", "Spans that the collector of --otlp has accepted.", func() float64 { return float64(e.Sent()) })
	m.Counter("krait_spans_dropped_total", "Spans that were lost: the queue was full, or the collector did not accept them.", func() float64 { return float64(e.Dropped()) })
}

// serve serves the admin listener, if there is one, until end is called: the given pages, which
// require no key, /health, and for clients of this machine /debug/pprof.
func (f *observeFlags) serve(c *cobra.Command, pages map[string]http.Handler) (end func(), err error) {
	if f.admin == "" {
		return func() {}, nil
	}
	l, shown, err := listenAt("--admin", f.admin, nil)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: adminPages(pages), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10}
	go s.Serve(l)
	fmt.Fprintln(c.OutOrStdout(), "admin at", urlOf(shown, nil))
	return func() { s.Close() }, nil
}

// adminPages is the handler of the admin listener.
func adminPages(pages map[string]http.Handler) http.Handler {
	m := http.NewServeMux()
	for path, h := range pages {
		m.Handle("GET "+path, h)
	}
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"status":"ok"}`+"\n") })
	m.HandleFunc("GET /debug/pprof/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if !fromHere(r) {
			http.Error(w, "/debug/pprof answers clients of this machine only, at an IP address or localhost", http.StatusForbidden)
			return
		}
		writeProfile(w, r, r.PathValue("name"))
	})
	return m
}

// mostProfile bounds the time of a CPU profile.
const mostProfile = 5 * time.Minute

// writeProfile writes a profile for go tool pprof: "profile" is the CPU's for ?seconds=30, the
// others are runtime/pprof's, and no name is the index of all. It takes the place of
// net/http/pprof, which adds twice as much to the program.
func writeProfile(w http.ResponseWriter, r *http.Request, name string) {
	names := []string{"profile"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	if name == "" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		for _, name := range names {
			fmt.Fprintf(w, "<p><a href=\"%s%s\">%[1]s</a></p>\n", name, map[bool]string{true: "?debug=1"}[name != "profile"])
		}
		return
	}
	if name == "profile" {
		seconds, err := strconv.Atoi(cmp.Or(r.FormValue("seconds"), "30"))
		if err != nil || seconds < 1 || seconds > int(mostProfile.Seconds()) {
			http.Error(w, fmt.Sprintf("seconds must be from 1 to %d", int(mostProfile.Seconds())), http.StatusBadRequest)
			return
		}
		if err := pprof.StartCPUProfile(w); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer pprof.StopCPUProfile()
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
		}
		return
	}
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, "the profiles are "+strings.Join(names, ", "), http.StatusNotFound)
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	p.WriteTo(w, debug) // an error is a client that is gone
}

// fromHere reports whether a request comes from this machine, or a socket of its file system, and
// not from a web page whose name leads here.
func fromHere(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && openai.LocalHost(r.Host)
}

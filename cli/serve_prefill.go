package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
	"github.com/spf13/cobra"
)

// servePrefill serves until the command is ended.
func (f *serveFlags) servePrefill(c *cobra.Command, m *krait.Model, config *tls.Config) error {
	f.observe.say(slog.LevelInfo, "model", describe(m, &f.device))
	f.transfer.Log, f.transfer.Trace = f.observe.logger(), f.api.o.Trace
	s, err := prefill.NewServer(m.Session(), f.transfer)
	if err != nil {
		return err
	}
	defer s.Close()
	l, shown, err := listenAt("--listen", f.address.listen, config)
	if err != nil {
		return err
	}
	defer onSIGHUP(func() { reload(f.observe.logger(), f.tls.reloads()) })()
	measurePrefill(f.api.o.Metrics, m, s)
	countSpans(f.api.o.Metrics, f.api.o.Trace)
	end, err := f.observe.serve(c, map[string]http.Handler{"/metrics": f.api.o.Metrics, "/ready": readyUntil(c.Context())})
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintln(c.OutOrStdout(), "prefill at", shown)
	defer context.AfterFunc(c.Context(), func() { drainPrefill(s, f.api.drain.most, f.transfer.Log) })()
	if err := s.Serve(l); err != nil && c.Context().Err() == nil {
		return err
	}
	return c.Context().Err()
}

// drainPrefill lets the prompts of a server end, and closes it.
func drainPrefill(s *transfer.Server, most time.Duration, log *slog.Logger) {
	log.Info("draining", "drain", most)
	bounded, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if s.Drain(bounded) != nil {
		log.Warn("prompts that were still active were ended", "drain", most)
	}
	s.Close()
}

// readyUntil answers 200 until the context ends, and then 503.
func readyUntil(ctx context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, `{"status":"ready"}`+"\n")
	})
}

// measurePrefill adds the metrics of a prefill server.
func measurePrefill(to *metrics.Metrics, m *krait.Model, s *transfer.Server) {
	to.SetModel(m.Name)
	to.Session(m.Session())
	to.Gauge("krait_ranks", "Ranks that run the model.", func() float64 { return float64(m.Ranks()) })
	to.Gauge("krait_num_requests_waiting", "Queued prompts: those without a slot.", func() float64 { return float64(m.Session().Scheduler().Load().Waiting) })
	for _, x := range []struct {
		name, help string
		of         func(transfer.ServerStats) int
	}{
		{"krait_prefill_connections", "Decode servers that are connected.", func(s transfer.ServerStats) int { return s.Sessions }},
		{"krait_prefill_lent_states", "States that wait to be fetched by a decode server.", func(s transfer.ServerStats) int { return s.Lent }},
	} {
		to.Gauge(x.name, x.help, func() float64 { return float64(x.of(s.Stats())) })
	}
	to.Counter("krait_prefill_requests_total", "Prompts received.", func() float64 { return float64(s.Stats().Requests) })
	to.Counter("krait_prompt_tokens_total", "Prompt tokens received, hits of the prefix cache included.", func() float64 { return float64(s.Stats().Tokens) })
	for end, of := range map[string]func(transfer.ServerStats) int{
		"released": func(s transfer.ServerStats) int { return s.Released },
		"expired":  func(s transfer.ServerStats) int { return s.Expired },
		"failed":   func(s transfer.ServerStats) int { return s.Failures },
	} {
		to.CounterOf("krait_prefill_ended_total", "Prompts by end: the state was fetched (released), its lease expired, or prefill failed or was cancelled.", "end", end, func() float64 { return float64(of(s.Stats())) })
	}
}

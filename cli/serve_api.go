package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

// apiFlags are the flags of a server of OpenAI's API.
type apiFlags struct {
	o       openai.Options
	keyFile string
	drain   drain
	hosts   hostFlags
	context int
	memory  int64
	noPage  bool
}

func (f *apiFlags) add(c *cobra.Command) {
	flags := c.Flags()
	keysFlag(c, &f.keyFile)
	flags.StringVar(&f.o.Name, "model-name", "", "model name that clients see (default: the model's own)")
	flags.IntVar(&f.o.Queue.Requests, "max-queue", 256, "maximum sequences that wait for a slot (429 above it)")
	flags.IntVar(&f.o.Queue.Tokens, "max-queue-tokens", 0, "maximum tokens of running and queued requests (429 above it); 0: what fits")
	bytesFlag(c, &f.o.Bodies, "max-bodies", 0, "maximum bytes of request bodies in memory (429 above it; default: by --memory)")
	flags.Lookup("max-bodies").DefValue = ""
	flags.IntVar(&f.o.Queue.Rate.Requests, "requests-per-minute", 0, "maximum requests per minute of a key (429 above it); 0: no limit")
	flags.IntVar(&f.o.Queue.Rate.Tokens, "tokens-per-minute", 0, "maximum prompt and output tokens per minute of a key; 0: no limit")
	flags.IntVar(&f.o.AnswerTokens, "answer-tokens", 1024, "default max_tokens of a chat completion")
	flags.DurationVar(&f.o.Deadline, "deadline", 10*time.Minute, "timeout of a request, including its time in the queue")
	f.drain.add(c)
	f.hosts.add(c)
	flags.IntVar(&f.context, "context", 0, "maximum tokens of a sequence, for models with attention; 0: no limit")
	bytesFlag(c, &f.memory, "memory", session.AllMemory, "memory for weights, states, KV cache and activations, per GPU (default: 90 %)")
	flags.Lookup("memory").DefValue = ""
	flags.BoolVar(&f.o.Unguarded, "unguarded", false, "parse special tokens in chat messages, as transformers does")
	flags.StringVar(&f.o.ToolParser, "tool-parser", "", "format of tool calls, such as hermes; default: by the chat template")
	flags.BoolVar(&f.o.StrictAPI, "strict-api", false, "reject unknown parameters; otherwise a header warns of them")
	flags.StringSliceVar(&f.o.Origins, "cors", nil, "web sites whose pages may call the server (https://…, or * for all)")
	flags.BoolVar(&f.o.ShareCache, "share-cache", false, "share the prefix cache between keys; a key can detect others' prompts")
	flags.BoolVar(&f.noPage, "no-page", false, "disable the status page at / and its data")
	detail(c, "max-bodies", "the default is a 64th of --memory, from 8MiB to 64MiB.")
	detail(c, "requests-per-minute", "without --api-keys it limits all requests together, and so does --tokens-per-minute.")
	detail(c, "memory", "on the CPU it is for all ranks together, and the default is 90 % of the machine's or container's memory.")
	detail(c, "context", "KV pages for that many tokens of each slot are reserved at start.")
	expert(c, "max-queue-tokens", "max-bodies", "requests-per-minute", "tokens-per-minute", "answer-tokens", "drain-notice", "unguarded", "tool-parser", "strict-api", "cors", "share-cache", "no-page", "hosts", "model-name")
}

// watch reports batches and steps to the metrics, and to the board while a page shows it. Steps are
// measured on the CPU only: on other devices measuring would slow them.
func (f *apiFlags) watch(m *modelFlags, role string) {
	f.o.Metrics = metrics.New()
	shown := board.New(board.Options{Work: visualize.Work})
	if !f.noPage && role != rolePrefill {
		f.o.Board = shown
	}
	m.options.Batches = func(w *exec.Work) {
		f.o.Metrics.Batch(w)
		shown.Batch(w)
	}
	if m.device.name != "cpu" {
		return
	}
	m.options.Record = func(step []exec.Event) {
		f.o.Metrics.Record(step)
		shown.Record(step)
	}
	m.options.Recording = func() bool {
		now := f.o.Metrics.Recording()
		return shown.Watched() || now
	}
}

// read checks the flags and reads the keys.
func (f *apiFlags) read() error {
	switch {
	case f.o.Queue.Requests < 1 || f.o.AnswerTokens < 1:
		return errors.New("--max-queue and --answer-tokens must be at least 1")
	case f.o.Queue.Tokens < 0:
		return errors.New("--max-queue-tokens must be at least 1, or 0 for what fits into memory")
	case f.o.Queue.Rate.Requests < 0 || f.o.Queue.Rate.Tokens < 0:
		return errors.New("--requests-per-minute and --tokens-per-minute must be at least 1, or 0 for no limit")
	case f.o.Deadline <= 0:
		return fmt.Errorf("--deadline is %v; it must be above 0", f.o.Deadline)
	case f.context < 0:
		return errors.New("--context must be at least 1, or 0 for no limit")
	}
	err := f.drain.check()
	if err == nil {
		f.o.Keys, err = readKeys(f.keyFile)
	}
	return err
}

// serveAPI serves until the command ends, and then drains.
func (f *serveFlags) serveAPI(c *cobra.Command, m *krait.Model, config *tls.Config) error {
	f.observe.say(slog.LevelInfo, "model", describe(m, &f.device))
	o := &f.api.o
	o.Log = f.observe.logger()
	if p := m.MemoryPlan(); p.Memory > 0 {
		f.observe.say(slog.LevelInfo, "memory", p.String())
	}
	if p := m.MemoryPlan(); p.Room > 0 && o.Queue.Tokens > p.Room {
		return fmt.Errorf("--max-queue-tokens %d does not fit into memory: %s; lower it or --slots, or give more --memory", o.Queue.Tokens, p)
	}
	l, shown, err := listenAt("--listen", f.address.listen, config)
	if err != nil {
		return err
	}
	defer l.Close()
	o.Local = f.api.hosts.checked(l.Addr(), o.Keys != nil || config != nil && config.ClientCAs != nil)
	o.Hosts = f.api.hosts.names
	s, err := openai.New(m, *o)
	if err != nil {
		return err
	}
	countSpans(o.Metrics, o.Trace)
	if w := s.ChatWarning(); w != "" {
		f.observe.say(slog.LevelWarn, "chat", w)
	}
	defer onSIGHUP(func() { reload(o.Log, keysReload(f.api.keyFile, s.SetKeys), f.tls.reloads()) })()
	end, err := f.observe.serve(c, map[string]http.Handler{"/metrics": o.Metrics, "/ready": http.HandlerFunc(s.ServeReady)})
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintln(c.OutOrStdout(), "serving at", urlOf(shown, config))
	return listenUntil(c.Context(), l, s, s.Drain, f.api.drain, o.Log)
}

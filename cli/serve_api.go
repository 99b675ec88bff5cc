package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// apiFlags are those of a server of OpenAI's API.
type apiFlags struct {
	o       openai.Options
	keyFile string
	drain   drain
	hosts   hostFlags
	context int
	memory  int64
	noPage  bool
}

// Flags that some roles have, and others do not.
var (
	ofBoth    = []string{"api-keys", "model-name", "max-queue", "max-queue-tokens", "max-bodies", "answer-tokens", "deadline", "drain", "drain-notice", "hosts", "context", "unguarded", "no-page", "share-cache", "memory", "requests-per-minute", "tokens-per-minute"}
	ofPrefill = []string{"token-file", "lease", "stall"}
	ofDecode  = []string{"prefill", "prefill-transport", "prefill-only", "prefill-stall", "prefill-token-file", "prefill-tls", "prefill-tls-ca", "prefill-tls-cert", "prefill-tls-key"}
)

func (f *apiFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.keyFile, "api-keys", "", "file with a line for each key that is taken: a name, and the key's SHA-256")
	flags.StringVar(&f.o.Name, "model-name", "", "what clients call the model (default: its own name)")
	flags.IntVar(&f.o.Queue.Requests, "max-queue", 256, "texts that may wait for a slot; more get status 429")
	flags.IntVar(&f.o.Queue.Tokens, "max-queue-tokens", 0, "tokens that all under way and waiting may come to have; more get status 429; 0: what the memory plan has room for, and without attention a million")
	bytesFlag(c, &f.o.Bodies, "max-bodies", 0, "bytes of requests being read or encoded; more get 429 (default 64MiB, less by --memory)")
	flags.Lookup("max-bodies").DefValue = ""
	flags.IntVar(&f.o.Queue.Rate.Requests, "requests-per-minute", 0, "requests that a key may send; more get status 429; 0: any number")
	flags.IntVar(&f.o.Queue.Rate.Tokens, "tokens-per-minute", 0, "tokens that a key may take, prompts and what follows; 0: any number")
	flags.IntVar(&f.o.AnswerTokens, "answer-tokens", 1024, "how long an answer in a chat may be that says no max_tokens")
	flags.DurationVar(&f.o.Deadline, "deadline", 10*time.Minute, "how long a request may take, waiting included")
	f.drain.add(c)
	f.hosts.add(c)
	flags.IntVar(&f.context, "context", 0, "tokens that a sequence may have, where there is attention; 0: as many as come")
	bytesFlag(c, &f.memory, "memory", session.AllMemory, "bytes that weights, states, caches and activations may take together, on a GPU of each (default nine tenths of what there is)")
	flags.Lookup("memory").DefValue = ""
	flags.BoolVar(&f.o.Unguarded, "unguarded", false, "let messages of chats spell special tokens, as in transformers")
	flags.BoolVar(&f.o.ShareCache, "share-cache", false, "let a key go on from what others have sent, and so find out what that was")
	flags.BoolVar(&f.noPage, "no-page", false, "serve no page at /, nor what it shows")
}

// watch lets metrics, and a board while somebody looks, be told of what the model does. On other
// devices than the CPU to measure steps would take from all, and nothing is said of ranks.
func (f *apiFlags) watch(m *modelFlags) {
	f.o.Metrics = metrics.New()
	shown := board.New(board.Options{Work: visualize.Work})
	if !f.noPage {
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

// read looks at the flags, and reads the keys.
func (f *apiFlags) read() error {
	switch {
	case f.o.Queue.Requests < 1 || f.o.AnswerTokens < 1:
		return errors.New("--max-queue and --answer-tokens must be at least 1")
	case f.o.Queue.Tokens < 0:
		return errors.New("--max-queue-tokens must be at least 1, or 0 for what there is memory for")
	case f.o.Queue.Rate.Requests < 0 || f.o.Queue.Rate.Tokens < 0:
		return errors.New("--requests-per-minute and --tokens-per-minute must be at least 1, or 0 for no bound")
	case f.o.Deadline <= 0:
		return fmt.Errorf("--deadline is %v; it must be above 0", f.o.Deadline)
	case f.context < 0:
		return errors.New("--context must be at least 1, or 0 for no bound")
	}
	err := f.drain.check()
	if err == nil {
		f.o.Keys, err = readKeys(f.keyFile)
	}
	return err
}

// ofRole is an error where a flag is about another role.
func ofRole(c *cobra.Command, role string) error {
	others := map[string][]string{"both": slices.Concat(ofPrefill, ofDecode), "prefill": slices.Concat(ofBoth, ofDecode), "decode": ofPrefill}[role]
	if i := slices.IndexFunc(others, c.Flags().Changed); i >= 0 {
		return fmt.Errorf("--%s does nothing with --role %s", others[i], role)
	}
	return nil
}

// serveAPI serves until the command is ended, and then what was taken.
func serveAPI(c *cobra.Command, f *modelFlags, m *krait.Model, api *apiFlags, listen string, config *tls.Config) error {
	if !f.quiet {
		fmt.Fprintln(c.ErrOrStderr(), "model  ", describe(m, f.device.name))
		if p := m.MemoryPlan(); p.Memory > 0 {
			fmt.Fprintln(c.ErrOrStderr(), "memory ", p)
		}
		api.o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	}
	if p := m.MemoryPlan(); p.Room > 0 && api.o.Queue.Tokens > p.Room {
		return fmt.Errorf("--max-queue-tokens %d is more than there is memory for: %s. Give fewer, fewer --slots, or more --memory", api.o.Queue.Tokens, p)
	}
	l, shown, err := listenAt("--listen", listen, config)
	if err != nil {
		return err
	}
	defer l.Close()
	api.o.Local = api.hosts.checked(l.Addr(), api.o.Keys != nil || config != nil && config.ClientCAs != nil)
	api.o.Hosts = api.hosts.names
	s, err := openai.New(m, api.o)
	if err != nil {
		return err
	}
	if w := s.ChatWarning(); w != "" && !f.quiet {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", printable(w))
	}
	log := cmp.Or(api.o.Log, slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError})))
	defer onHangup(func() { reloadKeys(api.keyFile, s.SetKeys, log) })()
	fmt.Fprintln(c.OutOrStdout(), "serving at", urlOf(shown, config))
	return listenUntil(c.Context(), l, s, s.Drain, api.drain, api.o.Log)
}

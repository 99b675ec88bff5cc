package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

// keyVariable is the environment variable with a server's key, as for OpenAI's clients.
const keyVariable = "OPENAI_API_KEY"

// loadFlags are the flags of krait load.
type loadFlags struct {
	o           load.Options
	keyFile     string
	concurrency []int
	rates       []float64
	trace       string
	requests    int
	prompt      int
	svg         string
	out         output
}

func newLoad() *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:   "load [flags]",
		Short: "Put load on a server, and measure latency and throughput",
		Long: `Load sends streamed completions, or with --chat chat completions, to a server of OpenAI's HTTP
API and prints what clients measure: time to first token (TTFT), time per output token (TPOT),
time between chunks of a stream, throughput, and errors by kind.

With --concurrency that many clients send one request after the other (closed loop). With
--rate requests arrive at random, that many per second on average (Poisson), whether or not
earlier ones have ended; latencies count from the scheduled arrival. A list of either is a
sweep. With --trace and neither, requests arrive at the times of the trace.

Without --trace, --requests prompts of --prompt-tokens each share no prefix. --trace FILE takes
prompts and lengths of answers from a trace (krait simulate trace makes some); - is standard
input. Each token id of a trace becomes a made-up word, which most models split into several
tokens, or with --vocab an id below it (completions only); shared prefixes stay shared. Each
load of a sweep uses other words, so that it gets no prefix cache hits from the load before.
--seed sets words and arrivals.

The API key is in --key-file or in ` + keyVariable + `. Percentiles are of successful requests.
--svg draws throughput per rank over tokens per second and user, 1 / median TPOT. krait serve
reports its ranks; for other servers give --ranks, or throughput is not divided. The exit status
is 1 if no request succeeds.`,
		Example: `  krait load --concurrency 1,2,4,8,16 --svg sweep.svg
  krait load --url http://10.0.0.7:8000/v1 --key-file key --chat --rate 2 --requests 200 --json
  krait simulate trace chat --sessions 50 --rate 2 | krait load --trace - --max-tokens 100
  krait load --vocab 50000 --prompt-tokens 4096 --max-tokens 1 --rate 0.5`,
		Args: takes(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.read(c); err != nil {
				return err
			}
			tell, end := terminal.Progress(c.ErrOrStderr(), "load", "requests", false)
			f.o.Progress = tell
			r, err := load.Run(c.Context(), f.o)
			end()
			if err != nil {
				return err
			}
			return f.write(c, r)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.o.Server.URL, "url", "http://127.0.0.1:8080/v1", "address of the API; /v1 is added if it has no path")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the server's key (default: $"+keyVariable+")")
	flags.StringVarP(&f.o.Server.Model, "model", "m", "", "model name to request (default: the first that the server lists)")
	flags.BoolVar(&f.o.Server.Chat, "chat", false, "request chat completions")
	flags.IntSliceVar(&f.concurrency, "concurrency", nil, "closed-loop clients, or a list to sweep (default 1,2,4,8)")
	flags.Float64SliceVar(&f.rates, "rate", nil, "mean `requests` per second (Poisson), or a list to sweep")
	flags.StringVar(&f.trace, "trace", "", "trace with the requests to send; - is standard input")
	flags.IntVar(&f.requests, "requests", 32, "requests per load (default: 32, or all of --trace)")
	flags.IntVar(&f.prompt, "prompt-tokens", 64, "words per prompt; with --vocab tokens")
	flags.IntVar(&f.o.MaxTokens, "max-tokens", 64, "maximum tokens of an answer (default: 64, or as in --trace)")
	flags.IntVar(&f.o.Vocab, "vocab", 0, "vocabulary size: send prompts as token ids below it; 0: as text")
	flags.BoolVar(&f.o.IgnoreEOS, "ignore-eos", false, "send ignore_eos, so that answers have exactly --max-tokens")
	flags.DurationVar(&f.o.Timeout, "timeout", 10*time.Minute, "timeout of a request; 0: none")
	flags.Uint64Var(&f.o.Seed, "seed", 0, "seed of arrival times and prompts")
	flags.IntVar(&f.o.Ranks, "ranks", 0, "the server's ranks, for throughput per rank (default: ask the server)")
	flags.StringVar(&f.svg, "svg", "", "FILE.svg: chart of throughput per rank over tokens per second and user")
	for name, zero := range map[string]string{"requests": "0", "max-tokens": "0", "rate": ""} {
		flags.Lookup(name).DefValue = zero // the help says the default, or there is none
	}
	f.out.add(c)
	return c
}

// read turns flags into options. Flags come first, then files, then the server.
func (f *loadFlags) read(c *cobra.Command) (err error) {
	for _, n := range f.concurrency {
		if n < 1 {
			return fmt.Errorf("--concurrency is %d; it must be at least 1", n)
		}
		f.o.Loads = append(f.o.Loads, load.Load{Concurrency: n})
	}
	for _, r := range f.rates {
		if !(r > 0) {
			return fmt.Errorf("--rate is %g; it must be above 0", r)
		}
		f.o.Loads = append(f.o.Loads, load.Load{Rate: r})
	}
	given := c.Flags().Changed
	switch {
	case len(f.concurrency) > 0 && len(f.rates) > 0:
		return errors.New("--concurrency and --rate exclude each other: give one of them")
	case f.trace != "" && given("prompt-tokens"):
		return errors.New("--trace sets the prompts; leave out --prompt-tokens")
	case f.requests < 1:
		return fmt.Errorf("--requests is %d; it must be at least 1", f.requests)
	case f.o.MaxTokens < 1:
		return fmt.Errorf("--max-tokens is %d; it must be at least 1", f.o.MaxTokens)
	case f.o.Ranks < 1 && given("ranks"):
		return fmt.Errorf("--ranks is %d; it must be at least 1", f.o.Ranks)
	case f.o.Server.Chat && f.o.Vocab != 0:
		return errors.New("--vocab sends token ids, and chats take texts; leave out one of --vocab and --chat")
	case f.svg != "" && f.svg != "-" && filepath.Ext(f.svg) != ".svg":
		return fmt.Errorf("--svg %s: name it FILE.svg", f.svg)
	case f.svg == "-" && f.out.json:
		return errors.New("--svg - and --json both write to standard output; give a file to one")
	case len(f.o.Loads) == 0 && f.trace != "":
		f.o.Loads = []load.Load{{}}
	case len(f.o.Loads) == 0:
		f.o.Loads = []load.Load{{Concurrency: 1}, {Concurrency: 2}, {Concurrency: 4}, {Concurrency: 8}}
	}
	if err := f.readServer(); err != nil {
		return err
	}
	if err := f.readTrace(c); err != nil {
		return err
	}
	return f.find(c)
}

// find asks the server for its model and ranks, where flags do not say them.
func (f *loadFlags) find(c *cobra.Command) error {
	if f.o.Server.Model != "" && f.o.Ranks > 0 {
		return nil
	}
	m, err := f.o.Server.FindModel(c.Context())
	if f.o.Server.Model == "" {
		if err != nil {
			return fmt.Errorf("list models: %w", err)
		}
		f.o.Server.Model = m.ID
	}
	if f.o.Ranks == 0 {
		f.o.Ranks = max(0, m.Ranks)
	}
	return nil
}

func (f *loadFlags) readServer() error {
	if u, err := url.Parse(f.o.Server.URL); err == nil && strings.Trim(u.Path, "/") == "" {
		f.o.Server.URL = strings.TrimRight(f.o.Server.URL, "/") + "/v1"
	}
	f.o.Server.Key = os.Getenv(keyVariable)
	if f.keyFile == "" {
		return nil
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return fmt.Errorf("--key-file: %w", err)
	}
	if f.o.Server.Key = strings.TrimSpace(string(key)); f.o.Server.Key == "" {
		return fmt.Errorf("--key-file %s is empty", f.keyFile)
	}
	return nil
}

func (f *loadFlags) readTrace(c *cobra.Command) (err error) {
	if f.trace == "" {
		f.o.Trace, err = load.Uniform(f.requests, f.prompt, f.o.MaxTokens)
		return err
	}
	f.o.Trace, err = interruptible(c, "read", func() ([]prefix.Request, error) { return readTrace(c, f.trace) })
	if c.Flags().Changed("requests") && f.requests < len(f.o.Trace) {
		f.o.Trace = f.o.Trace[:f.requests]
	}
	if !c.Flags().Changed("max-tokens") {
		f.o.MaxTokens = 0
	}
	return err
}

func (f *loadFlags) write(c *cobra.Command, r *load.Report) error {
	if f.svg != "" {
		if err := write(c, f.svg, r.SVG()); err != nil {
			return err
		}
	}
	ok := slices.ContainsFunc(r.Loads, func(x load.Result) bool { return x.OK > 0 })
	if f.out.json || f.out.file != "" || f.svg != "-" {
		if err := f.out.print(c, r, func(w io.Writer) { printLoad(w, r) }); err != nil {
			return err
		}
	}
	if !ok {
		fmt.Fprintln(c.ErrOrStderr(), "krait: no request succeeded")
		return errFailed
	}
	return nil
}

func printLoad(w io.Writer, r *load.Report) {
	kind := "completions"
	if r.Chat {
		kind = "chats"
	}
	fmt.Fprintf(w, "%s: %s of %s, %s per load; times in ms, of successful requests\n\n", visible(r.URL), kind, visible(r.Model), count(r.Requests, "request"))
	fmt.Fprintf(w, "%-16s %6s %6s  %-26s  %-23s  %-23s  %8s %8s %8s\n", "", "", "", "TTFT", "TPOT", "between chunks", "tokens/s", "per rank", "per user")
	fmt.Fprintf(w, "%-16s %6s %6s  %8s %8s %8s  %7s %7s %7s  %7s %7s %7s\n", "load", "ok", "failed", "p50", "p95", "p99", "p50", "p95", "p99", "p50", "p95", "p99")
	for i := range r.Loads {
		x := &r.Loads[i]
		user, rank := "–", "–"
		if r.Ranks > 0 {
			rank = fmt.Sprintf("%.1f", x.PerRank)
		}
		if x.PerUser != nil {
			user = fmt.Sprintf("%.1f", *x.PerUser)
		}
		fmt.Fprintf(w, "%-16s %6d %6d  %s  %s  %s  %8.1f %8s %8s\n", x.Name(), x.OK, x.Failed(), milliseconds(x.TTFT, 8), milliseconds(x.TPOT, 7), milliseconds(x.Gaps, 7), x.TokensPerSecond, rank, user)
	}
	for i := range r.Loads {
		x := &r.Loads[i]
		var kinds []string
		for k := range x.Errors {
			kinds = append(kinds, k)
		}
		slices.Sort(kinds)
		for _, k := range kinds {
			fmt.Fprintln(w, printable(fmt.Sprintf("%s: %s failed, %s: %s", x.Name(), count(x.Errors[k], "request"), k, strings.ReplaceAll(x.Messages[k], "\n", " "))))
		}
		if x.Parts > 0 {
			fmt.Fprintf(w, "%s: %s without token counts from the server: each chunk counts as a token\n", x.Name(), count(x.Parts, "request"))
		}
	}
}

// milliseconds writes three percentiles in columns of a width.
func milliseconds(t *load.Times, width int) string {
	var columns []string
	if t == nil {
		return strings.TrimPrefix(strings.Repeat(fmt.Sprintf(" %*s", width, "–"), 3), " ")
	}
	for _, v := range []float64{t.P50, t.P95, t.P99} {
		columns = append(columns, fmt.Sprintf("%*.2f", width, 1e3*v))
	}
	return strings.Join(columns, " ")
}

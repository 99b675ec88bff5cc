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

	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

// keyVariable is the environment's key of a server, as OpenAI's clients have it.
const keyVariable = "OPENAI_API_KEY"

// loadFlags say what is asked of a server.
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
		Short: "Put load on a server, and measure what its clients get",
		Long: `Load asks a server of OpenAI's HTTP API for streamed completions, or with --chat for
chats, and prints what its clients get: the time to the first token (TTFT), the time
per token after it (TPOT), the time from one part of a stream to the next, throughput,
and errors by kind.

With --concurrency, so many clients ask one after the other. With --rate, requests come
at random, so many per second on average (a Poisson process), whether or not those
before were answered; their times count from when they were due. Each may be a list,
which is gone through. With --trace and neither, requests come when the trace says.

Without --trace, --requests are made of --prompt-tokens each, which share nothing.
--trace FILE takes prompts, and lengths of answers, from a trace as of krait trace; - is
standard input. Token ids there stand for texts: each becomes a word that was made up,
which is several tokens of most models, or with --vocab an id below it (completions
only). What requests share, prompts share. Loads of a sweep get other words, so that
none finds what the one before left in a prefix cache; --seed gives others, too, and
other times.

The model is the first that the server lists, unless --model says which. The key is in
--key-file or in ` + keyVariable + `. Percentiles are of requests that ended well. --svg draws
throughput per rank over tokens per second per user, which is 1 by the median TPOT. krait
serve says how many ranks it has; of other servers --ranks does, or throughput is not divided.
If no request succeeds, the status is 1.`,
		Example: `  krait load --concurrency 1,2,4,8,16 --svg sweep.svg
  krait load --url http://10.0.0.7:8000/v1 --key-file key --chat --rate 2 --requests 200 --json
  krait trace chat --sessions 50 --rate 2 | krait load --trace - --max-tokens 100
  krait load --vocab 50000 --prompt-tokens 4096 --max-tokens 1 --rate 0.5`,
		Args: takes(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.read(c); err != nil {
				return err
			}
			tell, end := progress(c.ErrOrStderr(), "load", "requests", false)
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
	flags.StringVar(&f.o.Server.URL, "url", "http://127.0.0.1:8080/v1", "address of the API; without a path, /v1 is added")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the server's key (default: "+keyVariable+" of the environment, if it is there)")
	flags.StringVarP(&f.o.Server.Model, "model", "m", "", "what the server calls the model (default: the first that it lists)")
	flags.BoolVar(&f.o.Server.Chat, "chat", false, "ask for chats, not for completions")
	flags.IntSliceVar(&f.concurrency, "concurrency", nil, "clients that ask one after the other; several: one load after another (default 1,2,4,8 without --rate and --trace)")
	flags.Float64SliceVar(&f.rates, "rate", nil, "requests per second, on average, at random; several: one load after another")
	flags.StringVar(&f.trace, "trace", "", "take requests from this file; - is standard input")
	flags.IntVar(&f.requests, "requests", 32, "of each load; with --trace at most, and all of it where this is not given")
	flags.IntVar(&f.prompt, "prompt-tokens", 64, "words, or with --vocab tokens, of a prompt")
	flags.IntVar(&f.o.MaxTokens, "max-tokens", 64, "most tokens of an answer; with --trace as it says where this is not given")
	flags.IntVar(&f.o.Vocab, "vocab", 0, "send prompts as token ids below this; 0: as texts")
	flags.BoolVar(&f.o.IgnoreEOS, "ignore-eos", false, "ask for answers of --max-tokens, by ignore_eos, which not every server knows")
	flags.DurationVar(&f.o.Timeout, "timeout", 10*time.Minute, "how long a request may take; 0: as long as it likes")
	flags.Uint64Var(&f.o.Seed, "seed", 0, "of times and prompts: the same seed asks for the same")
	flags.IntVar(&f.o.Ranks, "ranks", 0, "ranks of the server, for throughput per rank (default: what it says)")
	flags.StringVar(&f.svg, "svg", "", "draw throughput per rank over tokens per second per user, to this file")
	f.out.add(c)
	return c
}

// read turns flags into options. Flags come first, then files, then the server.
func (f *loadFlags) read(c *cobra.Command) (err error) {
	for _, n := range f.concurrency {
		if n < 1 {
			return fmt.Errorf("--concurrency %d: it is at least 1", n)
		}
		f.o.Loads = append(f.o.Loads, load.Load{Concurrency: n})
	}
	for _, r := range f.rates {
		if !(r > 0) {
			return fmt.Errorf("--rate %g: it is above 0", r)
		}
		f.o.Loads = append(f.o.Loads, load.Load{Rate: r})
	}
	given := c.Flags().Changed
	switch {
	case len(f.concurrency) > 0 && len(f.rates) > 0:
		return errors.New("--concurrency and --rate: give one of them")
	case f.trace != "" && given("prompt-tokens"):
		return errors.New("--trace has the lengths of prompts; leave out --prompt-tokens")
	case f.requests < 1:
		return fmt.Errorf("--requests %d: it is at least 1", f.requests)
	case f.o.MaxTokens < 1:
		return fmt.Errorf("--max-tokens %d: it is at least 1", f.o.MaxTokens)
	case f.o.Ranks < 1 && given("ranks"):
		return fmt.Errorf("--ranks %d: it is at least 1", f.o.Ranks)
	case f.o.Server.Chat && f.o.Vocab != 0:
		return errors.New("--vocab sends token ids, and chats take texts; leave out one of --vocab and --chat")
	case f.svg != "" && f.svg != "-" && filepath.Ext(f.svg) != ".svg":
		return fmt.Errorf("--svg %s: name it FILE.svg", f.svg)
	case f.svg == "-" && f.out.json:
		return errors.New("--svg - and --json are both for standard output; name a file")
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
			return fmt.Errorf("which models there are: %w", err)
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
	f.o.Trace, err = interruptible(c, func() ([]prefix.Request, error) { return readTrace(c, f.trace) })
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
	fmt.Fprintf(w, "%s: %s of %s, %s per load; times in ms, of requests that ended well\n\n", visible(r.URL), kind, visible(r.Model), count(r.Requests, "request"))
	fmt.Fprintf(w, "%-16s %6s %6s  %-26s  %-23s  %-23s  %8s %8s %8s\n", "", "", "", "TTFT", "TPOT", "from part to part", "tokens/s", "per rank", "per user")
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
			fmt.Fprintf(w, "%s: of %s the server did not say the tokens; they are taken for as many as parts\n", x.Name(), count(x.Parts, "request"))
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

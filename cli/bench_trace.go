package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

// traceFlags are the flags of krait bench trace.
type traceFlags struct {
	modelFlags
	path     string
	speed    float64
	cache    prefixFlags
	requests int
	batch    int
	rounds   int
	out      measurements
}

func newBenchTrace() *cobra.Command {
	var f traceFlags
	from := modelArg{kind: "DIR"}
	c := &cobra.Command{
		Use:   "trace [flags] [DIR] TRACE",
		Short: "Replay a trace of requests, with and without a prefix cache",
		Long: `Trace replays requests in the format of krait simulate cache, which krait simulate trace
makes, and measures the time from a request's arrival to its first token, and output tokens
per second. --batch requests run at the same time; others queue. Random tokens replace ids
outside the vocabulary; outputs are the tokens of the trace. With --prefix-cache the
trace runs with the cache and without it, --rounds times, in turns.`,
		Example: `  krait simulate trace chat --sessions 20 -o chat.jsonl
  krait bench trace chat.jsonl --speed 0 --batch 1 --prefix-cache 64MiB --rounds 5`,
		Args: takes(1, 2, "a TRACE, after DIR if one is given"),
		RunE: func(c *cobra.Command, args []string) error {
			// The trace of the old form, bench --trace FILE DIR, is last, too.
			f.path = args[len(args)-1]
			dir, err := from.take(c, args[:len(args)-1])
			if err != nil {
				return err
			}
			return f.run(c, dir)
		},
	}
	f.modelFlags.add(c)
	from.add(c)
	f.cache.add(c)
	c.Flags().Float64Var(&f.speed, "speed", 1, "arrival rate relative to the trace; 0: each as soon as another ends")
	c.Flags().IntVar(&f.requests, "requests", 0, "replay only the first requests; 0: all")
	c.Flags().IntVar(&f.batch, "batch", 8, "maximum concurrent requests")
	c.Flags().IntVar(&f.rounds, "rounds", 1, "replays with and without the prefix cache")
	f.out.add(c)
	hide(c, "prefix-cache-dir")
	hide(c, commNames...)
	return c
}

// check returns an error for a flag that is out of range.
func (f *traceFlags) check() error {
	switch {
	case f.comm.kind != "local":
		return errors.New("bench trace opens several models in turns, with all ranks in this process: leave out --comm")
	case f.cache.dir != "":
		return errors.New("--prefix-cache-dir would let a round find the cache of the one before: leave it out")
	case f.requests < 0:
		return fmt.Errorf("--requests is %d; it must not be negative", f.requests)
	case !(f.speed >= 0):
		return fmt.Errorf("--speed is %g; it must not be negative", f.speed)
	case f.rounds < 1:
		return fmt.Errorf("--rounds is %d; it must be at least 1", f.rounds)
	case f.batch < 1:
		return fmt.Errorf("--batch is %d; it must be at least 1", f.batch)
	}
	return nil
}

// traceBench is the replay of a trace.
type traceBench struct {
	*traceFlags
	c     *cobra.Command
	dir   string
	trace []prefix.Request
	file  bench.File

	described bool // the trace is printed, and its ids are mapped to the vocabulary
}

// run replays the trace and prints a table.
func (f *traceFlags) run(c *cobra.Command, dir string) error {
	if err := f.check(); err != nil {
		return err
	}
	trace, err := interruptible(c, "read", func() ([]prefix.Request, error) { return readTrace(c, f.path) })
	if err != nil {
		return err
	}
	if f.requests > 0 {
		trace = trace[:min(f.requests, len(trace))]
	}
	f.options.Slots = f.batch
	if err := cmp.Or(f.cache.checkCodec(false), f.cache.options(&f.modelFlags)); err != nil {
		return err
	}
	b := &traceBench{traceFlags: f, c: c, dir: dir, trace: trace}
	if err := b.measure(f.out.lines(c)); err != nil {
		return err
	}
	return f.out.save(c, &b.file)
}

// measure replays the trace with a cache and without one, in turns. The order changes from round
// to round; the first replay has the cache, so that its errors come at once.
func (b *traceBench) measure(w io.Writer) error {
	b.file.Environment = bench.Here(nil)
	sides := 1
	if b.options.PrefixCache > 0 {
		sides++
	}
	b.file.Traces = make([]bench.TraceResult, sides)
	for round := range b.rounds {
		order := []int{0, 1}[:sides]
		if round%2 == 0 {
			slices.Reverse(order)
		}
		for _, i := range order {
			if err := b.once(&b.file.Traces[i], i > 0, w); err != nil {
				return err
			}
		}
	}
	for i := range b.file.Traces {
		b.file.Traces[i].Settle()
	}
	bench.ReportTraces(w, b.file.Traces)
	return nil
}

// once replays the trace on a model that is opened for it, with an empty cache.
func (b *traceBench) once(r *bench.TraceResult, cached bool, w io.Writer) error {
	f, what := b.modelFlags, "with a cache"
	if !cached {
		f.options.PrefixCache, f.options.PrefixCacheHost, f.options.PrefixPolicy, what = 0, 0, "", "without"
	}
	f.quiet = f.quiet || len(r.Runs) > 0 // warnings are printed once
	m, err := f.open(b.c, b.dir)
	if err != nil {
		return err
	}
	defer m.Close()
	if !b.described {
		b.described = true
		b.trace = bench.MapTrace(b.trace, m.Vocab())
		fmt.Fprintln(w, describe(m, &f.device))
		b.describe(w)
	}
	tell, end := terminal.Progress(b.c.ErrOrStderr(), what, "requests", b.quiet)
	defer end()
	run, err := bench.Trace(b.c.Context(), m, b.trace, bench.TraceOptions{Speed: b.speed, Tell: tell})
	if err != nil {
		return driverError{err}
	}
	*r = bench.TraceResult{
		Trace: filepath.Base(b.path), Model: m.Name, Device: f.device.name, Ranks: m.Ranks(), Requests: len(b.trace),
		Speed: b.speed, Slots: f.options.Slots, Cache: f.options.PrefixCache, Runs: append(r.Runs, *run), Stats: m.Session().PrefixCache(),
	}
	for _, x := range b.trace {
		r.InputTokens += int64(x.InputLen)
		r.OutputTokens += int64(x.Tokens.Len() - x.InputLen)
	}
	return nil
}

// describe prints the size of the trace and how it is replayed.
func (b *traceBench) describe(w io.Writer) {
	var input, output int64
	for _, x := range b.trace {
		input += int64(x.InputLen)
		output += int64(x.Tokens.Len() - x.InputLen)
	}
	at := "each as soon as one has ended"
	if b.speed > 0 {
		at = fmt.Sprintf("over %.4g s", (b.trace[len(b.trace)-1].At-b.trace[0].At)/b.speed)
	}
	fmt.Fprintf(w, "%s: %s, %s of input, %s of output; %s, up to %s at the same time\n", visible(filepath.Base(b.path)),
		count(len(b.trace), "request"), count(int(input), "token"), thousands(output), at, thousands(int64(b.options.Slots)))
}

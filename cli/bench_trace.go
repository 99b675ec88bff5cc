package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

// traceFlags are the flags of krait bench --trace.
type traceFlags struct {
	path     string
	speed    float64
	kept     prefixFlags
	requests int
}

func (t *traceFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&t.path, "trace", "", "replay the requests of this file, as krait cache-sim reads them")
	c.Flags().Float64Var(&t.speed, "speed", 1, "with --trace, how many times as fast as in the trace requests arrive; 0: as soon as others end")
	t.kept.add(c)
	c.Flags().IntVar(&t.requests, "requests", 0, "with --trace, only its first requests; 0: all")
}

// check is an error for flags that do not go together.
func (t *traceFlags) check(c *cobra.Command, rounds int) error {
	given := c.Flags().Changed
	if !given("trace") {
		for _, name := range []string{"speed", "prefix-cache", "prefix-cache-host", "prefix-cache-dir", "prefix-policy", "requests"} {
			if given(name) {
				return fmt.Errorf("--%s is about a trace, and there is no --trace", name)
			}
		}
		return nil
	}
	for _, name := range []string{"prompt", "chunk", "tokens", "repeat"} {
		if given(name) {
			return fmt.Errorf("--trace says what is asked, and --%s does, too: leave one of them out", name)
		}
	}
	switch {
	case given("paired"):
		return errors.New("--paired and --trace: give one of them")
	case given("prefix-cache-dir"):
		return errors.New("--prefix-cache-dir would give each round what the one before has left: leave it out")
	case t.requests < 0:
		return fmt.Errorf("--requests %d: it is not negative", t.requests)
	case !(t.speed >= 0):
		return fmt.Errorf("--speed %g: it is above 0, or 0", t.speed)
	case rounds < 1:
		return fmt.Errorf("--rounds %d: there is at least one", rounds)
	}
	return nil
}

// traceBench is a trace under measurement.
type traceBench struct {
	*traceFlags
	c     *cobra.Command
	f     *modelFlags
	dir   string
	trace []prefix.Request
	file  bench.File

	described bool // the trace, and mapped
}

// run replays the trace and prints a table.
func (t *traceFlags) run(c *cobra.Command, f *modelFlags, dir string, batches []int, rounds int, out string) error {
	unless(c, "batch", func() { batches = []int{8} })
	unless(c, "rounds", func() { rounds = 1 })
	if len(batches) != 1 || batches[0] < 1 {
		return fmt.Errorf("--batch %v: with --trace it is one number, of requests at the same time, at least 1", batches)
	}
	trace, err := computed(c, func() ([]prefix.Request, error) { return readTrace(c, t.path) })
	if err != nil {
		return err
	}
	if t.requests > 0 {
		trace = trace[:min(t.requests, len(trace))]
	}
	f.options.Slots = batches[0]
	if err := cmp.Or(t.kept.checkCodec(false), t.kept.options(f)); err != nil {
		return err
	}
	b := &traceBench{traceFlags: t, c: c, f: f, dir: dir, trace: trace}
	if err := b.measure(rounds, lines(c, out)); err != nil {
		return err
	}
	return save(c, out, &b.file)
}

// measure lets the model with a cache and the one without take turns; who goes first
// changes. With one it goes first, so that what is wrong with it is said at once.
func (b *traceBench) measure(rounds int, w io.Writer) error {
	b.file.Environment = bench.Here(nil)
	sides := 1
	if b.f.options.PrefixCache > 0 {
		sides++
	}
	b.file.Traces = make([]bench.TraceResult, sides)
	for round := range rounds {
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

// once replays the trace on a model that is opened for it: nothing is cached.
func (b *traceBench) once(r *bench.TraceResult, cached bool, w io.Writer) error {
	f, what := *b.f, "with a cache"
	if !cached {
		f.options.PrefixCache, f.options.PrefixCacheHost, f.options.PrefixPolicy, what = 0, 0, "", "without"
	}
	f.quiet = f.quiet || len(r.Runs) > 0 // it has been warned
	m, err := f.open(b.c, b.dir)
	if err != nil {
		return err
	}
	defer m.Close()
	if !b.described {
		b.described = true
		b.trace = bench.MapTrace(b.trace, m.Vocab())
		fmt.Fprintln(w, describe(m, f.device.name))
		b.describe(w)
	}
	tell, end := progress(b.c.ErrOrStderr(), what, "requests", b.f.quiet)
	defer end()
	run, err := bench.Trace(b.c.Context(), m, b.trace, bench.TraceOptions{Speed: b.speed, Tell: tell})
	if err != nil {
		return explained{err}
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

// describe says what is replayed, and how.
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
		count(len(b.trace), "request"), count(int(input), "token"), thousands(output), at, thousands(int64(b.f.options.Slots)))
}

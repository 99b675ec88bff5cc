package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/lab/traffic"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
)

// trafficFlags are the flags of krait simulate with requests that come and go.
type trafficFlags struct {
	trace           string
	concurrency     []int
	rates           []float64
	requests        int
	bursts          float64
	prefill, decode string
	servers         []string
	session         session.Options
	o               traffic.Options
	latency         time.Duration
	slo             string
	price           float64
	find            bool
	svg             string
}

// trafficNames are the flags that have no effect on one batch.
var trafficNames = []string{"bursts", "find", "link-bandwidth", "link-latency", "max-queue", "max-queue-tokens", "prefill", "decode", "servers", "prefix-cache",
	"prefix-policy", "price", "prompt-share", "requests", "seed", "slo", "slots", "svg"}

func (f *trafficFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.trace, "traffic", "", "trace of requests to serve, at their times; - is standard input")
	flags.Float64SliceVar(&f.rates, "rate", nil, "mean `requests` per second (Poisson), or a list to sweep")
	flags.IntSliceVar(&f.concurrency, "concurrency", nil, "closed-loop clients, or a list to sweep")
	flags.IntVar(&f.requests, "requests", 256, "requests per load (default: 256, or all of --traffic)")
	flags.Float64Var(&f.bursts, "bursts", 0, "coefficient of variation of gaps, with --rate (default: 1, Poisson)")
	flags.StringVar(&f.prefill, "prefill", "", "prefill servers, each on some ranks, such as 2xtp4; needs --decode")
	flags.StringVar(&f.decode, "decode", "", "decode servers, each on some ranks (default: --dp servers on --tp)")
	flags.StringSliceVar(&f.servers, "servers", nil, "deployments to compare, such as tp8,tp4+tp4 (prefill + decode)")
	flags.IntVar(&f.session.Slots, "slots", 8, "running requests per server")
	flags.Float64Var(&f.session.PromptShare, "prompt-share", 0.33, "largest share of step time for prefill during decode; 0: no limit")
	flags.IntVar(&f.o.Decode.Queue.Requests, "max-queue", 256, "queued requests per server; further ones get 429")
	flags.IntVar(&f.o.Decode.Queue.Tokens, "max-queue-tokens", 0, "tokens of running and queued requests (default: what memory holds)")
	bytesFlag(c, &f.session.PrefixCache, "prefix-cache", 0, "prefix cache of each server that prefills, in bytes")
	flags.StringVar(&f.session.PrefixPolicy, "prefix-policy", prefix.Default, "eviction: reuse, tuned, lru or flop:α")
	flags.Float64Var(&f.o.Link.Bandwidth, "link-bandwidth", 25e9, "bytes per second at which a prefill server sends states; 0: no limit")
	flags.DurationVar(&f.latency, "link-latency", time.Millisecond, "latency of each transfer of a state")
	flags.StringVar(&f.slo, "slo", "", "bounds for goodput, such as ttft=1s,tpot=50ms,e2e=30s")
	flags.Float64Var(&f.price, "price", 0, "price of a GPU per hour, for the cost of a million tokens")
	flags.BoolVar(&f.find, "find", false, "find the fewest GPUs, up to --tp times --dp, that meet --slo")
	flags.Uint64Var(&f.o.Seed, "seed", 0, "seed of arrivals and drafts")
	flags.StringVar(&f.svg, "svg", "", "FILE.svg: chart of throughput per rank over tokens per second and user")
	for name, zero := range map[string]string{"requests": "0", "prefix-cache": "", "rate": "", "concurrency": "[]"} {
		flags.Lookup(name).DefValue = zero // the help says the default, or there is none
	}
	detail(c, "find", fmt.Sprintf("%g %% of the requests must meet --slo.", 100*traffic.Attained))
	expert(c, "acceptance", "drafts", "no-graphs", "states", "prefill", "decode", "prefix-cache", "svg", "payload", "max-batch", "max-prompt", "bursts", "prompt-share", "max-queue", "max-queue-tokens", "prefix-policy", "link-bandwidth", "link-latency", "price", "seed")
}

// given reports whether traffic is simulated. An error is about flags that exclude each other.
func (f *trafficFlags) given(c *cobra.Command) (bool, error) {
	if given := c.Flags().Changed; f.trace == "" && f.rates == nil && f.concurrency == nil {
		for _, name := range trafficNames {
			if given(name) {
				return false, fmt.Errorf("--%s is for traffic: give --traffic, --rate or --concurrency, too", name)
			}
		}
		if file := c.Flags().Lookup("output").Value.String(); filepath.Ext(file) == ".html" {
			return false, fmt.Errorf("-o %s: a page is of traffic: give --traffic, --rate or --concurrency, or write a file of another name", file)
		}
		return false, nil
	}
	for _, name := range []string{"batch", "max-batch", "max-prompt", "dp-efficiency", "prefill-strategy", "mesh"} {
		if c.Flags().Changed(name) {
			return false, fmt.Errorf("--%s is for one batch; leave it out, or --traffic, --rate and --concurrency", name)
		}
	}
	return true, f.check(c)
}

// check returns an error for flags that have no effect, and files of other names.
func (f *trafficFlags) check(c *cobra.Command) error {
	given, file := c.Flags().Changed, c.Flags().Lookup("output").Value.String()
	apart := f.prefill != "" || strings.Contains(strings.Join(f.servers, ""), "+") || f.find || given("compare")
	switch {
	case f.svg != "" && f.svg != "-" && filepath.Ext(f.svg) != ".svg":
		return fmt.Errorf("--svg %s: the chart is SVG; name it FILE.svg", f.svg)
	case filepath.Ext(file) == ".svg":
		return fmt.Errorf("-o %s: --svg writes the chart; give that the name", file)
	case given("prefix-policy") && f.session.PrefixCache == 0:
		return errors.New("--prefix-policy is that of a prefix cache: give its bytes by --prefix-cache")
	case (given("link-latency") || given("link-bandwidth")) && !apart:
		return errors.New("--link-latency and --link-bandwidth are of prefill servers: give --prefill, --servers, --compare or --find")
	}
	return nil
}

// loads returns the loads of the flags.
func (f *trafficFlags) loads(c *cobra.Command) (list []load.Load, err error) {
	switch {
	case f.rates != nil && f.concurrency != nil:
		return nil, errors.New("--concurrency and --rate exclude each other: give one of them")
	case f.bursts != 0 && f.rates == nil:
		return nil, errors.New("--bursts is for --rate: give a rate")
	case f.requests < 1:
		return nil, fmt.Errorf("--requests is %d; it must be at least 1", f.requests)
	case f.session.Slots < 1 || f.o.Decode.Queue.Requests < 1:
		return nil, fmt.Errorf("--slots is %d and --max-queue %d; both must be at least 1, as of a server", f.session.Slots, f.o.Decode.Queue.Requests)
	case f.o.Decode.Queue.Tokens < 0:
		return nil, fmt.Errorf("--max-queue-tokens is %d; it must be at least 1, or 0 for what fits into memory", f.o.Decode.Queue.Tokens)
	case !(f.price >= 0 && f.price <= 1e9):
		return nil, fmt.Errorf("--price is %g; it must be from 0 to 1e+09", f.price)
	case f.find && f.slo == "":
		return nil, errors.New("--find needs bounds: give --slo")
	case f.decode == "" && f.prefill != "":
		return nil, errors.New("--prefill needs the servers that decode: give --decode, such as 4xtp2")
	case c.Flags().Changed("servers") && len(f.servers) == 0:
		return nil, errors.New("--servers is empty: list deployments, such as tp8,tp4+tp4")
	case f.servers != nil && (f.decode != "" || c.Flags().Changed("tp") || c.Flags().Changed("dp") || f.find || c.Flags().Changed("compare")):
		return nil, errors.New("--servers says all servers and ranks; leave out --prefill, --decode, --tp, --dp, --find and --compare")
	case f.decode != "" && (c.Flags().Changed("tp") || c.Flags().Changed("dp") || f.find):
		return nil, errors.New("--decode says servers and ranks; leave out --tp, --dp and --find")
	}
	for _, r := range f.rates {
		if !(r >= load.LeastRate && r <= load.MostRate) {
			return nil, fmt.Errorf("--rate is %g; it must be from %g to %g per second", r, load.LeastRate, load.MostRate)
		}
		list = append(list, load.Load{Rate: r, Bursts: f.bursts})
	}
	for _, n := range f.concurrency {
		if n < 1 {
			return nil, fmt.Errorf("--concurrency is %d; it must be at least 1", n)
		}
		list = append(list, load.Load{Concurrency: n})
	}
	if list == nil {
		list = []load.Load{{}}
	}
	for _, l := range list {
		if err := l.Check(); err != nil {
			return nil, err
		}
	}
	f.o.SLO, err = parseSLO(f.slo)
	return list, err
}

// parseSLO reads ttft=1s,tpot=50ms.
func parseSLO(text string) (s traffic.SLO, err error) {
	if text == "" {
		return s, nil
	}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		to := map[string]*float64{"ttft": &s.TTFT, "tpot": &s.TPOT, "e2e": &s.E2E}[name]
		d, err := time.ParseDuration(value)
		if to == nil || err != nil || d <= 0 {
			return s, fmt.Errorf("--slo %s: a bound is ttft, tpot or e2e with a time, as in ttft=1s,tpot=50ms", part)
		}
		if *to > 0 {
			return s, fmt.Errorf("--slo %s: %s has two bounds; give one", text, name)
		}
		*to = d.Seconds()
	}
	return s, nil
}

// trafficReport is the answer for traffic.
type trafficReport struct {
	Model    string         `json:"model"`
	Hardware string         `json:"hardware"`
	Requests int            `json:"requests"`
	SLO      traffic.SLO    `json:"slo"`
	Lines    []traffic.Line `json:"deployments"`
	Found    string         `json:"found,omitempty"`
	about    string
	slo      string
	price    float64
	find     bool
}

// runTraffic answers for traffic.
func (f *simulateFlags) runTraffic(c *cobra.Command, g *graph.Graph, d *virtual.Device, title string) error {
	t := &f.traffic
	loads, err := t.loads(c)
	if err != nil {
		return err
	}
	if err := t.read(c, f); err != nil {
		return err
	}
	list, err := t.deployments(f)
	if err != nil {
		return err
	}
	if f.sharding.States != "" && g.Stage < graph.PartitionedStage { // for bytes of states
		s := f.sharding
		s.Ranks, s.Strategy, s.Place, s.Payload = 1, "", "", ""
		if g, err = compileTo(c, g.Stage, g, s); err != nil {
			return err
		}
		f.sharding.States = ""
	}
	t.o.Link.Bytes, t.o.Link.Latency = traffic.StateBytes(g), t.latency.Seconds()
	var end func()
	known := map[int]traffic.Server{}
	t.o.Progress, end = terminal.Progress(c.ErrOrStderr(), "simulate", "requests", false)
	lines, err := interruptible(c, "", func() ([]traffic.Line, error) {
		return traffic.Sweep(c.Context(), t.o, list, t.find && !f.compare, loads, t.price, func(s traffic.Size) (traffic.Server, error) { return f.server(g, d, s, known) })
	})
	if end(); err != nil {
		return err
	}
	if all := slices.IndexFunc(lines, func(x traffic.Line) bool { return x.Err == "" }); all < 0 {
		return errors.New(lines[len(lines)-1].Err) // that of the most ranks
	}
	r := &trafficReport{Model: title, Hardware: d.Profile.Name, Requests: len(t.o.Trace), SLO: t.o.SLO, Lines: lines, about: d.Profile.About, slo: t.slo, price: t.price, find: t.find}
	if best := traffic.Cheapest(lines); t.find && best != nil {
		r.Found = best.Name
	}
	if t.svg != "" {
		if err := write(c, t.svg, traffic.SVG(title+", "+d.Profile.About, lines)); err != nil {
			return err
		}
	}
	if filepath.Ext(f.out.file) == ".html" && !f.out.json {
		return write(c, f.out.file, r.page())
	}
	return f.out.print(c, r, r.print)
}

// read reads the trace, or makes one, and completes the options.
func (t *trafficFlags) read(c *cobra.Command, f *simulateFlags) (err error) {
	if t.trace == "" {
		t.o.Trace, err = load.Uniform(t.requests, f.work.Prompt, f.work.Output)
	} else {
		if c.Flags().Changed("prompt") || c.Flags().Changed("tokens") {
			return errors.New("--traffic says prompts and outputs; leave out --prompt and --tokens")
		}
		t.o.Trace, err = interruptible(c, "read the trace", func() ([]prefix.Request, error) { return readTrace(c, t.trace) })
		if c.Flags().Changed("requests") && t.requests < len(t.o.Trace) {
			t.o.Trace = t.o.Trace[:t.requests]
		}
	}
	if err != nil {
		return err
	}
	chunk := f.work.Chunk
	for i := range t.o.Trace {
		if f.work.Chunk == 0 {
			chunk = max(chunk, t.o.Trace[i].InputLen)
		}
	}
	t.session.MaxTokensPerStep = (chunk+graph.PartBlock-1)/graph.PartBlock*graph.PartBlock + t.session.Slots - 1
	if t.o.Drafts, t.o.Acceptance = f.work.Drafts.Number, f.work.Drafts.Acceptance; t.o.Drafts > 0 {
		t.session.Trials = t.session.Slots
	}
	return nil
}

// deployments returns those to simulate.
func (t *trafficFlags) deployments(f *simulateFlags) (list []traffic.Deployment, err error) {
	for _, text := range t.servers {
		d, err := traffic.ParseDeployment(text)
		if err != nil {
			return nil, fmt.Errorf("--servers %w", err)
		}
		list = append(list, d)
	}
	if list != nil {
		return list, nil
	}
	one := traffic.Deployment{Decode: traffic.Size{Number: f.replicas.Number, Ranks: max(f.sharding.Ranks, 1)}}
	if t.decode != "" {
		if one.Decode, err = traffic.ParseSize(t.decode); err != nil {
			return nil, fmt.Errorf("--decode %w", err)
		}
	}
	if t.prefill != "" {
		if one.Prefill, err = traffic.ParseSize(t.prefill); err != nil {
			return nil, fmt.Errorf("--prefill %w", err)
		}
	}
	if !t.find && !f.compare {
		return []traffic.Deployment{one}, nil
	}
	first := one.Ranks()
	if t.find {
		first = 1
	}
	for ranks := first; ranks <= one.Ranks(); ranks++ {
		list = append(list, traffic.Deployments(ranks)...)
	}
	return list, nil
}

// server returns the servers of a size. Those of equal ranks share a clock, which knows the times
// of steps.
func (f *simulateFlags) server(g *graph.Graph, d *virtual.Device, s traffic.Size, known map[int]traffic.Server) (traffic.Server, error) {
	x, ok := known[s.Ranks]
	if !ok {
		one := *f
		if s.Ranks == 1 && (f.compare || f.traffic.find || f.traffic.servers != nil) {
			one.sharding.Payload = "" // nothing is summed
		}
		o, err := one.options(s.Ranks)
		if err != nil {
			return x, err
		}
		if x, err = traffic.Deploy(1, g, o, d, f.traffic.session); err != nil {
			return x, err
		}
		x.Queue = f.traffic.o.Decode.Queue
		known[s.Ranks] = x
	}
	x.Number = s.Number
	return x, nil
}

func (r *trafficReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s; %s\n%s per load; times in ms, of requests that were answered\n\n", r.Model, r.about, count(r.Requests, "request"))
	fmt.Fprintf(w, "%-16s %-14s %6s %6s  %-26s  %-23s  %8s  %8s\n", "", "", "", "", "TTFT", "TPOT", "tokens/s", "E2E in s")
	fmt.Fprintf(w, "%-16s %-14s %6s %6s  %8s %8s %8s  %7s %7s %7s  %8s  %8s %6s", "servers", "load", "ok", "failed", "p50", "p95", "p99", "p50", "p95", "p99", "per rank", "p95", "busy")
	if r.slo != "" {
		fmt.Fprintf(w, " %6s", "good")
	}
	if r.price > 0 {
		fmt.Fprintf(w, " %9s", "price")
	}
	fmt.Fprintln(w)
	for i := range r.Lines {
		r.printLine(w, &r.Lines[i])
	}
	r.printEnd(w)
}

func (r *trafficReport) printLine(w io.Writer, x *traffic.Line) {
	if x.Err != "" {
		fmt.Fprintf(w, "%-16s %s\n", x.Name, x.Err)
	}
	for i, l := range x.Loads {
		latency := "–"
		if l.Latency != nil {
			latency = fmt.Sprintf("%.2f", l.Latency.P95)
		}
		fmt.Fprintf(w, "%-16s %-14s %6d %6d  %s  %s  %8.1f  %8s %5.1f%%", x.Name, l.Name(), l.OK, l.Failed(), milliseconds(l.TTFT, 8), milliseconds(l.TPOT, 7), l.PerRank, latency, 100*busiest(l))
		if r.slo != "" {
			fmt.Fprintf(w, " %5.1f%%", 100*float64(l.Good)/float64(r.Requests))
		}
		if r.price > 0 && i < len(x.PerMillion) {
			fmt.Fprintf(w, " %9.4g", x.PerMillion[i])
		}
		fmt.Fprintln(w)
	}
}

// busiest returns the share of the time in which the busiest server ran steps.
func busiest(r *traffic.Report) (share float64) {
	for _, u := range r.Servers {
		share = max(share, u.Busy)
	}
	return share
}

// printEnd prints what is told of one deployment under one load, and what was found.
func (r *trafficReport) printEnd(w io.Writer) {
	if len(r.Lines) == 1 && len(r.Lines[0].Loads) == 1 {
		l := r.Lines[0].Loads[0]
		for _, kind := range slices.Sorted(maps.Keys(l.Errors)) {
			fmt.Fprintf(w, "%s failed with %s; the first: %s\n", count(l.Errors[kind], "request"), kind, l.Messages[kind])
		}
		fmt.Fprintf(w, "\n%-12s %6s %9s %9s %6s %9s %8s %8s %13s %10s\n", "server", "ranks", "requests", "steps", "busy", "sequences", "KV room", "paused", "cached tokens", "evictions")
		for _, u := range l.Servers {
			fmt.Fprintf(w, "%-12s %6d %9d %9d %5.1f%% %9.2f %7.1f%% %8d %13s %10d\n", u.Name, u.Ranks, u.Requests, u.Steps, 100*u.Busy, u.Sequences, 100*u.Room, u.Paused, thousands(u.Hits), u.Evictions)
		}
		if l.Moving != nil {
			fmt.Fprintf(w, "transfers of states: %s bytes, %.2f ms each, %.2f ms at the 95th percentile\n", thousands(l.Moved), 1e3*l.Moving.Mean, 1e3*l.Moving.P95)
		}
		if l.Drafted > 0 {
			fmt.Fprintf(w, "drafts: %s, of which %s were accepted\n", thousands(l.Drafted), thousands(l.Accepted))
		}
	}
	if r.slo != "" {
		fmt.Fprintf(w, "good: within %s\n", r.slo)
	}
	if r.price > 0 {
		fmt.Fprintln(w, "price: of a million generated tokens")
	}
	r.printCrossing(w)
	switch {
	case r.Found != "":
		fmt.Fprintf(w, "fewest GPUs that meet it for %g %% of requests: %s\n", 100*traffic.Attained, r.Found)
	case r.find:
		fmt.Fprintf(w, "no deployment on these GPUs meets it for %g %% of requests; --tp and --dp allow more\n", 100*traffic.Attained)
	}
}

// printCrossing says of two deployments at which loads one gives more tokens per second both per
// rank and per user.
func (r *trafficReport) printCrossing(w io.Writer) {
	if len(r.Lines) != 2 || len(r.Lines[0].Loads) < 2 || len(r.Lines[0].Loads) != len(r.Lines[1].Loads) {
		return
	}
	for i := range r.Lines {
		one, other := &r.Lines[i], &r.Lines[1-i]
		var loads []string
		for k, a := range one.Loads {
			if b := other.Loads[k]; a.TPOT != nil && b.TPOT != nil && a.PerRank > b.PerRank && a.TPOT.P50 < b.TPOT.P50 {
				loads = append(loads, a.Name())
			}
		}
		if loads != nil {
			fmt.Fprintf(w, "more tokens/s per rank and per user with %s: %s\n", one.Name, strings.Join(loads, ", "))
		}
	}
}

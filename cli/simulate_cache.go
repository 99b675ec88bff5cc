package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

// cacheFlags say what is held against a trace.
type cacheFlags struct {
	policy     string
	capacity   bytesOrNone
	model      cacheModelFlags
	requests   int
	sweep, dot bool
	analyze    bool
	speed      float64 // FLOP/s
	out        output
}

func newSimulateCache() *cobra.Command {
	var f cacheFlags
	c := &cobra.Command{
		Use:   "cache [flags] TRACE",
		Short: "Predict the hit rate of a prefix cache for a trace",
		Long: `Cache replays a trace and counts the prompt tokens that hit a prefix cache of --capacity
bytes, by eviction policy:

  none      no cache
  blocks32  a state for each full block of 32 tokens, as serving engines do; or of
            another number of tokens
  lru       a radix tree with at most three states per request; evicts the least
            recently used
  flop:α    the same, but evicts the lowest sum of last use and α times the FLOPs
            saved per byte
  tuned     the same, with the α that would have hit most, or as reuse where that would
  reuse     the same, but evicts the fewest expected hits per byte, as learned from
            earlier requests; begins as lru, risks what it gains (the default of models)
  all       all of these, flop with 0.5 and 2

Of the published evaluation (Marconi) there are also

  leaves      lru of leaves only, where a hit touches the whole path (SGLang+)
  released:α  flop with the released code's score: over candidates, the inverse of the
              age, and bytes of whole prefixes
  marconi     flop with the α that hits most on the requests after the first eviction

TRACE has a request per line, {"at": seconds, "input": [...], "output": [...]}, sorted by time.
A number is a token id, and [first, n] is n consecutive ids; - is standard input. krait simulate
trace makes some.

A model is its costs: prefill of L tokens takes flops-per-token·L + flops-per-token-squared·L²
FLOPs, each token has cache-bytes of KV cache, and a state has state-bytes, 0 for attention
only. --model takes these from a model's graph, and --like from a published size; of a folder
only config.json is needed. Bytes may be written as 4e9 or 3.5GiB. docs/prefix-cache.md has the
rules.

A prompt leaves states at multiples of --grain tokens. The default is that of Krait's prefix
cache. With 1 the rules are as published: states where prompts diverge, at any token, and none
at a prompt's end; marconi is then the published rule.

--sweep prints the share of prompt tokens reused for six capacities, of which --capacity is the
largest, and every α; -o writes a chart. --dot draws the tree of one policy after the last
request.

--analyze also prints, for each policy, states and KV cache that were used before their eviction,
bytes by kind over time, and hits by length of prompt; with --speed times to the first token; with
a model FLOPs saved per byte by kind of layer. With one --policy, -o FILE.svg draws the bytes.

With --json one policy is an object; several, and --analyze, are a list in "results".`,
		Example: `  krait simulate cache chat.jsonl --capacity 4e9 --model ~/models/bamba-9b --states conv=bf16,cache=bf16
  krait simulate cache chat.jsonl --capacity 4e9 --flops-per-token 14e9 --flops-per-token-squared 65536 --cache-bytes 64KiB --state-bytes 50MiB
  krait simulate cache chat.jsonl --policy tuned --json --capacity 16GiB --flops-per-token 14e9 --state-bytes 50MiB
  krait simulate cache chat.jsonl --sweep --capacity 64GiB --model ~/models/bamba-9b -o sweep.svg
  krait simulate cache chat.jsonl --analyze --policy reuse --capacity 4e9 --like bamba-9b --speed 5e14
  krait simulate cache chat.jsonl --dot --policy lru --requests 12 --capacity 1GiB --model ~/models/bamba-9b -o tree.svg`,
		Args: takes(1, 1, "one TRACE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args[0]); err != nil {
				return err
			}
			switch {
			case f.sweep:
				return f.runSweep(c, args[0])
			case f.dot:
				return f.draw(c, args[0])
			}
			r, err := f.run(c, args[0])
			if err != nil {
				return err
			}
			if filepath.Ext(f.out.file) == ".svg" {
				return write(c, f.out.file, r.heldChart())
			}
			if f.policy != "all" && f.out.json && !f.analyze {
				return writeJSON(c, f.out.file, r.Results[0])
			}
			return f.out.print(c, r, r.print)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.policy, "policy", "all", "eviction: none, blocks32, lru, flop:α, tuned, reuse, or all")
	flags.Var(&f.capacity, "capacity", "size of the prefix cache, such as 4GiB (required)")
	f.model.add(c)
	flags.IntVar(&f.requests, "requests", 0, "replay only the first requests; 0: all")
	flags.BoolVar(&f.analyze, "analyze", false, "also print what is held, used and hit, by kind and length")
	flags.Float64Var(&f.speed, "speed", 0, "FLOP/s of prefill, for the times of --analyze")
	flags.BoolVar(&f.sweep, "sweep", false, "compare capacities and α; with -o FILE.svg also draw a chart")
	flags.BoolVar(&f.dot, "dot", false, "print the final radix tree as Graphviz text, or with -o FILE.svg draw it")
	f.out.add(c)
	return c
}

// check is an error for flags that do not go together, or are wrong, before anything is read.
func (f *cacheFlags) check(c *cobra.Command, path string) error {
	one := f.policy != "all"
	switch {
	case f.sweep && f.dot:
		return errors.New("--sweep and --dot exclude each other: give one of them")
	case f.sweep && one:
		return errors.New("--sweep compares policies; leave out --policy")
	case f.dot && !one:
		return errors.New("--dot draws the tree of one policy; add --policy reuse, lru, flop:α or tuned")
	case f.dot && f.out.json:
		return errors.New("--dot draws and --json prints figures; give one of them")
	case f.sweep && f.out.file != "" && filepath.Ext(f.out.file) != ".svg":
		return fmt.Errorf("-o %s: the chart is SVG; name it FILE.svg", f.out.file)
	case f.analyze && (f.sweep || f.dot):
		return errors.New("--analyze prints figures of a replay; leave out --sweep and --dot")
	case f.speed != 0 && !f.analyze:
		return errors.New("--speed is for the times of --analyze; add it")
	case !(f.speed >= 0 && f.speed <= 1e30):
		return fmt.Errorf("--speed is %g FLOP/s; it must be from 0 to 1e30", f.speed)
	case f.analyze && f.out.file != "" && filepath.Ext(f.out.file) == ".svg" && (!one || f.policy == "none"):
		return fmt.Errorf("-o %s: the chart is of one cache; add --policy", f.out.file)
	case !f.sweep && !f.dot && !f.analyze && filepath.Ext(f.out.file) == ".svg", !f.dot && filepath.Ext(f.out.file) == ".dot":
		return fmt.Errorf("-o %s: only --sweep, --analyze and --dot draw; give one of them", f.out.file)
	case f.requests < 0:
		return fmt.Errorf("--requests is %d; it must not be negative", f.requests)
	case path == "-" && f.model.dir == "-":
		return errors.New("TRACE and --model are both - (standard input); give a file for one")
	case f.policy != "none" && !c.Flags().Changed("capacity"):
		return errors.New("--capacity is missing: give the bytes of the cache, as in --capacity 4GiB")
	}
	return f.model.check(c)
}

// cacheReport is what policies make of a trace.
type cacheReport struct {
	Trace    string           `json:"trace"`
	Model    prefix.Model     `json:"model"`
	Capacity int64            `json:"capacity"`
	Kinds    []kindCost       `json:"layers,omitempty"`
	Speed    float64          `json:"flops_per_second,omitempty"`
	Results  []*prefix.Result `json:"results"`
}

func (f *cacheFlags) run(c *cobra.Command, path string) (*cacheReport, error) {
	policies := prefix.Policies
	if f.policy != "all" {
		policies = []string{f.policy}
	}
	m, trace, err := f.read(c, path, policies)
	if err != nil {
		return nil, err
	}
	r := &cacheReport{Trace: path, Model: m, Capacity: int64(f.capacity.byteCount), Speed: f.speed}
	if f.analyze {
		r.Kinds = f.model.kinds
	}
	tell, end := terminal.Progress(c.ErrOrStderr(), "simulate cache", "requests", false)
	defer end()
	for i, name := range policies {
		s := prefix.Simulation{Policy: name, Model: m, Capacity: r.Capacity, Analyze: f.analyze}
		if tell != nil {
			s.Progress = func(done int) { tell(i*len(trace)+done, len(policies)*len(trace)) }
		}
		result, err := interruptible(c, "", func() (*prefix.Result, error) { return s.Run(trace) })
		if err != nil {
			return nil, err
		}
		r.Results = append(r.Results, result)
	}
	return r, nil
}

// read reads the model and, if the policies are some, the trace.
func (f *cacheFlags) read(c *cobra.Command, path string, policies []string) (m prefix.Model, trace []prefix.Request, err error) {
	if m, err = f.model.read(c); err != nil {
		return m, nil, err
	}
	for _, name := range policies {
		if _, err := prefix.NewPolicy(name, m, int64(f.capacity.byteCount)); err != nil {
			return m, nil, err
		}
	}
	trace, err = interruptible(c, "read", func() ([]prefix.Request, error) { return readTrace(c, path) })
	if f.requests > 0 && f.requests < len(trace) {
		trace = trace[:f.requests]
	}
	return m, trace, err
}

func readTrace(c *cobra.Command, path string) ([]prefix.Request, error) {
	in, name := stdin(c), "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, path
	}
	trace, err := prefix.ReadTrace(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return trace, nil
}

func (r *cacheReport) print(w io.Writer) {
	first := r.Results[0]
	fmt.Fprintf(w, "%s: %s, %s of input, %s FLOPs\n", visible(r.Trace), count(len(first.Hits), "request"), count(int(first.InputTokens), "token"), short(first.FLOPs))
	fmt.Fprintf(w, "cache of %s bytes; %s bytes per token, %s per state, a grain of %s\n", thousands(r.Capacity), thousands(r.Model.CacheBytes),
		thousands(r.Model.StateBytes), count(r.Model.Grain, "token"))
	if r.Capacity < r.Model.StateBytes {
		fmt.Fprintln(w, "a state is larger than the cache: nothing fits")
	}
	fmt.Fprintf(w, "\n%-10s  %14s  %8s  %11s  %8s  %10s  %5s\n", "policy", "hit tokens", "of input", "FLOPs saved", "of all", "evictions", "α")
	for _, x := range r.Results {
		alpha := "-"
		if x.Alpha != nil {
			alpha = short(*x.Alpha)
		}
		fmt.Fprintf(w, "%-10s  %14s  %7.1f%%  %11s  %7.1f%%  %10s  %5s\n", x.Policy, thousands(x.HitTokens), percent(float64(x.HitTokens), float64(x.InputTokens)),
			short(x.FLOPsSaved), percent(x.FLOPsSaved, x.FLOPs), thousands(int64(x.Evictions)), alpha)
	}
	if r.Results[0].Analysis != nil {
		r.printAnalysis(w)
	}
}

// mostDrawn bounds the nodes of a drawing: Graphviz is slow for more.
const mostDrawn = 100

// draw draws the tree of the policy after the last request.
func (f *cacheFlags) draw(c *cobra.Command, path string) error {
	out := format{output: f.out.file}
	if err := out.settle(); err != nil {
		return err
	}
	if out.name == "text" {
		out.name = "dot"
	}
	m, trace, err := f.read(c, path, []string{f.policy})
	if err != nil {
		return err
	}
	var nodes []prefix.Node
	drawn := false
	s := prefix.Simulation{Policy: f.policy, Model: m, Capacity: int64(f.capacity.byteCount), After: func(p prefix.Policy) {
		if t, ok := p.(interface{ Nodes() []prefix.Node }); ok {
			nodes, drawn = t.Nodes(), true
		}
	}}
	r, err := interruptible(c, "simulate", func() (*prefix.Result, error) { return s.Run(trace) })
	switch {
	case err != nil:
		return err
	case !drawn:
		return fmt.Errorf("--policy %s has no tree to draw; use reuse, lru, flop:α or tuned", f.policy)
	case len(nodes) > mostDrawn:
		return fmt.Errorf("the tree has %s nodes after %s, and at most %d are drawn; draw it after fewer, with --requests", thousands(int64(len(nodes))), count(len(trace), "request"), mostDrawn)
	}
	title := fmt.Sprintf("%s after %s, %s: %s, %s", filepath.Base(path), count(len(trace), "request"), f.policy, count(len(nodes), "node"), count(r.Evictions, "eviction"))
	return out.write(c, nil, func(w io.Writer) error { return visualize.Tree(w, nodes, title) })
}

// percent is a share of the whole; of nothing it is none.
func percent(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

// short writes a number with four digits.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

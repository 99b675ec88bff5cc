package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/krait-ml/krait/serving/prefix"
	"github.com/spf13/cobra"
)

// cacheSimFlags say what is held against a trace.
type cacheSimFlags struct {
	policy                 string
	capacity, cache, state bytesOrNone
	model                  prefix.Model
	json                   bool
}

func newCacheSim() *cobra.Command {
	var f cacheSimFlags
	c := &cobra.Command{
		Use:   "cache-sim [flags] TRACE",
		Short: "Say what a prefix cache would make of a trace of requests",
		Long: `Cache-sim replays a trace and counts the tokens of prompts that a prefix cache of
--capacity bytes would save a model from reading, by policy:

  none      no cache
  blocks32  a state for each full block of 32 tokens, as serving engines do; or of
            another number of tokens
  lru       a radix tree with at most two states per request; the oldest goes first
  flop:α    the same, and what goes first has a low sum of its time and α times the
            FLOPs that it saves per byte
  tuned     the same, with the α that does best on requests after the first eviction
  all       these, flop with 0.5 and 2

TRACE has a request per line, {"at": seconds, "input": [...], "output": [...]}, in the
order of time, where a number is a token id and [first, n] is n consecutive ids; - is
standard input. The model is what it costs: reading L tokens takes
flops-per-token·L + flops-per-token-squared·L² FLOPs, each token cache-bytes of attention
cache, and a state state-bytes, 0 for attention only. Bytes may be written as 4e9 or
3.5GiB. docs/prefix-cache.md has the rules.

With --json one policy is an object, and all are the results of one.`,
		Example: `  krait cache-sim chat.jsonl --capacity 4e9 --flops-per-token 14e9 --flops-per-token-squared 65536 --cache-bytes 64KiB --state-bytes 50MiB
  krait cache-sim chat.jsonl --policy tuned --json --capacity 16GiB --flops-per-token 14e9 --state-bytes 50MiB`,
		Args: takes(1, 1, "one TRACE"),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.run(c, args[0])
			if err != nil {
				return err
			}
			if !f.json {
				r.print(c.OutOrStdout())
				return nil
			}
			if f.policy != "all" {
				return writeJSON(c, "", r.Results[0])
			}
			return writeJSON(c, "", r)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.policy, "policy", "all", "none, blocks32, lru, flop:α, tuned or all")
	flags.Var(&f.capacity, "capacity", "bytes of the cache")
	flags.Float64Var(&f.model.FLOPsPerToken, "flops-per-token", 0, "FLOPs to read a token, a of a·L + b·L²")
	flags.Float64Var(&f.model.FLOPsPerTokenSquared, "flops-per-token-squared", 0, "FLOPs of attention, b of a·L + b·L²")
	flags.Var(&f.cache, "cache-bytes", "bytes of attention cache per token")
	flags.Var(&f.state, "state-bytes", "bytes of the states of all layers (0: attention only)")
	jsonFlag(c, &f.json)
	return c
}

// cacheReport is what policies make of a trace.
type cacheReport struct {
	Trace    string           `json:"trace"`
	Model    prefix.Model     `json:"model"`
	Capacity int64            `json:"capacity"`
	Results  []*prefix.Result `json:"results"`
}

func (f *cacheSimFlags) run(c *cobra.Command, path string) (*cacheReport, error) {
	f.model.CacheBytes, f.model.StateBytes = int64(f.cache.byteCount), int64(f.state.byteCount)
	r := &cacheReport{path, f.model, int64(f.capacity.byteCount), nil}
	policies := prefix.Policies
	if f.policy != "all" {
		policies = []string{f.policy}
	}
	if err := f.check(c, policies); err != nil {
		return nil, err
	}
	trace, err := computed(c, func() ([]prefix.Request, error) { return readTrace(c, path) })
	if err != nil {
		return nil, err
	}
	for _, name := range policies {
		result, err := computed(c, func() (*prefix.Result, error) { return prefix.Replay(name, f.model, r.Capacity, trace) })
		if err != nil {
			return nil, err
		}
		r.Results = append(r.Results, result)
	}
	return r, nil
}

// check is an error for flags that are wrong, before a trace is read.
func (f *cacheSimFlags) check(c *cobra.Command, policies []string) error {
	given := c.Flags().Changed
	switch {
	case !given("flops-per-token") || !given("cache-bytes") && !given("state-bytes"):
		return errors.New("the model is missing: give --flops-per-token, and --cache-bytes, --state-bytes or both")
	case f.policy != "none" && !given("capacity"):
		return errors.New("there is no --capacity: give the bytes of the cache, as in --capacity 4GiB")
	}
	for _, name := range policies {
		if _, err := prefix.NewPolicy(name, f.model, int64(f.capacity.byteCount)); err != nil {
			return err
		}
	}
	return nil
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
	trace, err := prefix.ReadTrace(bufio.NewReaderSize(in, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return trace, nil
}

func (r *cacheReport) print(w io.Writer) {
	first := r.Results[0]
	fmt.Fprintf(w, "%s: %s, %s of input, %s FLOPs\n", r.Trace, count(len(first.Hits), "request"), count(int(first.InputTokens), "token"), short(first.FLOPs))
	fmt.Fprintf(w, "cache of %s bytes; %s bytes per token, %s per state\n\n", thousands(r.Capacity), thousands(r.Model.CacheBytes), thousands(r.Model.StateBytes))
	fmt.Fprintf(w, "%-10s  %14s  %8s  %11s  %8s  %10s  %5s\n", "policy", "hit tokens", "of input", "FLOPs saved", "of all", "evictions", "α")
	for _, x := range r.Results {
		alpha := "-"
		if x.Alpha != nil {
			alpha = short(*x.Alpha)
		}
		fmt.Fprintf(w, "%-10s  %14s  %7.1f%%  %11s  %7.1f%%  %10s  %5s\n", x.Policy, thousands(x.HitTokens), percent(float64(x.HitTokens), float64(x.InputTokens)),
			short(x.FLOPsSaved), percent(x.FLOPsSaved, x.FLOPs), thousands(int64(x.Evictions)), alpha)
	}
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

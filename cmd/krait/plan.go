package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/spf13/cobra"
)

func newPlan() *cobra.Command {
	var s krait.Sharding
	var batch, prompt int
	var compare bool
	link := krait.Link{}
	var gigabytes float64
	c := &cobra.Command{
		Use:   "plan [flags] [DIR | FILE.ir]",
		Short: "Say what a model takes on its ranks, without running it",
		Long: `Plan lowers a model and answers from the schedules: for each rank the bytes of
weights, state and activations, for each collective what it carries, and how many
kernels a token takes. A FILE.ir is graph text at any stage, on which the passes run
that are left. The cache is that of attention, for the prompts and one
token more. Activations are given for a prompt of --prompt tokens in
each of --batch sequences, all in one step, and for decoding one token in each.

--compare plans by every strategy instead, and says how long the collectives of a
step take where each costs --latency and a rank sends --bandwidth gigabytes per
second: few launches pay while tokens are few, few bytes when they are many.

Without DIR it is the embedded model's.`,
		Example: `  krait plan --tp 4
  krait plan --tp 4 --compare --latency 30us --bandwidth 20
  krait plan ~/models/mamba-2.8b-hf --tp 4 --batch 8 --prompt 1024`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if batch < 1 || prompt < 1 {
				return fmt.Errorf("--batch %d and --prompt %d: both must be at least 1", batch, prompt)
			}
			if compare {
				if link.Bandwidth = gigabytes * 1e9; link.Latency < 0 || !(link.Bandwidth > 0) {
					return fmt.Errorf("--latency %s and --bandwidth %g: neither may be negative, nor bandwidth 0", link.Latency, gigabytes)
				}
				if s.Strategy != "" || s.Place != "" {
					return errors.New("--compare plans by every strategy; leave out --strategy and --place")
				}
				return printChoices(c.OutOrStdout(), append(args, "")[0], s, link, int64(batch), int64(prompt))
			}
			all, err := lowered(append(args, "")[0], s)
			if err != nil {
				return err
			}
			p, err := lowering.NewPlan(all)
			if err != nil {
				return err
			}
			printPlan(c.OutOrStdout(), all[0].Name, p, int64(batch), int64(prompt))
			return nil
		},
	}
	shardingFlags(c, &s)
	c.Flags().IntVar(&batch, "batch", 1, "sequences")
	c.Flags().IntVar(&prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().BoolVar(&compare, "compare", false, "compare the strategies")
	c.Flags().DurationVar(&link.Latency, "latency", 8*time.Microsecond, "with --compare: what a collective costs whatever it carries")
	c.Flags().Float64Var(&gigabytes, "bandwidth", 300, "with --compare: gigabytes per second that a rank sends")
	return c
}

// lowered makes the schedules of a model or of graph text, as they run.
func lowered(path string, s krait.Sharding) ([]*lowering.Schedule, error) {
	g, err := compile(path, s, graph.NoStage)
	if err != nil {
		return nil, err
	}
	return lowering.Lower(g)
}

func inBlock(st lowering.Step, block string) bool { return graph.BlockOf(st.Name) == block }

func printPlan(w io.Writer, name string, p *lowering.Plan, batch, prompt int64) {
	prefill := graph.Sizes{Tokens: batch * prompt, Seqs: batch, Rows: batch}
	decode := graph.Sizes{Tokens: batch, Seqs: batch, Rows: batch}
	fmt.Fprintf(w, "%s on %d ranks; %d sequences, prompts of %d tokens, then one token each\n\n", name, len(p.Ranks), batch, prompt)
	fmt.Fprintf(w, "%4s  %14s  %14s  %14s  %16s  %16s  %8s  %11s\n", "rank", "weights", "state", "cache", "prompt", "decode", "kernels", "collectives")
	for i, r := range p.Ranks {
		fmt.Fprintf(w, "%4d  %14s  %14s  %14s  %16s  %16s  %8d  %11d\n", i, thousands(r.Weights+r.Constants), thousands(r.State*batch), thousands(r.Cache*batch*(prompt+1)),
			thousands(r.Arena.At(prefill)), thousands(r.Arena.At(decode)), r.Launches, r.Collectives)
	}
	fmt.Fprintln(w, "bytes; kernels and collectives per step, prompt and decode: activations at their peak")
	if len(p.Collectives) == 0 {
		return
	}
	lines := foldCollectives(p.Collectives)
	width := 34
	for _, line := range lines {
		width = max(width, len([]rune(line.name)))
	}
	fmt.Fprintf(w, "\n%-*s %-14s %12s %16s %16s\n", width, "collective", "kind", "elements", "prompt", "decode")
	for _, line := range lines {
		c := line.c
		fmt.Fprintf(w, "%-*s %-14s %12s %16s %16s\n", width, line.name, c.Kind, c.Elems, thousands(c.Bytes.At(prefill)), thousands(c.Bytes.At(decode)))
	}
	fmt.Fprintf(w, "payload in bytes. A rank sends %s bytes for the prompts and %s for a token of each, in rings\n", thousands(p.Sent(prefill)), thousands(p.Sent(decode)))
}

// printChoices writes a line per strategy.
func printChoices(w io.Writer, path string, s krait.Sharding, link krait.Link, batch, prompt int64) error {
	g, err := readGraph(path)
	if err != nil {
		return err
	}
	if g.Stage >= graph.PartitionedStage {
		return errors.New("the graph is partitioned already; --compare needs one that is not")
	}
	prefill := graph.Sizes{Tokens: batch * prompt, Seqs: batch, Rows: batch}
	decode := graph.Sizes{Tokens: batch, Seqs: batch, Rows: batch}
	fmt.Fprintf(w, "%s on %d ranks; %d sequences, prompts of %d tokens, then one token each\n", g.Name, max(s.Ranks, g.Ranks), batch, prompt)
	fmt.Fprintf(w, "links: %s a collective, %g GB/s a rank\n\n", link.Latency, link.Bandwidth/1e9)
	fmt.Fprintf(w, "%-12s  %11s  %14s  %14s  %14s  %12s  %12s\n", "strategy", "collectives", "sent, prompt", "sent, decode", "weights", "time, prompt", "time, decode")
	for _, c := range krait.Choices(g, s) {
		if c.Err != nil {
			fmt.Fprintf(w, "%-12s  does not apply: %v\n", c.Strategy.Name, firstLine(c.Err))
			continue
		}
		weights := int64(0)
		for _, r := range c.Plan.Ranks {
			weights = max(weights, r.Weights+r.Constants)
		}
		fmt.Fprintf(w, "%-12s  %11d  %14s  %14s  %14s  %12s  %12s\n", c.Strategy.Name, len(c.Plan.Collectives), thousands(c.Plan.Sent(prefill)), thousands(c.Plan.Sent(decode)),
			thousands(weights), round(link.Time(c.Plan, prefill)), round(link.Time(c.Plan, decode)))
	}
	fmt.Fprintln(w, "bytes a rank sends in rings; weights of the rank that has most; time of the collectives, one after another")
	return nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ":")
}

type collectiveLine struct {
	name string
	c    *lowering.CollectivePlan
}

// foldCollectives writes runs of blocks with the same collectives once.
func foldCollectives(list []lowering.CollectivePlan) []collectiveLine {
	blocks := map[string]string{} // what a block has, as text
	var order []string
	for i := range list {
		c := &list[i]
		if _, ok := blocks[c.Block]; !ok && c.Block != "" {
			order = append(order, c.Block)
		}
		blocks[c.Block] += fmt.Sprintf("%s %s %s\n", strings.TrimPrefix(c.Name, c.Block), c.Kind, c.Bytes)
	}
	first, count := map[string]string{}, map[string]int{}
	for i, b := range order {
		first[b] = b
		if i > 0 && blocks[b] == blocks[order[i-1]] {
			first[b] = first[order[i-1]]
		}
		count[first[b]]++
	}
	var out []collectiveLine
	for i := range list {
		c := &list[i]
		if c.Block != "" && first[c.Block] != c.Block {
			continue
		}
		name := c.Name
		if n := count[c.Block]; n > 1 {
			name += fmt.Sprintf(" (×%d)", n)
		}
		out = append(out, collectiveLine{name, c})
	}
	return out
}

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/spf13/cobra"
)

func newPlan() *cobra.Command {
	var s krait.Sharding
	var batch, prompt int
	c := &cobra.Command{
		Use:   "plan [flags] [DIR | FILE.ir]",
		Short: "Say what a model takes on its ranks, without running it",
		Long: `Plan lowers a model and answers from the schedules: for each rank the bytes of
weights, state and activations, for each collective what it carries, and how many
kernels a token takes. Activations are given for a prompt of --prompt tokens in
each of --batch sequences, all in one step, and for decoding one token in each.

Without DIR it is the embedded model's.`,
		Example: `  krait plan --tp 4
  krait plan ~/models/mamba-2.8b-hf --tp 4 --batch 8 --prompt 1024`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if batch < 1 || prompt < 1 {
				return fmt.Errorf("--batch %d and --prompt %d: both must be at least 1", batch, prompt)
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
	return c
}

// lowered makes the schedules of a model or of graph text.
func lowered(path string, s krait.Sharding) ([]*lowering.Schedule, error) {
	g, err := readGraph(path)
	if err == nil && g.Stage < graph.PartitionedStage {
		g, err = krait.Shard(g, s)
	}
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
	fmt.Fprintf(w, "%4s  %14s  %14s  %16s  %16s  %8s  %11s\n", "rank", "weights", "state", "prompt", "decode", "kernels", "collectives")
	for i, r := range p.Ranks {
		fmt.Fprintf(w, "%4d  %14s  %14s  %16s  %16s  %8d  %11d\n", i, thousands(r.Weights+r.Constants), thousands(r.State*batch),
			thousands(r.Arena.At(prefill)), thousands(r.Arena.At(decode)), r.Launches, r.Collectives)
	}
	fmt.Fprintln(w, "bytes; kernels and collectives per step, prompt and decode: activations at their peak")
	if len(p.Collectives) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%-34s %-14s %12s %16s %16s\n", "collective", "kind", "elements", "prompt", "decode")
	for _, line := range foldCollectives(p.Collectives) {
		c := line.c
		fmt.Fprintf(w, "%-34s %-14s %12s %16s %16s\n", line.name, c.Kind, c.Elems, thousands(c.Bytes.At(prefill)), thousands(c.Bytes.At(decode)))
	}
	var before, after float64
	for i := range p.Collectives {
		before += p.Collectives[i].SentPerRank(prefill)
		after += p.Collectives[i].SentPerRank(decode)
	}
	fmt.Fprintf(w, "payload in bytes. A rank sends %s bytes for the prompts and %s for a token of each, in rings\n", thousands(int64(before)), thousands(int64(after)))
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

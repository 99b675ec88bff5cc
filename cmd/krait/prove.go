package main

import (
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/prove"
	"github.com/spf13/cobra"
)

func newProve() *cobra.Command {
	var s krait.Sharding
	var asJSON bool
	var against, output string
	c := &cobra.Command{
		Use:   "prove [flags] [DIR | FILE.ir]",
		Short: "Prove that a partitioned model is right, and how few collectives it needs",
		Long: `Prove compiles a model for --tp ranks and checks the result by itself: every layout
is derived again from the rules of the operations, every partial sum is traced to
the one collective that reduces it, and a search of its own finds the fewest
collectives that the stated class of placements allows. It prints a certificate: for
each block, each collective, what made its value a partial sum, who needs it whole,
and the bytes that it carries.

A FILE.ir at stage model or unpacked is compiled like a model. One that is partitioned
already is proved against the graph that it came from, --against SOURCE: graph text at
stage unpacked, as partition took it, or a model's, on which the passes before partition
are run as --strategy says. Without DIR it is the embedded model.`,
		Example: `  krait prove --tp 4
  krait prove ~/models/falcon-mamba-7b --tp 8 --json -o certificate.json
  krait graph --tp 4 DIR > partitioned.ir
  krait prove --against DIR partitioned.ir`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			source, sharded, err := bothSides(append(args, "")[0], against, s)
			if err != nil {
				return err
			}
			cert, err := prove.Prove(source, sharded, prove.Options{})
			if err != nil {
				return err
			}
			text := []byte(cert.String())
			if asJSON {
				if text, err = cert.JSON(); err != nil {
					return err
				}
				text = append(text, '\n')
			}
			return write(c.OutOrStdout(), output, text)
		},
	}
	shardingFlags(c, &s)
	c.Flags().BoolVar(&asJSON, "json", false, "print the certificate as JSON")
	c.Flags().StringVar(&against, "against", "", "the graph that FILE.ir was before it was partitioned, at stage model or unpacked")
	c.Flags().StringVarP(&output, "output", "o", "", "write to this file")
	return c
}

// bothSides returns a graph as partition takes it, and partitioned.
func bothSides(path, against string, s krait.Sharding) (source, partitioned *graph.Graph, err error) {
	g, err := readGraph(path)
	switch {
	case err != nil:
		return nil, nil, err
	case g.Stage > graph.PartitionedStage:
		return nil, nil, fmt.Errorf("%s is at stage %s; what is proved is the graph before, at stage %s", path, g.Stage, graph.PartitionedStage)
	case g.Stage == graph.PartitionedStage && against == "":
		return nil, nil, fmt.Errorf("%s is partitioned already; --against names the graph that it came from", path)
	case g.Stage == graph.PartitionedStage:
		source, err = sourceOf(g, against, s)
		return source, g, err
	case against != "":
		return nil, nil, fmt.Errorf("%s is at stage %s; --against is for graphs that are partitioned", path, g.Stage)
	}
	if source, err = compileTo(graph.UnpackedStage, g, s); err == nil {
		partitioned, err = compileTo(graph.PartitionedStage, source, s)
	}
	return source, partitioned, err
}

// sourceOf reads the graph that a partitioned one came from, as partition took it.
func sourceOf(partitioned *graph.Graph, against string, s krait.Sharding) (*graph.Graph, error) {
	source, err := readGraph(against)
	switch {
	case err != nil:
		return nil, err
	case source.Stage >= graph.PartitionedStage:
		return nil, fmt.Errorf("--against %s: it is at stage %s; give the graph from before it was partitioned, at stage model or unpacked", against, source.Stage)
	case s.Ranks > 0 && s.Ranks != partitioned.Ranks:
		return nil, fmt.Errorf("--tp %d: the graph is partitioned for %d ranks", s.Ranks, partitioned.Ranks)
	case s.Quantize != "" || source.Stage == graph.UnpackedStage && s.Strategy+s.Place+s.Dump != "":
		return nil, fmt.Errorf("--against %s: no pass is run that --strategy, --place, --quantize or --dump could be for", against)
	case source.Stage == graph.ModelStage:
		return compileTo(graph.UnpackedStage, source, s)
	}
	return source, nil
}

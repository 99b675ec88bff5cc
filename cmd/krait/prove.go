package main

import (
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
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

A FILE.ir that is partitioned already is proved against the graph that it came
from, --against SOURCE.ir. Without DIR it is the embedded model.`,
		Example: `  krait prove --tp 4
  krait prove ~/models/falcon-mamba-7b --tp 8 --json -o certificate.json
  krait prove --against block.ir partitioned.ir`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			source, sharded, err := toProve(append(args, "")[0], against, s)
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
	c.Flags().StringVar(&against, "against", "", "the graph that FILE.ir was before it was partitioned")
	c.Flags().StringVarP(&output, "output", "o", "", "write to this file")
	return c
}

// toProve returns the graph before partition and after.
func toProve(path, against string, s krait.Sharding) (source, sharded *graph.Graph, err error) {
	g, err := readGraph(path)
	if err != nil {
		return nil, nil, err
	}
	if g.Stage >= graph.PartitionedStage {
		if against == "" {
			return nil, nil, fmt.Errorf("%s is partitioned already; --against names the graph that it came from", path)
		}
		source, err = readGraph(against)
		return source, g, err
	}
	if against != "" {
		return nil, nil, fmt.Errorf("%s is not partitioned; --against is for graphs that are", path)
	}
	o, err := s.Options()
	if err != nil {
		return nil, nil, err
	}
	if source, err = toStage(g, "unpacked", s); err != nil {
		return nil, nil, err
	}
	sharded, err = passes.Run(source, afterUnpacked(o.Strategy.Passes), o)
	return source, sharded, err
}

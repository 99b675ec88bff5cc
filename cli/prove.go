package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes/prove"
	"github.com/spf13/cobra"
)

func newProve() *cobra.Command {
	var s krait.Sharding
	var search prove.Options
	var execute validate.Options
	var asJSON, noExecute, quiet bool
	var against, output string
	from := modelArg{kind: "DIR or FILE.ir"}
	c := &cobra.Command{
		Use:   "prove [flags] [DIR | FILE.ir]",
		Short: "Prove that a partitioned model is right, and how few collectives it needs",
		Long: `Prove compiles a model for --tp ranks and checks the result in two ways.

By rules: every layout is derived again from the rules of the operations, every
partial sum is traced to the collective that reduces it, and a search of its own
finds the fewest collectives that the stated class of placements allows. By
execution: each distinct block of the model and of the result is run in float64, at
its real dimensions, on random weights, inputs and states, on all ranks, and every
value that both have is compared. Neither looks at what the other does.

It prints a certificate: for each block, each collective, what made its value a
partial sum, who needs it whole, the bytes that it carries, and how close the
executed values were. Payloads are rounded (--quantize) in a second run only.

A FILE.ir at stage model or unpacked is compiled like a model. One that is partitioned
already is proved against the graph that it came from, --against SOURCE: graph text at
stage unpacked, as partition took it, or a model's, on which the passes before partition
are run as --strategy says. Without DIR it is the embedded model.`,
		Example: `  krait prove --tp 4
  krait prove ~/models/falcon-mamba-7b --tp 8 --json -o certificate.json
  krait graph --tp 4 --stage partitioned DIR > partitioned.ir
  krait prove --against DIR partitioned.ir`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			if search.Time < 0 || search.Memory < 0 || execute.Memory < 0 {
				return errors.New("--search-time, --search-memory and --execute-memory: none may be negative")
			}
			path, err := from.take(c, args)
			if err != nil {
				return err
			}
			p, err := proofOf(c, path, against, s)
			if err != nil {
				return err
			}
			cert, err := computed(c, func() (*prove.Certificate, error) { return prove.Prove(p.source, p.partitioned, search) })
			if err != nil {
				return err
			}
			if !noExecute {
				var done func()
				execute.Progress, done = progress(c.ErrOrStderr(), "execute", "blocks", quiet)
				cert.Execution, err = validate.Run(c.Context(), p.model, p.partitioned, execute)
				if done(); err != nil {
					return fmt.Errorf("the rules accept it, but it does not compute what the model does: %w", err)
				}
			}
			if asJSON {
				return writeJSON(c, output, cert)
			}
			return write(c, output, []byte(cert.String()))
		},
	}
	shardingFlags(c, &s)
	from.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the certificate as JSON")
	c.Flags().StringVar(&against, "against", "", "the graph that FILE.ir was before it was partitioned, at stage model or unpacked")
	c.Flags().StringVarP(&output, "output", "o", "", "write to this file; - is standard output")
	c.Flags().BoolVar(&noExecute, "no-execute", false, "prove by rules alone")
	c.Flags().Uint64Var(&execute.Seed, "seed", 1, "of the random numbers that are executed")
	bytesFlag(c, &execute.Memory, "execute-memory", 4<<30, "what the tensors of a block may take; larger blocks are not executed, and that is said")
	c.Flags().DurationVar(&search.Time, "search-time", 30*time.Second, "how long to search for the minimum; past it, it is not established")
	bytesFlag(c, &search.Memory, "search-memory", 1<<30, "what the search may remember")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	return c
}

// proof is what is proved: a model, as partition takes it, and partitioned.
type proof struct{ model, source, partitioned *graph.Graph }

// proofOf compiles a model, or reads a partitioned graph and what it came from.
func proofOf(c *cobra.Command, path, against string, s krait.Sharding) (p proof, err error) {
	g, err := readGraph(c, path)
	switch {
	case err != nil:
		return p, err
	case g.Stage > graph.PartitionedStage:
		return p, fmt.Errorf("%s is at stage %s; what is proved is the graph before, at stage %s", path, g.Stage, graph.PartitionedStage)
	case g.Stage == graph.PartitionedStage && against == "":
		return p, fmt.Errorf("%s is partitioned already; --against names the graph that it came from", path)
	case g.Stage == graph.PartitionedStage:
		p.partitioned = g
		p.model, p.source, err = sourceOf(c, g, against, s)
		return p, err
	case against != "":
		return p, fmt.Errorf("%s is at stage %s; --against is for graphs that are partitioned", path, g.Stage)
	}
	if p.model, p.source, err = beforePartition(c, g, s); err == nil {
		p.partitioned, err = compileTo(c, graph.PartitionedStage, p.source, s)
	}
	return p, err
}

// beforePartition is a graph without what nobody needs, and as partition takes it.
func beforePartition(c *cobra.Command, g *graph.Graph, s krait.Sharding) (model, source *graph.Graph, err error) {
	if model, err = compileTo(c, g.Stage, g, krait.Sharding{Ranks: s.Ranks}); err == nil {
		source, err = compileTo(c, graph.UnpackedStage, g, s)
	}
	return model, source, err
}

// sourceOf reads the graph that a partitioned one came from.
func sourceOf(c *cobra.Command, partitioned *graph.Graph, against string, s krait.Sharding) (model, source *graph.Graph, err error) {
	source, err = readGraph(c, against)
	switch {
	case err != nil:
		return nil, nil, err
	case source.Stage >= graph.PartitionedStage:
		return nil, nil, fmt.Errorf("--against %s: it is at stage %s; give the graph from before it was partitioned, at stage model or unpacked", against, source.Stage)
	case s.Ranks > 0 && s.Ranks != partitioned.Ranks:
		return nil, nil, fmt.Errorf("--tp %d: the graph is partitioned for %d ranks", s.Ranks, partitioned.Ranks)
	case s.Payload != "" || source.Stage == graph.UnpackedStage && (s.Strategy+s.Place+s.States != "" || s.Dump != nil):
		return nil, nil, fmt.Errorf("--against %s: no pass is run that --strategy, --place, --quantize, --states or --dump could be for", against)
	case source.Stage == graph.ModelStage:
		return beforePartition(c, source, s)
	}
	return source, source, nil
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes/prove"
	"github.com/spf13/cobra"
)

func newProve() *cobra.Command {
	var s krait.Sharding
	var search prove.Options
	var execute validate.Options
	var noExecute, quiet, verbose bool
	var against string
	var out output
	from := newGraphArg()
	c := &cobra.Command{
		Use:   "prove [flags] [DIR | FILE.ir]",
		Short: "Prove that a sharded model is right, with the fewest collectives",
		Long: `Prove compiles a model for --tp ranks and checks the result in two ways.

By rules: it derives every layout again from the rules of the operations, traces every partial
sum to the collective that reduces it, and searches for the fewest collectives that the stated
class of placements allows. By execution: it runs each distinct block of the source and of the
sharded graph on all ranks, in float64, at real dimensions, on random weights, inputs and states,
and compares all values that both graphs have. Most weights of wide matrices are zeros, to save
time. The checks are independent of each other.

It prints a certificate: for each block, each collective, the source of its partial sum, its
consumers, its bytes, and how close the executed values are. Rounded payloads (--payload) run
separately. --verbose adds the definition of the class.

A FILE.ir at stage model or unpacked is compiled like a model. A partitioned one is proved
against its source, --against SOURCE: graph text at stage unpacked, the input of partition, or a
model, on which the passes before partition run as --strategy says. Without DIR it uses the
embedded model.`,
		Example: `  krait prove --tp 4
  krait prove ~/models/falcon-mamba-7b --tp 8 --json -o certificate.json
  krait graph --tp 4 --stage partitioned DIR > partitioned.ir
  krait prove --against DIR partitioned.ir`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			if search.Time < 0 || search.Memory < 0 || execute.Memory < 0 {
				return errors.New("--search-time, --search-memory and --execute-memory: none may be negative")
			}
			g, path, err := from.read(c, args)
			if err != nil {
				return err
			}
			p, err := proofOf(c, g, path, against, s)
			if err != nil {
				return err
			}
			cert, err := interruptible(c, "search", func() (*prove.Certificate, error) { return prove.Prove(p.source, p.partitioned, search) })
			if err != nil {
				return err
			}
			if !noExecute {
				var done func()
				execute.Progress, done = terminal.Progress(c.ErrOrStderr(), "execute", "blocks", quiet)
				cert.Execution, err = interruptible(c, "", func() (*validate.Report, error) {
					return validate.Run(c.Context(), p.model, p.partitioned, execute)
				})
				if done(); err != nil {
					return fmt.Errorf("the graph passes the rules but does not compute what the model does: %w", err)
				}
			}
			return out.print(c, cert, func(w io.Writer) {
				if verbose {
					io.WriteString(w, cert.String())
					return
				}
				name, _, _ := strings.Cut(cert.Class, ".")
				fmt.Fprintf(w, "%s\nclass: %s (--verbose defines it)\n", cert.Summary(), strings.ToLower(name))
			})
		},
	}
	shardingFlags(c, &s)
	from.add(c)
	out.add(c)
	c.Flags().StringVar(&against, "against", "", "source of a partitioned FILE.ir: graph text at stage model or unpacked, or DIR")
	c.Flags().BoolVar(&noExecute, "no-execute", false, "skip the proof by execution")
	c.Flags().Uint64Var(&execute.Seed, "seed", 1, "seed of the random values of the execution")
	bytesFlag(c, &execute.Memory, "execute-memory", 4<<30, "memory limit of a block's execution; larger blocks are skipped and listed")
	c.Flags().DurationVar(&search.Time, "search-time", 30*time.Second, "time limit of the search for the fewest collectives")
	bytesFlag(c, &search.Memory, "search-memory", 1<<30, "memory limit of the search")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	c.Flags().BoolVar(&verbose, "verbose", false, "also print what the class of placements is")
	return c
}

// proof is what is proved: a model, as partition takes it, and partitioned.
type proof struct{ model, source, partitioned *graph.Graph }

// proofOf compiles a model, or reads a partitioned graph and what it came from.
func proofOf(c *cobra.Command, g *graph.Graph, path, against string, s krait.Sharding) (p proof, err error) {
	switch {
	case g.Stage > graph.PartitionedStage:
		return p, fmt.Errorf("%s is at stage %s; prove needs it at stage %s", path, g.Stage, graph.PartitionedStage)
	case g.Stage == graph.PartitionedStage && against == "":
		return p, fmt.Errorf("%s is partitioned; give its source with --against", path)
	case g.Stage == graph.PartitionedStage:
		p.partitioned = g
		p.model, p.source, err = sourceOf(c, g, against, s)
		return p, err
	case against != "":
		return p, fmt.Errorf("%s is at stage %s; --against is for partitioned graphs; leave it out", path, g.Stage)
	}
	if p.model, p.source, err = beforePartition(c, g, s); err == nil {
		p.partitioned, err = compileTo(c, graph.PartitionedStage, p.source, s)
	}
	return p, err
}

// beforePartition returns a graph without dead code, and the input of partition.
func beforePartition(c *cobra.Command, g *graph.Graph, s krait.Sharding) (model, source *graph.Graph, err error) {
	if model, err = compileTo(c, g.Stage, g, krait.Sharding{Ranks: s.Ranks}); err == nil {
		source, err = compileTo(c, graph.UnpackedStage, g, s)
	}
	return model, source, err
}

// sourceOf reads the graph that a partitioned one came from.
func sourceOf(c *cobra.Command, partitioned *graph.Graph, against string, s krait.Sharding) (model, source *graph.Graph, err error) {
	if against, err = locate(c, against, hub.Config); err == nil {
		source, err = readGraph(c, against)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case source.Stage >= graph.PartitionedStage:
		return nil, nil, fmt.Errorf("--against %s: the graph is at stage %s; it must be at stage model or unpacked", against, source.Stage)
	case s.Ranks > 0 && s.Ranks != partitioned.Ranks:
		return nil, nil, fmt.Errorf("--tp %d: the graph is partitioned for %d ranks", s.Ranks, partitioned.Ranks)
	case s.Payload != "" || source.Stage == graph.UnpackedStage && (s.Strategy+s.Place+s.States != "" || s.Dump != nil):
		return nil, nil, fmt.Errorf("--against %s: no pass runs, so --strategy, --place, --payload, --states and --dump change nothing; leave them out", against)
	case source.Stage == graph.ModelStage:
		return beforePartition(c, source, s)
	}
	return source, source, nil
}

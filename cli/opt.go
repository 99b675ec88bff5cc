package cli

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newOpt() *cobra.Command {
	var s krait.Sharding
	from := modelArg{kind: "FILE.ir or DIR", needed: true}
	var list, output string
	c := &cobra.Command{
		Use:   "opt [flags] FILE.ir",
		Short: "Run passes on graph text",
		Long: `Opt reads a graph as text (- is standard input), runs passes, and prints the graph that comes out: the
passes of --passes, or those that compile the graph to what runs. A block can so be
studied without a model: krait graph --layer prints one to start from. Every pass is
checked after it ran.

` + passTable(),
		Example: `  krait graph > model.ir
  krait opt --passes unpack,partition --tp 4 model.ir
  krait graph --layer 0 | krait opt --tp 4 -
  krait opt --passes partition --tp 4 --strategy naive --dump steps model.ir`,
		Args: takes(0, 1, "one FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := from.take(c, args)
			if err != nil {
				return err
			}
			out, err := optimize(c, path, list, s)
			if err != nil {
				return err
			}
			return write(c, output, []byte(graph.Print(out)))
		},
	}
	shardingFlags(c, &s)
	c.Flags().StringVar(&list, "passes", "", "passes, in order, with commas (default: those that compile it)")
	c.Flags().StringVarP(&output, "output", "o", "", "write to this file; - is standard output")
	from.add(c)
	return c
}

// optimize runs the passes of a list on graph text, or without one those that are
// left of the pipeline.
func optimize(c *cobra.Command, path, list string, s krait.Sharding) (*graph.Graph, error) {
	g, err := readGraph(c, path)
	if err != nil {
		return nil, err
	}
	if s, err = computed(c, func() (krait.Sharding, error) { return s.Resolve(g) }); err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	out, err := computed(c, func() (*graph.Graph, error) {
		if list == "" {
			return passes.Compile(g, o)
		}
		return passes.Run(g, strings.Split(list, ","), o)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// passTable lists the passes with what they do.
func passTable() string {
	var b strings.Builder
	for _, p := range passes.Table {
		fmt.Fprintf(&b, "  %-10s %s\n", p.Name, p.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

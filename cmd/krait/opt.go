package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newOpt() *cobra.Command {
	var s krait.Sharding
	var list, output string
	c := &cobra.Command{
		Use:   "opt [flags] FILE.ir",
		Short: "Run passes on graph text",
		Long: `Opt reads a graph as text, runs the passes that are listed, and prints the graph
that comes out. A block can so be studied without a model: krait graph --layer
prints one to start from. Every pass is checked after it ran.

` + passTable(),
		Example: `  krait graph > model.ir
  krait opt --passes unpack,partition --tp 4 model.ir
  krait opt --passes partition --tp 4 --strategy naive --dump steps model.ir`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			g, err := graph.Parse(string(text))
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			o, err := s.Options()
			if err != nil {
				return err
			}
			names := o.Strategy.Passes
			if list != "" {
				names = strings.Split(list, ",")
			}
			out, err := passes.Run(g, names, o)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return write(c.OutOrStdout(), output, []byte(graph.Print(out)))
		},
	}
	shardingFlags(c, &s)
	c.Flags().StringVar(&list, "passes", "", "passes, in order, with commas (default: those of the strategy)")
	c.Flags().StringVarP(&output, "output", "o", "", "write to this file")
	return c
}

// passTable lists the passes with what they do.
func passTable() string {
	var b strings.Builder
	for _, p := range passes.Table {
		fmt.Fprintf(&b, "  %-10s %s\n", p.Name, p.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

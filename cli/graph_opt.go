package cli

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newGraphOpt() *cobra.Command {
	var s krait.Sharding
	from := modelArg{kind: "FILE.ir or DIR", needed: true, part: hub.Config}
	var list, file string
	c := &cobra.Command{
		Use:   "opt [flags] FILE.ir",
		Short: "Run passes on graph text",
		Long: `Opt reads a graph as text (- is standard input), runs the passes of --passes, or all that
remain of the pipeline, and prints the result. krait graph --layer prints a single layer to
start from. The graph is checked after every pass. The passes are:

` + passTable(),
		Example: `  krait graph > model.ir
  krait graph opt --passes unpack,partition --tp 4 model.ir
  krait graph --layer 0 | krait graph opt --tp 4 -
  krait graph opt --passes partition --tp 4 --strategy naive --dump steps model.ir`,
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
			return write(c, file, []byte(graph.Print(out)))
		},
	}
	shardingFlags(c, &s)
	c.Flags().StringVar(&list, "passes", "", "passes to run in order, separated by commas (default: all that remain)")
	fileFlag(c, &file)
	basic(c, "dump", "place")
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
	if s, err = resolve(c, s, g); err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	out, err := interruptible(c, "compile", func() (*graph.Graph, error) {
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
		doc := strings.TrimLeft(wrapText(p.Doc, 80, 14), " ")
		fmt.Fprintf(&b, "  %-11s %s", p.Name, doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

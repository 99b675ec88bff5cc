package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

func newGraph() *cobra.Command {
	var s krait.Sharding
	var format, output, stage string
	var layer int
	var unfolded, cost bool
	c := &cobra.Command{
		Use:   "graph [flags] [DIR | FILE.ir]",
		Short: "Print or draw a model's graph",
		Long: `Graph prints the graph of a model as text, or draws it. Of a folder only
config.json is needed. A FILE.ir is graph text, which is parsed and checked.
Without either it is the embedded model's. The output is the same on every run.

--stage compiles the graph up to a stage: model is the graph as its family defines it,
unpacked has packed tensors taken apart, partitioned has layouts and collectives, and
fused is what runs. On one rank nothing is laid over ranks in what runs; the stages
before show what would be. --layer prints a block as a graph of its own. All that is
printed is graph text again, which other commands take as FILE.ir.`,
		Example: `  krait graph --layer 0
  krait graph ~/models/mamba-130m-hf --format svg --output mamba.svg
  krait graph --layer 0 --cost
  krait graph --tp 4 --stage partitioned --format svg -o partitioned.svg`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := atStage(append(args, "")[0], stage, s)
			if err != nil {
				return err
			}
			block := ""
			if c.Flags().Changed("layer") {
				if block = "layers." + strconv.Itoa(layer); !slices.Contains(g.Blocks(), block) {
					return fmt.Errorf("--layer %d: the graph has %d blocks", layer, len(g.Blocks()))
				}
			}
			if cost {
				return write(c.OutOrStdout(), output, []byte(costTable(g, block)))
			}
			shown := g
			if block != "" && format == "text" { // drawn, a block has what is around it
				if shown, err = graph.Extract(g, block); err != nil {
					return err
				}
			}
			text, err := render(c, format, func() string { return graph.Print(shown) }, func() string {
				return visualize.Dot(g, visualize.Options{Block: block, Unfolded: unfolded})
			})
			if err != nil {
				return err
			}
			return write(c.OutOrStdout(), output, text)
		},
	}
	shardingFlags(c, &s)
	c.Flags().StringVar(&stage, "stage", "", "model, unpacked, partitioned or fused (default: as it is, with --tp partitioned)")
	c.Flags().StringVar(&format, "format", "text", "text, dot or svg (svg needs Graphviz)")
	c.Flags().StringVarP(&output, "output", "o", "", "write to this file")
	c.Flags().IntVar(&layer, "layer", 0, "only this block")
	c.Flags().BoolVar(&unfolded, "unfolded", false, "draw every block, also those that are the same")
	c.Flags().BoolVar(&cost, "cost", false, "print what each node costs, in t tokens, s sequences, o rows")
	return c
}

// readGraph builds a model's graph, or parses and checks graph text.
func readGraph(path string) (*graph.Graph, error) {
	if path == "" {
		m, err := krait.Embedded()
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return m.Graph(), nil
	}
	if filepath.Ext(path) != ".ir" {
		_, g, err := models.Describe(path)
		return g, err
	}
	text, err := files.Read(path, files.Graph)
	if err != nil {
		return nil, err
	}
	g, err := graph.Parse(string(text))
	if err == nil {
		err = graph.Check(g)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

// atStage gives a graph at the stage of that name; without a name as it is, or
// partitioned if ranks are given.
func atStage(path, name string, s krait.Sharding) (*graph.Graph, error) {
	stage, ok := graph.ParseStage(name)
	if name != "" && !ok {
		return nil, fmt.Errorf("--stage %q: it is model, unpacked, partitioned or fused", name)
	}
	g, err := readGraph(path)
	switch {
	case err != nil:
		return nil, err
	case !ok && s.Ranks > 0:
		stage = max(graph.PartitionedStage, g.Stage)
	case !ok && s != krait.Sharding{}:
		return nil, errors.New("no pass is run without --tp or --stage; with --strategy, --place, --quantize or --dump give one of them")
	case !ok:
		return g, nil
	}
	if g, err = compileTo(stage, g, s); err == nil && g.Stage != stage {
		return nil, fmt.Errorf("--stage %s: the strategy leaves out the passes that lead there; the graph stays at stage %s", stage, g.Stage)
	}
	return g, err
}

// costTable has a line per node that computes, and the sum.
func costTable(g *graph.Graph, block string) string {
	var b strings.Builder
	var sum graph.Cost
	line := func(name, op string, c graph.Cost) {
		fmt.Fprintf(&b, "%-28s %-16s %-22s %-34s %s\n", name, op, c.FLOPs, c.Read, c.Write)
	}
	fmt.Fprintf(&b, "%-28s %-16s %-22s %-34s %s\n", "value", "operation", "FLOPs", "bytes read", "bytes written")
	for _, n := range g.Nodes {
		if n.Op.Class != graph.Compute || block != "" && n.Block() != block {
			continue
		}
		line(n.Name(), n.Op.Name, n.Cost())
		sum = sum.Plus(n.Cost())
	}
	line("sum", "", sum)
	return b.String()
}

// render gives the text itself, the drawing as Graphviz text, or as a picture.
func render(c *cobra.Command, format string, text, dot func() string) ([]byte, error) {
	switch format {
	case "text":
		return []byte(text()), nil
	case "dot":
		return []byte(dot() + "\n"), nil
	case "svg":
		return svg(c, []byte(dot()))
	}
	return nil, fmt.Errorf("--format %q: it is text, dot or svg", format)
}

// svg runs Graphviz.
func svg(c *cobra.Command, text []byte) ([]byte, error) {
	path, err := exec.LookPath("dot")
	if err != nil {
		return nil, errors.New("svg is drawn by the program dot of Graphviz, which is not installed; install graphviz, or use --format dot")
	}
	run := exec.CommandContext(c.Context(), path, "-Tsvg")
	run.Stdin = bytes.NewReader(text)
	var out, complaints bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaints
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("dot: %w: %s", err, complaints.String())
	}
	return out.Bytes(), nil
}

// write writes to standard output, or to a file that is whole or not there.
func write(stdout io.Writer, path string, text []byte) error {
	if path == "" {
		_, err := stdout.Write(text)
		return err
	}
	return files.Write(path, text)
}

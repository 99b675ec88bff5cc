package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

func newGraph() *cobra.Command {
	var s krait.Sharding
	var f format
	var stage string
	from := newGraphArg()
	var p picture
	var layer, rank int
	var cost, asJSON bool
	var diff []string
	c := &cobra.Command{
		Use:   "graph [flags] [DIR | FILE.ir]",
		Short: "Print or draw a model's graph",
		Long: `Graph prints the graph of a model as text, or draws it. Of a folder only config.json is
needed. A FILE.ir is graph text, which is parsed and checked; - is standard input. Without
DIR it uses the embedded model. The output is the same on every run.

--stage compiles the graph up to a stage: model is the graph as its family defines it,
unpacked has packed tensors split, partitioned has layouts and collectives, and fused is what
runs. On one rank fused has no layouts. --layer prints a layer as a graph of its own. All
output is graph text again, which other commands take as FILE.ir.

A drawing has a column for the model, which shows its layers as letters (M has an SSM state, A a
KV cache, H both, C the state of a convolution only, B none), and a column for each kind of
layer: equal layers are drawn once. --detail sets how much is drawn, --highlight frames what a
pattern matches, --rank draws the shapes of one rank, and --diff draws two strategies or rank
counts side by side, with what differs in dashed frames.

graph opt runs selected passes; graph schedule prints what a rank runs.`,
		Example: `  krait graph --layer 0
  krait graph ~/models/mamba-130m-hf --format svg --output mamba.svg
  krait graph ~/models/jamba --tp 8 --detail block -o jamba.svg
  krait graph --tp 8 --layer 0 --open
  krait graph --tp 8 --diff channel,context --detail block -o diff.svg
  krait graph --layer 0 --cost
  krait graph --tp 4 --stage partitioned --format svg -o partitioned.svg`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			drawn, err := p.options(&f)
			if err != nil {
				return err
			}
			if (cost || asJSON) && f.name != "text" || asJSON && !cost {
				return errors.New("--cost prints a table, as text or --json: leave out --format, and give --json with --cost only")
			}
			g, _, err := from.read(c, args)
			if err != nil {
				return err
			}
			var other *graph.Graph
			var names [2]string
			if diff != nil {
				if g, other, names, err = sides(diff, s, func(s krait.Sharding) (*graph.Graph, error) { return atStage(c, g, stage, s) }); err != nil {
					return err
				}
			} else if g, err = atStage(c, g, stage, s); err != nil {
				return err
			}
			block := ""
			if c.Flags().Changed("layer") {
				if block = "layers." + strconv.Itoa(layer); !slices.Contains(g.Blocks(), block) {
					return fmt.Errorf("--layer is %d; the graph has %d blocks, from 0 on", layer, len(g.Blocks()))
				}
			}
			if cost {
				table := costsOf(g, block)
				if asJSON {
					return writeJSON(c, f.output, table)
				}
				return write(c, f.output, []byte(table.String()))
			}
			shown := g
			if block != "" && f.name == "text" { // drawn, a block has what is around it
				if shown, err = graph.Extract(g, block); err != nil {
					return err
				}
			}
			drawn.Block = block
			if drawn.Local = c.Flags().Changed("rank"); drawn.Local {
				if drawn.Rank = rank; rank < 0 || rank >= g.Ranks {
					return fmt.Errorf("--rank is %d; it must be from 0 to %d, the ranks of the graph", rank, g.Ranks-1)
				}
				if f.name == "text" {
					return errors.New("--rank draws types as the rank holds them: add -o FILE.svg; krait graph schedule prints what a rank runs")
				}
			}
			if other != nil {
				if f.name == "text" || cost {
					return errors.New("--diff draws two graphs side by side: add -o FILE.svg, and leave out --cost")
				}
				a, b := visualize.Side{Name: names[0], Graph: g}, visualize.Side{Name: names[1], Graph: other}
				return f.write(c, nil, func(w io.Writer) error { return visualize.Compare(w, a, b, drawn) })
			}
			return f.write(c, func() string { return graph.Print(shown) }, func(w io.Writer) error { return visualize.Dot(w, g, drawn) })
		},
	}
	shardingFlags(c, &s)
	c.Flags().StringVar(&stage, "stage", "", "stage to print: model, unpacked, partitioned or fused (default: as read)")
	detail(c, "stage", "with --tp the default is partitioned.")
	from.add(c)
	f.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the costs of --cost as JSON")
	c.Flags().IntVar(&layer, "layer", 0, "print or draw only this layer")
	p.add(c)
	c.Flags().IntVar(&rank, "rank", 0, "draw types as this rank holds them (default: of all ranks)")
	diffFlag(c, &diff)
	c.Flags().BoolVar(&cost, "cost", false, "print the cost of each node for t tokens, s sequences and o output rows")
	c.AddCommand(newGraphOpt(), newGraphSchedule())
	return c
}

// readGraph builds a model's graph, or parses and checks graph text.
func readGraph(c *cobra.Command, path string) (*graph.Graph, error) {
	return interruptible(c, "read", func() (*graph.Graph, error) { return makeGraph(c, path) })
}

func makeGraph(c *cobra.Command, path string) (*graph.Graph, error) {
	if path == "" {
		m, err := krait.Embedded(krait.Options{})
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return m.Graph(), nil
	}
	if filepath.Ext(path) != ".ir" && path != "-" {
		_, g, err := checkpoint.Describe(path)
		return g, err
	}
	text, err := readBounded(c, path, files.Graph)
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
func atStage(c *cobra.Command, g *graph.Graph, name string, s krait.Sharding) (*graph.Graph, error) {
	stage, ok := graph.ParseStage(name)
	if name != "" && !ok {
		return nil, fmt.Errorf("--stage is %q; it must be model, unpacked, partitioned or fused", name)
	}
	switch {
	case !ok && s.Ranks > 0:
		stage = max(graph.PartitionedStage, g.Stage)
	case !ok && !s.IsZero():
		return nil, errors.New("--strategy, --place, --payload, --states and --dump need --tp or --stage: without them no pass runs")
	case !ok:
		return g, nil
	}
	g, err := compileTo(c, stage, g, s)
	if err == nil && g.Stage != stage {
		return nil, fmt.Errorf("--stage %s: the strategy leaves out the passes to it; the graph stays at stage %s", stage, g.Stage)
	}
	return g, err
}

// costs lists the costs of the nodes of a graph, and their sum.
type costs struct {
	Nodes []nodeCost `json:"nodes"`
	Sum   nodeCost   `json:"sum"`
}

// nodeCost is polynomials in t tokens, s sequences, o rows, c tokens in caches.
type nodeCost struct {
	Value string `json:"value,omitempty"`
	Op    string `json:"operation,omitempty"`
	FLOPs string `json:"flops"`
	Read  string `json:"bytes_read"`
	Write string `json:"bytes_written"`
}

// costsOf returns the costs of compute nodes, of a block or of all.
func costsOf(g *graph.Graph, block string) costs {
	line := func(name, op string, c graph.Cost) nodeCost {
		return nodeCost{name, op, c.FLOPs.String(), c.Read.String(), c.Write.String()}
	}
	out := costs{Nodes: []nodeCost{}}
	var sum graph.Cost
	for _, n := range g.Nodes {
		if n.Op.Class != graph.Compute || block != "" && n.Block() != block {
			continue
		}
		out.Nodes = append(out.Nodes, line(n.Name(), n.Op.Name, n.Cost()))
		sum = sum.Plus(n.Cost())
	}
	out.Sum = line("", "", sum)
	return out
}

// String is a table.
func (c costs) String() string {
	var b strings.Builder
	line := func(name string, n nodeCost) {
		fmt.Fprintf(&b, "%-28s %-16s %-22s %-34s %s\n", name, n.Op, n.FLOPs, n.Read, n.Write)
	}
	line("value", nodeCost{Op: "operation", FLOPs: "FLOPs", Read: "bytes read", Write: "bytes written"})
	for _, n := range c.Nodes {
		line(n.Value, n)
	}
	line("sum", c.Sum)
	return b.String()
}

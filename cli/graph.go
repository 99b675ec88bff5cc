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
	from := modelArg{kind: "DIR or FILE.ir"}
	var p picture
	var layer int
	var cost, asJSON bool
	c := &cobra.Command{
		Use:   "graph [flags] [DIR | FILE.ir]",
		Short: "Print or draw a model's graph",
		Long: `Graph prints the graph of a model as text, or draws it. Of a folder only
config.json is needed. A FILE.ir is graph text, which is parsed and checked; so is
standard input, for -. Without either it is the embedded model's. The output is the
same on every run.

--stage compiles the graph up to a stage: model is the graph as its family defines it,
unpacked has packed tensors taken apart, partitioned has layouts and collectives, and
fused is what runs. On one rank nothing is laid over ranks in what runs; the stages
before show what would be. --layer prints a block as a graph of its own. All that is
printed is graph text again, which other commands take as FILE.ir.

A drawing has a column for the model, in which the layers are a strip of letters (M keeps a
recurrent state, A a KV cache, H both, B neither), and one for each kind of layer: layers
that do the same are drawn once. --detail says how much is drawn.`,
		Example: `  krait graph --layer 0
  krait graph ~/models/mamba-130m-hf --format svg --output mamba.svg
  krait graph ~/models/jamba --tp 8 --detail block -o jamba.svg
  krait graph --layer 0 --cost
  krait graph --tp 4 --stage partitioned --format svg -o partitioned.svg`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.settle(); err != nil {
				return err
			}
			drawn, err := p.options(f)
			if err != nil {
				return err
			}
			if (cost || asJSON) && f.name != "text" || asJSON && !cost {
				return errors.New("--cost is a table, as text or --json: it goes with no other --format, and --json with nothing else")
			}
			path, err := from.take(c, args)
			if err != nil {
				return err
			}
			g, err := atStage(c, path, stage, s)
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
			return f.write(c, func() string { return graph.Print(shown) }, func(w io.Writer) error { return visualize.Dot(w, g, drawn) })
		},
	}
	shardingFlags(c, &s)
	c.Flags().StringVar(&stage, "stage", "", "model, unpacked, partitioned or fused (default: as it is, with --tp partitioned)")
	from.add(c)
	f.add(c)
	jsonFlag(c, &asJSON)
	c.Flags().IntVar(&layer, "layer", 0, "only this block")
	p.add(c)
	c.Flags().BoolVar(&cost, "cost", false, "print what each node costs, in t tokens, s sequences, o rows")
	return c
}

// readGraph builds a model's graph, or parses and checks graph text.
func readGraph(c *cobra.Command, path string) (*graph.Graph, error) {
	return computed(c, func() (*graph.Graph, error) { return makeGraph(c, path) })
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
func atStage(c *cobra.Command, path, name string, s krait.Sharding) (*graph.Graph, error) {
	stage, ok := graph.ParseStage(name)
	if name != "" && !ok {
		return nil, fmt.Errorf("--stage %q: it is model, unpacked, partitioned or fused", name)
	}
	g, err := readGraph(c, path)
	switch {
	case err != nil:
		return nil, err
	case !ok && s.Ranks > 0:
		stage = max(graph.PartitionedStage, g.Stage)
	case !ok && !s.IsZero():
		return nil, errors.New("no pass is run without --tp or --stage; with --strategy, --place, --quantize, --states or --dump give one of them")
	case !ok:
		return g, nil
	}
	if g, err = compileTo(c, stage, g, s); err == nil && g.Stage != stage {
		return nil, fmt.Errorf("--stage %s: the strategy leaves out the passes that lead there; the graph stays at stage %s", stage, g.Stage)
	}
	return g, err
}

// costs are what the nodes of a graph cost, and their sum.
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

// costsOf looks at every node that computes, of a block or of all.
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

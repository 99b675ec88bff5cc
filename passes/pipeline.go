// Package passes turns a model's graph into one that many ranks run. Each pass
// takes a graph and returns another; the pipeline is a table, and after every
// pass the graph is checked at its stage.
package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Options are what passes are told.
type Options struct {
	Ranks    int       // 0: 1
	Strategy *Strategy // nil: channel
	Quantize Quantize  // which payloads are rounded; empty: none
	// Dump gets the graph after each pass that changed it, which the steps count.
	Dump func(step int, pass string, g *graph.Graph) error
}

// Pass is a row of the table.
type Pass struct {
	Name string
	Doc  string // one line: input -> output
	From []graph.Stage
	To   graph.Stage
	Run  func(*graph.Graph, *Options) (*graph.Graph, error)
}

// Table lists the passes in their order.
var Table = []*Pass{
	{Name: "unpack", Doc: "packed tensors of units that are used apart -> a tensor per field",
		From: []graph.Stage{graph.ModelStage}, To: graph.UnpackedStage, Run: unpack},
	{Name: "decompose", Doc: "a norm over an axis of units, or over groups of them -> a sum of squares and a scale",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, To: graph.UnpackedStage, Run: decompose},
	{Name: "norm-hoist", Doc: "a norm's factor per token before a matmul -> after it, so that its sum can travel with the matmul's",
		From: []graph.Stage{graph.UnpackedStage}, To: graph.UnpackedStage, Run: normHoist},
	{Name: "partition", Doc: "a graph for one rank -> layouts for all values, and the fewest collectives between them",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, To: graph.PartitionedStage, Run: partition},
	{Name: "merge", Doc: "all_reduces of a block that do not wait for each other -> one launch",
		From: []graph.Stage{graph.PartitionedStage}, To: graph.PartitionedStage, Run: merge},
	{Name: "quantize", Doc: "all_reduce of f32 -> quantize, all_reduce of what travels, dequantize",
		From: []graph.Stage{graph.PartitionedStage}, To: graph.PartitionedStage, Run: quantize},
	{Name: "fuse", Doc: "neighbouring operations whose values in between nobody else takes -> one operation",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage, graph.PartitionedStage}, To: graph.FusedStage, Run: fuse},
}

// order holds which pass must come before which, and why.
var order = []struct{ first, then, why string }{
	{"unpack", "decompose", "a norm may be of a packed tensor's field"},
	{"unpack", "partition", "partition places tensors, and a packed one has no single placement"},
	{"decompose", "partition", "partition splits the sum of squares, and a norm cannot be split"},
	{"decompose", "norm-hoist", "only a norm in two parts has a factor to move"},
	{"norm-hoist", "partition", "partition places the sum where it is needed"},
	{"partition", "merge", "there are no collectives before"},
	{"merge", "quantize", "quantized operands would keep launches apart"},
	{"partition", "quantize", "there are no collectives before"},
	{"decompose", "fuse", "a norm that comes apart has no sum for a neighbour"},
	{"partition", "fuse", "strategies give layouts to the operations apart, and proofs speak of them"},
	{"merge", "fuse", "merge moves what waits for a launch, and so changes who is whose neighbour"},
	{"quantize", "fuse", "fused graphs are ready to be lowered, and quantize puts nodes between others"},
}

// Default is the list of passes that compile a model. What runs is fused after
// them, by [Fuse]: what is proved and drawn is not.
var Default = []string{"unpack", "decompose", "partition", "merge", "quantize"}

// Lookup finds passes by name and refuses an order that breaks a constraint.
func Lookup(names []string) ([]*Pass, error) {
	var list []*Pass
	for _, name := range names {
		i := slices.IndexFunc(Table, func(p *Pass) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no pass %q; there are %s", name, strings.Join(passNames(), ", "))
		}
		if Table[i].Doc == "" || !strings.Contains(Table[i].Doc, "->") {
			return nil, fmt.Errorf("pass %s does not say what it does (input -> output)", name)
		}
		list = append(list, Table[i])
	}
	for _, o := range order {
		first, then := slices.Index(names, o.first), slices.Index(names, o.then)
		if first >= 0 && then >= 0 && then < first {
			return nil, fmt.Errorf("pass %s must come before %s: %s", o.first, o.then, o.why)
		}
	}
	return list, nil
}

func passNames() []string {
	var names []string
	for _, p := range Table {
		names = append(names, p.Name)
	}
	return names
}

// Compile runs the passes of the strategy.
func Compile(g *graph.Graph, o Options) (*graph.Graph, error) {
	if o.Strategy == nil {
		o.Strategy = Strategies[0]
	}
	return Run(g, o.Strategy.Passes, o)
}

// Run runs passes by name on a graph, which is not changed.
func Run(g *graph.Graph, names []string, o Options) (*graph.Graph, error) {
	list, err := Lookup(names)
	if err != nil {
		return nil, err
	}
	if o.Ranks == 0 {
		o.Ranks = 1
	}
	if o.Ranks < 1 || o.Ranks > MaxRanks {
		return nil, fmt.Errorf("%d ranks; 1 to %d are possible", o.Ranks, MaxRanks)
	}
	if o.Strategy == nil {
		o.Strategy = Strategies[0]
	}
	if err := graph.Check(g); err != nil {
		return nil, err
	}
	for i, p := range list {
		next, err := p.run(g, &o)
		if err != nil {
			return nil, fmt.Errorf("pass %s: %w", p.Name, err)
		}
		if o.Dump != nil && !graph.Equal(g, next) {
			if err := o.Dump(i+1, p.Name, next); err != nil {
				return nil, err
			}
		}
		g = next
	}
	return g, nil
}

// MaxRanks is the largest number of ranks that a graph is partitioned for.
const MaxRanks = 16

// run runs one pass and checks what it made; a panic is named as its own.
func (p *Pass) run(g *graph.Graph, o *Options) (out *graph.Graph, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("BUG: %v", r)
		}
	}()
	if !slices.Contains(p.From, g.Stage) {
		return nil, fmt.Errorf("the graph is at stage %s; this pass takes %v", g.Stage, p.From)
	}
	if out, err = p.Run(g, o); err != nil {
		return nil, err
	}
	if out.Stage != p.To {
		return nil, fmt.Errorf("BUG: left the graph at stage %s instead of %s", out.Stage, p.To)
	}
	if err := graph.Check(out); err != nil {
		return nil, fmt.Errorf("BUG: the graph does not check afterwards: %w", err)
	}
	return out, nil
}

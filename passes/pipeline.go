// Package passes turns a model's graph into one that many ranks run. Each pass takes a graph and
// returns another; the pipeline is a table, and after every pass the graph is checked at its stage.
//
//	two, err := passes.Compile(g, passes.Options{Ranks: 2, Stop: graph.PartitionedStage})
//
// A strategy that does not apply, and a graph that cannot be split so, are errors that name the
// value and say what to do; a pass that breaks a graph is named.
package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Options are what passes are told.
type Options struct {
	Ranks int // 0: those that the graph is for, which for a model's is one
	// Mesh arranges the ranks along TP and CP where values are to lie along both; zero: along one axis.
	Mesh     graph.Mesh
	Strategy *Strategy // nil: channel
	Quantize Quantize  // which payloads are rounded; empty: none
	States   States    // in which formats states are kept; empty: as they are, which for a model's is f32
	Scan     Scan      // Unfused: with the pass unfuse-scan, whatever the strategy says
	Fuse     Fuse      // which neighbours become one operation
	Pipeline Pipeline  // the stages and replicas that a compiled graph runs on
	Overlap  bool      // with the pass overlap, whatever the strategy says
	Target   Target    // the device, for the pass formats; nil: activations are as their types say
	// Stop is the last stage that [Compile] takes the graph to; NoStage: fused, which is what runs.
	Stop graph.Stage
	// Dump gets the graph after each pass that changed it. The step is the pass's
	// place among those of the strategy, from 1.
	Dump func(step int, pass string, g *graph.Graph) error
}

// Pass is a row of the table.
type Pass struct {
	Name string
	Doc  string // one line: input -> output
	From []graph.Stage
	To   graph.Stage // NoStage: the stage stays
	Run  func(*graph.Graph, *Options) (*graph.Graph, error)

	Layouts  bool // about how values lie over ranks: nothing to do for one rank, or once they do
	Optional bool // runs by strategies that name it
}

// Table lists the passes in their order.
var Table = []*Pass{
	{Name: "dce", Doc: "results that no output or state needs -> removed, with the parameters that only they use",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, Run: dce},
	{Name: "statetype", Doc: "states of the kinds in --states -> the same states in other number formats",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, Run: stateType},
	{Name: "unpack", Doc: "packed tensors whose fields are used separately -> one tensor per field",
		From: []graph.Stage{graph.ModelStage}, To: graph.UnpackedStage, Run: unpack, Layouts: true},
	{Name: "decompose", Doc: "a norm over an axis of units, or over groups of them -> a sum of squares and a scale",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, To: graph.UnpackedStage, Run: decompose, Layouts: true},
	{Name: "norm-hoist", Doc: "a norm's per-token factor before a matmul -> after it, so that one all_reduce can carry both sums",
		From: []graph.Stage{graph.UnpackedStage}, To: graph.UnpackedStage, Run: normHoist, Layouts: true, Optional: true},
	{Name: "context", Doc: "a recurrence over tokens -> over the parts of sequences that ranks have, with what passes from part to part",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, Run: inContext, Layouts: true, Optional: true},
	{Name: "partition", Doc: "a graph for one rank -> layouts for all values and the fewest collectives between them",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage}, To: graph.PartitionedStage, Run: partitionBy, Layouts: true},
	{Name: "merge", Doc: "all_reduces of a block that do not depend on each other -> one launch",
		From: []graph.Stage{graph.PartitionedStage}, To: graph.PartitionedStage, Run: merge, Layouts: true},
	{Name: "quantize", Doc: "an all_reduce in f32 -> quantize, all_reduce of the payload, dequantize",
		From: []graph.Stage{graph.PartitionedStage}, To: graph.PartitionedStage, Run: quantize, Layouts: true},
	{Name: "fuse", Doc: "neighbouring operations whose intermediate values have no other user -> one operation",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage, graph.PartitionedStage}, To: graph.FusedStage, Run: fuse},
	{Name: "unfuse-scan", Doc: "a selective scan -> its steps, with intermediates of [tokens, channels, states] in memory",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage, graph.PartitionedStage, graph.FusedStage}, To: graph.FusedStage, Run: unfuseScan, Optional: true},
	{Name: "overlap", Doc: "nodes of a block -> reordered, so that nodes independent of an active collective run first",
		From: []graph.Stage{graph.ModelStage, graph.UnpackedStage, graph.PartitionedStage, graph.FusedStage}, To: graph.FusedStage, Run: overlap, Optional: true},
	{Name: "peers", Doc: "an all_reduce and the add_rmsnorm that alone uses its sum -> marked as one launch over peer memory",
		From: []graph.Stage{graph.FusedStage}, To: graph.FusedStage, Run: peers, Optional: true},
	{Name: "formats", Doc: "activations that all their kernels take in bf16, or in pieces of bf16 -> kept so in batches of many rows",
		From: []graph.Stage{graph.FusedStage}, To: graph.FusedStage, Run: formats, Optional: true},
}

// order holds which pass must come before which, and why.
var order = []struct{ first, then, why string }{
	{"dce", "unpack", "a dead use would keep a packed tensor together"},
	{"dce", "norm-hoist", "a dead use would keep a norm where it is"},
	{"dce", "partition", "a dead value would get a layout, and could cost a collective"},
	{"dce", "fuse", "a dead use would keep neighbours apart"},
	{"dce", "statetype", "a kind without states is an error, and a dead state is none"},
	{"statetype", "partition", "partition copies types, and counts bytes"},
	{"unpack", "decompose", "a norm may be of a packed tensor's field"},
	{"unpack", "partition", "partition places tensors, and a packed one has no single placement"},
	{"decompose", "partition", "partition splits the sum of squares, and a norm cannot be split"},
	{"decompose", "norm-hoist", "only a norm in two parts has a factor to move"},
	{"norm-hoist", "partition", "partition places the sum where it is needed"},
	{"dce", "context", "a dead recurrence would pass states"},
	{"statetype", "context", "what passes between parts has f32, whatever the states have"},
	{"context", "partition", "partition splits what is over parts"},
	{"partition", "merge", "there are no collectives before"},
	{"merge", "quantize", "quantized operands would keep launches apart"},
	{"partition", "quantize", "there are no collectives before"},
	{"decompose", "fuse", "a norm that comes apart has no sum for a neighbour"},
	{"partition", "fuse", "strategies give layouts to the operations apart, and proofs speak of them"},
	{"merge", "fuse", "merge moves what waits for a launch, and so changes who is whose neighbour"},
	{"partition", "unfuse-scan", "strategies give a layout to the scan, and proofs speak of it"},
	{"partition", "overlap", "there are no collectives before"},
	{"merge", "overlap", "merge moves what waits for a launch"},
	{"quantize", "overlap", "quantize puts nodes between others"},
	{"fuse", "overlap", "a fused operation stands in the place of its last"},
	{"unfuse-scan", "overlap", "steps would not be moved one by one"},
	{"fuse", "unfuse-scan", "fuse takes no graph that is fused already"},
	{"fuse", "peers", "fuse makes the add_rmsnorm"},
	{"overlap", "peers", "overlap moves nodes between the sum and its norm"},
	{"quantize", "peers", "a sum that travels rounded is not what the norm takes"},
	{"fuse", "formats", "a value between neighbours that become one operation has no format"},
	{"unfuse-scan", "formats", "the steps of a scan are other kernels, which take f32"},
	{"quantize", "formats", "what travels has f32 before it is rounded"},
	{"overlap", "formats", "formats is decided for the nodes as they run"},
	{"peers", "formats", "formats is decided for the nodes as they run"},
	{"quantize", "fuse", "fused graphs are ready to be lowered, and quantize puts nodes between others"},
}

// Default lists the passes that compile a model where a strategy says nothing
// else: all that are not optional.
var Default = passNames(func(p *Pass) bool { return !p.Optional })

// Lookup finds passes by name and refuses an order that breaks a constraint.
func Lookup(names []string) ([]*Pass, error) {
	var list []*Pass
	for _, name := range names {
		i := slices.IndexFunc(Table, func(p *Pass) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown pass %q; it must be one of %s", name, strings.Join(passNames(nil), ", "))
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

// passNames lists those passes that fit, nil for all.
func passNames(fits func(*Pass) bool) []string {
	var names []string
	for _, p := range Table {
		if fits == nil || fits(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Compile runs the passes of the strategy, up to the stage to stop at: the only pipeline. A graph
// at a later stage than a model's continues from there, and has what the passes before would have
// done; that it has layouts already and options say otherwise is an error. On one rank nothing is
// laid over ranks, unless the options say to stop at a stage before the last, to see it.
func Compile(g *graph.Graph, o Options) (*graph.Graph, error) {
	if err := o.undecided(g); err != nil {
		return nil, err
	}
	if o.Stop != graph.NoStage && g.Stage > o.Stop {
		return nil, fmt.Errorf("the graph is at stage %s already, and cannot go back to %s", g.Stage, o.Stop)
	}
	if o.Strategy == nil {
		o.Strategy = Strategies[0]
	}
	list, err := o.lookup(g, o.passes())
	if err != nil {
		return nil, err
	}
	for i, p := range list {
		if o.leavesOut(p, g) {
			list[i] = nil
		}
	}
	return run(g, list, o)
}

// passes are those of the strategy, and those that options ask for.
func (o *Options) passes() []string {
	return passNames(func(p *Pass) bool {
		return slices.Contains(o.Strategy.Passes, p.Name) || p.Name == "unfuse-scan" && o.Scan == Unfused || p.Name == "overlap" && o.Overlap ||
			p.Name == contextStrategy && o.across() ||
			p.Name == "peers" && o.Fuse == ForLaunches && slices.Contains(o.Strategy.Passes, "fuse") ||
			p.Name == "formats" && o.Target != nil && slices.Contains(o.Strategy.Passes, "fuse")
	})
}

// lookup finds passes, and refuses options that none of them takes.
func (o *Options) lookup(g *graph.Graph, names []string) ([]*Pass, error) {
	unused := func(what, pass string) error {
		return fmt.Errorf("%s: no effect without the pass %s; the passes are %s", what, pass, strings.Join(names, ", "))
	}
	switch partitions := slices.Contains(names, "partition"); {
	case o.Ranks > 1 && g.Ranks == 1 && !partitions:
		return nil, unused(fmt.Sprint(o.Ranks, " ranks"), "partition")
	case o.Strategy != nil && !partitions:
		return nil, unused("strategy "+o.Strategy.Name, "partition")
	case o.Quantize.text != "" && !slices.Contains(names, "quantize"):
		return nil, unused("payload "+o.Quantize.text, "quantize")
	case o.States.text != "" && !slices.Contains(names, "statetype"):
		return nil, unused("states "+o.States.text, "statetype")
	}
	return Lookup(names)
}

// undecided refuses options about what the graph has decided already.
func (o *Options) undecided(g *graph.Graph) error {
	what := ""
	switch {
	case g.Stage < graph.PartitionedStage:
		return nil
	case o.Strategy != nil:
		what = "strategy " + o.Strategy.Name
	case o.Quantize.text != "":
		what = "payload " + o.Quantize.text
	case o.States.text != "":
		what = "states " + o.States.text
	case o.Fuse != Exactly && g.Stage == graph.FusedStage:
		return fmt.Errorf("fuse launches has no effect on a graph that is fused already; leave it out, or give the graph from before")
	default:
		return nil
	}
	return fmt.Errorf("%s has no effect on a graph that is %s already; leave it out, or give the graph from before it was partitioned", what, g.Stage)
}

// leavesOut reports whether a pass of the strategy has nothing to do for a graph:
// it comes after the stage to stop at, or is behind, or is about layouts that one
// rank does not have and a partitioned graph has.
func (o *Options) leavesOut(p *Pass, g *graph.Graph) bool {
	runs := o.Stop == graph.NoStage || o.Stop == graph.FusedStage
	return !runs && p.To > o.Stop || g.Stage > slices.Max(p.From) ||
		p.Layouts && (g.Stage >= graph.PartitionedStage || runs && max(o.Ranks, g.Ranks) == 1)
}

// Run runs passes by name on a graph, which is not changed.
func Run(g *graph.Graph, names []string, o Options) (*graph.Graph, error) {
	list, err := o.lookup(g, names)
	if err != nil {
		return nil, err
	}
	return run(g, list, o)
}

// run runs those passes of a list that are not nil.
func run(g *graph.Graph, list []*Pass, o Options) (*graph.Graph, error) {
	if o.Ranks != 0 && o.Ranks != g.Ranks && (g.Ranks > 1 || g.Stage >= graph.PartitionedStage) {
		return nil, fmt.Errorf("the graph has stage=%s ranks=%d and cannot be sharded over %d ranks", g.Stage, g.Ranks, o.Ranks)
	}
	if o.Ranks == 0 {
		o.Ranks = g.Ranks
	}
	if o.across() && o.Ranks != o.Mesh.Ranks() {
		return nil, fmt.Errorf("%d ranks on the mesh %s, which has %d", o.Ranks, o.Mesh, o.Mesh.Ranks())
	}
	if g.Stage < graph.PartitionedStage && (o.Ranks < 1 || o.Ranks > MaxRanks) {
		return nil, fmt.Errorf("%d ranks; the number must be from 1 to %d", o.Ranks, MaxRanks)
	}
	if o.Quantize.text != "" && o.Ranks == 1 {
		return nil, fmt.Errorf("payload %s: one rank has no all_reduces; give more ranks", o.Quantize.text)
	}
	if o.Strategy == nil {
		o.Strategy = Strategies[0]
	}
	var check graph.Checker
	if err := check.Check(g); err != nil {
		return nil, err
	}
	for i, p := range list {
		if p == nil {
			continue
		}
		next, err := p.run(g, &o, &check)
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
const MaxRanks = graph.MaxMesh

// run runs one pass and checks what it made; a panic is named as its own.
func (p *Pass) run(g *graph.Graph, o *Options, check *graph.Checker) (out *graph.Graph, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("BUG: %v", r)
		}
	}()
	if !slices.Contains(p.From, g.Stage) {
		return nil, fmt.Errorf("the graph is at stage %s; the pass takes %v", g.Stage, p.From)
	}
	if out, err = p.Run(g, o); err != nil {
		return nil, err
	}
	if want := max(p.To, g.Stage); out.Stage != want {
		return nil, fmt.Errorf("BUG: left the graph at stage %s instead of %s", out.Stage, want)
	}
	if err := check.Check(out); err != nil {
		return nil, fmt.Errorf("BUG: the graph does not check afterwards: %w", err)
	}
	return out, nil
}

// Package validate holds a partitioned graph against its source by running both:
// block by block, at the real dimensions, on random weights, inputs and states,
// in float64, by the reference kernels, on all ranks. Most weights of wide matrices are zeros, in a
// pattern that lets each row and column count on any rank.
//
// It is a second pair of eyes. It takes the types that the graphs have written, cuts tensors by
// their extents, and looks at numbers; it asks no rule whether a layout follows from another, and
// no pass what it did. A graph is right in the eyes of this package when every value that both
// graphs have is the same on every rank, for the numbers that were drawn.
package validate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// tolerance is the largest difference that is not a fault, over the largest magnitude of the value:
// far above what another order of float64 sums makes, far below what a wrong sum does.
const tolerance = 1e-9

// Options say how to run.
type Options struct {
	Seed     uint64              // of the random numbers; 0: 1
	Memory   int64               // bytes that the tensors of one block may take at a time; 0: 4 GiB
	Progress func(done, all int) // distinct blocks; may be nil

	run int // length of the runs of weights that are not zero; 0: defaultRun
}

// Run runs each distinct block of a source for one rank, and of what a compiler
// made of it for some, and compares every value that both have.
//
// An error names the first value that is not what it is in the source, or what
// else is wrong with the partitioned graph; the report comes with it. What cannot
// be executed is a part that says why, and no error.
func Run(ctx context.Context, source, partition *graph.Graph, o Options) (*Report, error) {
	r, err := newRunner(source, partition, o)
	if err != nil {
		return nil, err
	}
	var groups [][]*section
	at := map[string]int{}
	for _, s := range r.sections() {
		key := r.key(s)
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	r.reserve(groups)
	report := &Report{Seed: r.seed, Tokens: int(r.lot.Tokens), Sequences: sequences}
	first := r.structure()
	for i, equal := range groups {
		p := Part{}
		for _, s := range equal {
			if s.block != "" {
				p.Blocks = append(p.Blocks, s.block)
			}
		}
		err := r.part(ctx, equal[0], &p)
		report.Parts = append(report.Parts, p)
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%w (%s; seed %d)", err, p.where(), r.seed)
		}
		if p.sparse {
			report.Weights = 2 * r.run
		}
		if o.Progress != nil {
			o.Progress(i+1, len(groups))
		}
	}
	report.Multiplied = r.multiplied.Load()
	return report, first
}

// runner has what all sections share.
type runner struct {
	source, partition *graph.Graph
	seed              uint64
	memory            int64
	batch             *batch
	lot               *lot
	checkpoint        *randomWeights // of the current section
	leaves            map[*graph.Value]bool
	workers           chan struct{}                                   // how many ranks compute at a time
	run               int                                             // see pattern
	zeros             []byte                                          // memory for the sparse tensors of a section
	mu                sync.Mutex                                      // guards known
	known             map[*graph.Value]func() (kernels.Tensor, error) // contents of the current section
	multiplied        atomic.Int64                                    // numbers in products by weights
}

func newRunner(source, partition *graph.Graph, o Options) (*runner, error) {
	if source.Ranks != 1 {
		return nil, fmt.Errorf("the source is for %d ranks; it must be for one", source.Ranks)
	}
	for _, g := range []*graph.Graph{source, partition} {
		if err := readable(g); err != nil {
			return nil, err
		}
	}
	r := &runner{source: source, partition: partition, seed: max(o.Seed, 1), memory: o.Memory, run: o.run}
	if r.memory == 0 {
		r.memory = 4 << 30
	}
	if r.run == 0 {
		r.run = defaultRun
	}
	r.lot, r.leaves = lotOf(partition), leaving(source)
	r.batch = newBatch(r.seed, r.lot, source)
	r.batch.run = r.run
	r.workers = make(chan struct{}, runtime.GOMAXPROCS(0))
	return r, nil
}

// readable checks what makes no sense to run at all.
func readable(g *graph.Graph) error {
	switch {
	case g.Stage == graph.FusedStage:
		return errors.New("a fused graph has operations across blocks; validate it before it is fused")
	case g.Ranks < 1 || g.Ranks > graph.MaxRanks:
		return fmt.Errorf("%d ranks; the number must be from 1 to %d", g.Ranks, graph.MaxRanks)
	}
	for _, n := range g.Nodes {
		for _, v := range n.Results {
			if err := v.Type.Valid(); err != nil {
				return fmt.Errorf("%s: %s: %w", v.Name, v.Type, err)
			}
		}
	}
	return nil
}

// origin is what a value of either graph is in the source.
func (r *runner) origin(v *graph.Value) (origin, bool) {
	if s, ok := r.source.Value(v.Name); ok && s == v {
		return origin{value: v}, true
	}
	return originOf(r.source, v)
}

func (r *runner) sections() []*section {
	var out []*section
	blocks := blocksOf(r.source)
	for _, b := range blocksOf(r.partition) {
		if !slices.Contains(blocks, b) {
			blocks = append(blocks, b)
		}
	}
	for _, b := range blocks {
		out = append(out, &section{b, halfOf(r.source, b), halfOf(r.partition, b)})
	}
	return out
}

// structure checks what no section sees: the outputs.
func (r *runner) structure() error {
	if len(r.partition.Outputs) != len(r.source.Outputs) {
		return fmt.Errorf("the partitioned graph has %d outputs, the source %d", len(r.partition.Outputs), len(r.source.Outputs))
	}
	for _, want := range r.source.Outputs {
		i := slices.IndexFunc(r.partition.Outputs, func(o graph.Output) bool { return o.Name == want.Name })
		if i < 0 {
			return fmt.Errorf("output %s: the partitioned graph does not have it", want.Name)
		}
		v := r.partition.Outputs[i].Value
		o, ok := r.origin(v)
		if _, there := r.partition.Value(want.Value.Name); !ok && !there {
			continue // it has another name: the part that should have it is not compared, and says so
		}
		if !ok || o.field != "" || same(o.value) != same(want.Value) {
			return fmt.Errorf("output %s: is %s; in the source it is %s", want.Name, v.Name, want.Value.Name)
		}
		if v.Type.Lies() {
			return fmt.Errorf("output %s: %s is %s; it must be whole on every rank", want.Name, v.Name, v.Type)
		}
	}
	return nil
}

// reserve makes the memory that the sparse tensors of a section take, of the first of each group:
// that of the section with most, for all of them.
func (r *runner) reserve(groups [][]*section) {
	most := int64(0)
	for _, equal := range groups {
		if need, sparse, err := r.need(equal[0]); err == nil && need <= r.memory {
			most = max(most, sparse)
		}
	}
	r.zeros = make([]byte, most)
}

// part runs a section and fills in its report.
func (r *runner) part(ctx context.Context, s *section, p *Part) error {
	need, _, err := r.need(s)
	if err == nil && need > r.memory {
		err = skip(fmt.Sprintf("its tensors take %s, more than the %s allowed", size(need), size(r.memory)))
	}
	if err == nil {
		r.checkpoint = &randomWeights{seed: r.seed, run: r.run, zeros: r.zeros, made: map[string]func() graph.Array{}}
		err = r.execute(ctx, s, p)
		p.sparse = len(r.checkpoint.sparse) > 0
		r.checkpoint.clear()
		r.checkpoint, r.known = nil, nil
	}
	var why skip
	if errors.As(err, &why) {
		*p = Part{Blocks: p.Blocks, Skipped: string(why)}
		return nil
	}
	return err
}

func (r *runner) execute(ctx context.Context, s *section, p *Part) error {
	source, partition := r.machine(r.source), r.machine(r.partition)
	failed := make(chan error, 1)
	go func() { failed <- source.run(ctx, &s.source) }()
	stopped := partition.run(ctx, &s.partition)
	if err := <-failed; err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if why := source.infinite(&s.source); why != "" {
		return skip(why)
	}
	if err := r.compareAll(s.partition.results(), source, partition, p); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	if err := r.compareAll(s.partition.states(), source, partition, p); err != nil {
		return err
	}
	if err := r.complete(s, source, partition); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.partition.nodes, func(n *graph.Node) bool { return n.Op.Name == "quantize" }) {
		return nil
	}
	return r.rounded(ctx, s, source, partition.rounding(), p)
}

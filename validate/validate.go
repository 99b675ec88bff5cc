// Package validate holds a partitioned graph against its source by running both:
// block by block, at the real dimensions, on random weights, inputs and states,
// in float64, by the reference kernels, on all ranks.
//
// It is a second pair of eyes. It takes the types that the graphs have written,
// cuts tensors by their extents, and looks at numbers; it asks no rule whether a
// layout follows from another, and no pass what it did. A graph is right in the
// eyes of this package when every value that both graphs have is the same on
// every rank, for the numbers that were drawn.
package validate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// tolerance is the largest difference that is not a fault, over the largest
// magnitude of the value: far above what another order of float64 sums makes, far
// below what a wrong sum does.
const tolerance = 1e-9

// Options say how to run.
type Options struct {
	Seed     uint64              // of the random numbers; 0: 1
	Memory   int64               // bytes that the tensors of one block may take at a time; 0: 4 GiB
	Progress func(done, all int) // distinct blocks; nil: nobody wants to know
}

// Report is what was run, and how close the two graphs were.
type Report struct {
	Seed      uint64 `json:"seed"`
	Tokens    int    `json:"tokens"`
	Sequences int    `json:"sequences"`
	Parts     []Part `json:"parts"`
}

// Part is a block, or what is outside of blocks.
type Part struct {
	Blocks     []string `json:"blocks,omitempty"`   // that are equal, of which the first was run; none: outside of blocks
	Values     int      `json:"values"`             // how many values were compared
	Difference float64  `json:"difference"`         // the largest, over the largest magnitude of that value in the source
	Worst      string   `json:"worst,omitempty"`    // the value that has it
	Rounded    float64  `json:"rounded,omitempty"`  // with payloads rounded as the graph says, the same for values that leave the part; 0: nothing is lost
	Overflow   string   `json:"overflow,omitempty"` // the first value that left the range of its payload's format when rounded
	Skipped    string   `json:"skipped,omitempty"`  // why the part was not run; empty: it was
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
	report := &Report{Seed: r.seed, Tokens: tokens, Sequences: sequences}
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
		if o.Progress != nil {
			o.Progress(i+1, len(groups))
		}
	}
	return report, first
}

// runner has what all sections share.
type runner struct {
	source, partition *graph.Graph
	seed              uint64
	memory            int64
	batch             *batch
	checkpoint        *checkpoint // of the current section
	leaves            map[*graph.Value]bool
	workers           chan struct{} // how many ranks compute at a time
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
	r := &runner{source: source, partition: partition, seed: max(o.Seed, 1), memory: o.Memory}
	if r.memory == 0 {
		r.memory = 4 << 30
	}
	r.batch, r.leaves = newBatch(r.seed, source), leaving(source)
	r.workers = make(chan struct{}, runtime.GOMAXPROCS(0))
	return r, nil
}

// readable checks what makes no sense to run at all.
func readable(g *graph.Graph) error {
	switch {
	case g.Stage == graph.FusedStage:
		return errors.New("a fused graph has operations across blocks; validate it before it is fused")
	case g.Ranks < 1 || g.Ranks > graph.MaxRanks:
		return fmt.Errorf("%d ranks; 1 to %d are possible", g.Ranks, graph.MaxRanks)
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
		if o, ok := r.origin(v); !ok || o != (origin{value: want.Value}) {
			return fmt.Errorf("output %s: is %s; in the source it is %s", want.Name, v.Name, want.Value.Name)
		}
		if v.Type.Layout.Kind != graph.Replicated {
			return fmt.Errorf("output %s: %s is %s; it must be whole on every rank", want.Name, v.Name, v.Type)
		}
	}
	return nil
}

// part runs a section and fills in its report.
func (r *runner) part(ctx context.Context, s *section, p *Part) error {
	need, err := r.need(s)
	if err == nil && need > r.memory {
		err = skip(fmt.Sprintf("its tensors take %s, more than the %s allowed", size(need), size(r.memory)))
	}
	if err == nil {
		r.checkpoint = &checkpoint{seed: r.seed, made: map[string]func() graph.Array{}}
		err = r.execute(ctx, s, p)
		r.checkpoint = nil
	}
	var why skip
	if errors.As(err, &why) {
		*p = Part{Blocks: p.Blocks, Skipped: string(why)}
		return nil
	}
	return err
}

func (r *runner) execute(ctx context.Context, s *section, p *Part) error {
	source, partition := r.machine(1), r.machine(r.partition.Ranks)
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

// infinite says which value of the source is no number: then there is nothing to
// compare with.
func (m *machine) infinite(h *half) string {
	for _, v := range h.results() {
		for _, x := range m.values[v][0].F64 {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return fmt.Sprintf("%s has %g in the source", v.Name, x)
			}
		}
	}
	return ""
}

// compareAll compares values of the partitioned graph, as far as it has come, and
// says which is the first that differs.
func (r *runner) compareAll(values []*graph.Value, source, partition *machine, p *Part) error {
	var first error
	for _, v := range values {
		d, ok, err := r.compareValue(v, source, partition)
		if ok && err == nil {
			p.Values++
			if d.far > p.Difference {
				p.Difference, p.Worst = d.far, v.Name
			}
			if d.far > tolerance || d.wrong != "" {
				err = errors.New(d.text(partition.ranks))
			}
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	p.Difference = min(p.Difference, math.MaxFloat64)
	return first
}

// compareValue compares one value, if the source has it.
func (r *runner) compareValue(v *graph.Value, source, partition *machine) (d difference, ok bool, err error) {
	o, ok := r.origin(v)
	parts := partition.values[v]
	if !ok || parts == nil {
		return d, false, nil
	}
	if !sameShape(o.typ(), v.Type) {
		if transparent(v.Def) || r.leaves[o.value] {
			return d, false, fmt.Errorf("is %s, and in the source %s", v.Type, o.typ())
		}
		return d, false, nil
	}
	want, err := r.reference(o, v, source)
	if err != nil {
		return d, false, err
	}
	err = partition.guard(v, func() error {
		d = compare(v.Type, partition.ranks, parts, &want)
		return nil
	})
	return d, true, err
}

// reference is what the source has of a value: computed in the section, or given.
func (r *runner) reference(o origin, v *graph.Value, source *machine) (kernels.Tensor, error) {
	if source.values[o.value] == nil {
		if !transparent(v.Def) && o.value.Def.Op.Class != graph.Leaf {
			return kernels.Tensor{}, fmt.Errorf("the source computes it in %s", Part{Blocks: []string{o.value.Def.Block()}}.where())
		}
		if o.value.Def.Op.Name != "param" {
			return r.whole(o)
		}
		if err := source.param(o.value); err != nil {
			return kernels.Tensor{}, err
		}
	}
	x, err := floats(source.values[o.value][0])
	if err != nil || o.field == "" {
		return x, err
	}
	to, err := describe(o.value, o.typ(), 1, 0)
	if err != nil {
		return to, err
	}
	allocate(&to, o.typ())
	return to, takeField(&to, &x, o.value.Type, o.axis, o.field, 1, 0)
}

// complete checks that everything that leaves the section was compared, that no
// state was forgotten, and that states of slots that are not used are as before.
func (r *runner) complete(s *section, source, partition *machine) error {
	have := map[string]bool{} // what was compared
	for _, v := range slices.Concat(s.partition.results(), s.partition.states()) {
		if o, ok := r.origin(v); ok {
			have[o.String()] = true
		}
	}
	for _, v := range s.source.results() {
		if r.leaves[v] && !have[v.Name] && !hasFields(v, have) {
			return r.absent(v)
		}
	}
	for _, v := range s.source.states() {
		if !have[v.Name] && !hasFields(v, have) {
			return fmt.Errorf("%s: the partitioned graph does not keep this state", v.Name)
		}
	}
	for _, v := range s.source.states() {
		if err := source.untouched(v); err != nil {
			return err
		}
	}
	for _, v := range s.partition.states() {
		if err := partition.untouched(v); err != nil {
			return err
		}
	}
	return nil
}

// absent is what it means that a value that leaves the section was not compared.
func (r *runner) absent(v *graph.Value) error {
	if other, ok := r.partition.Value(v.Name); ok {
		return fmt.Errorf("%s: the partitioned graph computes it in %s", v.Name, Part{Blocks: []string{other.Def.Block()}}.where())
	}
	return skip(v.Name + " leaves it in the source, and the partitioned graph has no value of that name")
}

// hasFields reports whether some axis of v is there field by field.
func hasFields(v *graph.Value, have map[string]bool) bool {
	return slices.ContainsFunc(v.Type.Dims, func(d graph.Dim) bool {
		return len(d.Fields) > 1 && !slices.ContainsFunc(d.Fields, func(f graph.Field) bool { return !have[v.Name+"."+f.Name] })
	})
}

// untouched checks the slot of a state that no sequence has.
func (m *machine) untouched(v *graph.Value) error {
	after := m.values[v]
	if err := m.give(v); err != nil {
		return err
	}
	before := m.values[v]
	m.values[v] = after
	for r := range after {
		n := len(after[r].F64) / slots
		if !slices.Equal(after[r].F64[unused*n:(unused+1)*n], before[r].F64[unused*n:(unused+1)*n]) {
			return fmt.Errorf("%s: rank %d has changed the state of a slot that no sequence of the batch has", v.Name, r)
		}
	}
	return nil
}

// rounded runs the partitioned graph again as it will run, and compares what
// leaves the section.
func (r *runner) rounded(ctx context.Context, s *section, source, m *machine, p *Part) error {
	if err := m.run(ctx, &s.partition); err != nil {
		return fmt.Errorf("with payloads rounded: %w", err)
	}
	if p.Overflow = m.over; m.over != "" {
		return nil
	}
	for _, v := range s.partition.results() {
		if o, ok := r.origin(v); !ok || !r.leaves[o.value] {
			continue
		}
		d, ok, err := r.compareValue(v, source, m)
		if err != nil {
			return fmt.Errorf("%s: with payloads rounded: %w", v.Name, err)
		}
		if ok {
			p.Rounded = max(p.Rounded, d.far)
		}
	}
	p.Rounded = min(p.Rounded, math.MaxFloat64)
	return nil
}

// where names the part.
func (p Part) where() string {
	switch {
	case len(p.Blocks) == 0 || p.Blocks[0] == "":
		return "outside of blocks"
	case len(p.Blocks) == 1:
		return p.Blocks[0]
	}
	return fmt.Sprintf("%s and %d like it", p.Blocks[0], len(p.Blocks)-1)
}

// String is the report in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "executed in float64 on random numbers (seed %d), %d tokens in %d sequences:\n", r.Seed, r.Tokens, r.Sequences)
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "  %s: ", p.where())
		if p.Skipped != "" {
			fmt.Fprintf(&b, "not executed: %s\n", p.Skipped)
			continue
		}
		fmt.Fprintf(&b, "%d values, off by at most %.1e", p.Values, p.Difference)
		if p.Rounded > 0 {
			fmt.Fprintf(&b, "; by %.1e with payloads rounded", p.Rounded)
		}
		if p.Overflow != "" {
			fmt.Fprintf(&b, "; rounded, %s leaves the range of its format", p.Overflow)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

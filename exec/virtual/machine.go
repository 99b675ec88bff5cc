package virtual

import (
	"context"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Machine is all ranks of a model on one clock, which begins at 0.
type Machine struct {
	d            *Device
	clock        *clock
	plan         *lowering.Plan
	microbatches exec.Microbatches
	time         float64
	last         Span
	parts        []part // of the last step
	rounds       int    // that the clock ran of them
	wanted       lowering.OutputMask
	record       exec.Recorder
	events       []exec.Event

	slots, kept       int64
	trials            int64 // spares, which are among the slots
	pages, pageTokens int64
	arena             []int64 // by rank: the most of all steps

	ran []exec.CollectiveCount
}

// Span is a step on the clock, in seconds.
type Span struct {
	Start, End float64
	// Host is the part in which the host works before anything runs.
	Host float64
	// Busy is how long each rank's kernels ran. Its compute stream was idle for the rest of the
	// span.
	Busy []float64
	// Idle is how long each rank waited for ranks of other stages, and at the end for the last one:
	// the bubble of a pipeline.
	Idle []float64
	// Stages has the pipeline stages, of all replicas; nil: there is one.
	Stages []Stage
	// Travelled is how long some collective was in transit, all ranks being ready.
	Travelled float64
}

// Stage is the time of the ranks of a pipeline stage in a step, of the one with most.
type Stage struct {
	Busy float64 // its kernels ran
	Idle float64 // it waited for other stages
}

// Seconds is how long the step took.
func (s *Span) Seconds() float64 { return s.End - s.Start }

// Exposed is what no rank's kernels hide: the time that the busiest rank stood still.
func (s *Span) Exposed() float64 { return max(0, s.Seconds()-s.Host-slices.Max(s.Busy)) }

// Step takes a batch's time. Outputs are zeros.
func (m *Machine) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	out, err := m.stepAll(ctx, []*exec.Work{w})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// StepEach takes the time of batches: those given together follow each other through the stages.
func (m *Machine) StepEach(ctx context.Context, next func(exec.Await) []*exec.Work) error {
	var all [][]kernels.Tensor
	for {
		list := next(func(n int) ([]kernels.Tensor, error) { return all[n], nil })
		if len(list) == 0 {
			return nil
		}
		out, err := m.stepAll(ctx, list)
		if err != nil {
			return err
		}
		all = append(all, out...)
	}
}

// stepAll takes the time of batches that follow each other through the stages.
func (m *Machine) stepAll(ctx context.Context, list []*exec.Work) ([][]kernels.Tensor, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stopped before the step: %w", err)
	}
	parts, out := make([]part, len(list)), make([][]kernels.Tensor, len(list))
	for i, w := range list {
		parts[i] = part{w.Sizes, w.Replica, 0}
	}
	if _, err := m.runParts(parts, list[0].Outputs); err != nil {
		return nil, err
	}
	for i, w := range list {
		m.keep(w)
		out[i] = m.outputs(w)
	}
	return out, nil
}

// outputs are zeros.
func (m *Machine) outputs(w *exec.Work) []kernels.Tensor {
	out := make([]kernels.Tensor, len(w.Outputs))
	s := lowering.Giver(m.clock.reader.list)
	for i, want := range w.Outputs {
		if want {
			out[i] = zeros(s, s.Outputs[i].Ref, &w.Batch)
		}
	}
	return out
}

func zeros(s *lowering.Schedule, ref lowering.Ref, b *graph.Batch) kernels.Tensor {
	o := operand.New(s, ref)
	o.Resize(b, 0, 0)
	o.Stride = o.Cols
	n := o.Rows() * o.Cols
	switch o.DType {
	case graph.F32:
		o.F32 = make([]float32, n)
	case graph.I32:
		o.I32 = make([]int32, n)
	default:
		o.U16 = make([]uint16, n)
	}
	return o.Tensor
}

// part is what the ranks of a replica run at a time of a batch.
type part struct {
	graph.Sizes
	replica int
	turn    int // in turns, whose number this is, from 1 on; 0: in a step
}

// split divides a batch among the replicas, and in microbatches, as an engine does.
func (m *Machine) split(z graph.Sizes) (list []part) {
	mesh := m.clock.reader.first.Mesh
	replicas := int64(mesh.Along(graph.DP))
	for r := range min(replicas, max(1, z.Seqs)) {
		y := divided(z, replicas, r)
		n := int64(m.microbatches.Of(int(y.Tokens), int(y.Seqs)))
		for k := range n {
			list = append(list, part{divided(y, n, k), int(r), 0})
		}
	}
	return list
}

// divided is share k of n of a batch.
func divided(z graph.Sizes, n, k int64) graph.Sizes {
	if n == 1 {
		return z
	}
	share := func(all int64) int64 { return all*(k+1)/n - all*k/n }
	return graph.Sizes{Tokens: max(1, share(z.Tokens)), Seqs: max(1, share(z.Seqs)), Rows: share(z.Rows), Cached: share(z.Cached),
		Pairs: share(z.Pairs), Largest: share(z.Largest)}
}

// Run takes the time of a step for a batch that is known by its sizes, and that replicas and stages
// divide as an engine does. One for which there is not enough memory is an error.
func (m *Machine) Run(z graph.Sizes, wanted lowering.OutputMask) (Span, error) {
	return m.runParts(m.split(z), wanted)
}

// Turns takes the time of a step for a batch of sequences with one token each that runs in turns
// ([exec.Engine.StepInTurns]), once the stages are full: of as many steps that follow each other as
// there are stages, each of a share of the sequences, until the first begins again. Other batches,
// and steps that are recorded, take what they take in Run.
func (m *Machine) Turns(z graph.Sizes, wanted lowering.OutputMask) (Span, error) {
	mesh := m.clock.reader.first.Mesh
	replicas := min(int64(mesh.Along(graph.DP)), z.Seqs)
	n := int64(m.microbatches.Turns(int(z.Seqs / max(1, replicas))))
	if n < 2 || z.Tokens != z.Seqs || m.record != nil {
		return m.Run(z, wanted)
	}
	var list []part
	for k := range n {
		for r := range replicas {
			list = append(list, part{divided(divided(z, replicas, r), n, k), int(r), int(k) + 1})
		}
	}
	return m.runParts(list, wanted)
}

func (m *Machine) runParts(list []part, wanted lowering.OutputMask) (Span, error) {
	largest := list[0].Sizes
	for _, p := range list {
		if p.Tokens > largest.Tokens {
			largest = p.Sizes
		}
	}
	if err := m.fits(&largest); err != nil {
		return Span{}, err
	}
	for r := range m.arena {
		m.arena[r] = max(m.arena[r], operand.Arena(m.clock.reader.list[r], largest))
	}
	if !m.again(list, wanted) {
		run := m.run
		if list[0].turn > 0 {
			run = m.runTurns
		}
		if err := run(list, wanted); err != nil {
			return Span{}, err
		}
	}
	for _, p := range list {
		m.count(p.Sizes)
	}
	m.tell()
	return m.last, nil
}

// again repeats the last step if this one is the same, and is not recorded.
func (m *Machine) again(list []part, wanted lowering.OutputMask) bool {
	if m.record != nil || m.last.Busy == nil || !slices.Equal(list, m.parts) || !slices.Equal(wanted, m.wanted) {
		return false
	}
	took := m.last.Seconds()
	m.last.Start, m.last.End = m.time, m.time+took
	m.time += took
	return true
}

// fullRounds is after how many rounds of turns all stages are full.
const fullRounds = 4

// runTurns runs rounds of turns on the clock: the last one is what more rounds take longer.
func (m *Machine) runTurns(list []part, wanted lowering.OutputMask) error {
	var spans [2]Span
	for i := range spans {
		before := m.time
		if err := m.runRounds(list, fullRounds+i, wanted); err != nil {
			return err
		}
		spans[i], m.time = m.last, before
	}
	short, s := &spans[0], spans[1]
	s.End, s.Host, s.Travelled = s.End-short.Seconds(), 0, s.Travelled-short.Travelled
	for r := range s.Busy {
		s.Busy[r], s.Idle[r] = s.Busy[r]-short.Busy[r], s.Idle[r]-short.Idle[r]
	}
	m.last, m.time = s, s.End
	m.addStages()
	return nil
}

// run runs a step on the clock.
func (m *Machine) run(list []part, wanted lowering.OutputMask) error {
	return m.runRounds(list, 1, wanted)
}

// runRounds runs a list on the clock over and over: a turn begins when that of the round before has
// ended.
func (m *Machine) runRounds(list []part, rounds int, wanted lowering.OutputMask) error {
	m.parts, m.rounds, m.wanted = append(m.parts[:0], list...), rounds, append(m.wanted[:0], wanted...)
	for i := range rounds * len(list) {
		p, before := list[i%len(list)], i-i%len(list)-len(list)
		b := m.clock.batch(i, p.Sizes, p.Tokens == p.Seqs && !m.d.NoGraphs)
		b.replica = p.replica
		for k := range list {
			if before >= 0 && list[k].turn == p.turn {
				b.after = append(b.after, m.clock.batches[before+k])
			}
		}
	}
	m.clock.record = nil
	if m.events = m.events[:0]; m.record != nil {
		m.clock.record = func(e exec.Event) { m.events = append(m.events, e) }
	}
	return m.runClock(wanted)
}

// runClock runs the batches of the clock.
func (m *Machine) runClock(wanted lowering.OutputMask) error {
	host := m.d.Profile.Overhead.Step.Value
	end, err := m.clock.run(m.time+host, func(serves []int, rank int) bool {
		return serves == nil || m.clock.reader.list[rank].Rank == 0 && wanted.Needs(serves)
	})
	if err != nil {
		m.last.Busy = nil
		return err
	}
	m.last = Span{Start: m.time, End: end, Host: host, Travelled: m.clock.travelled()}
	for i := range m.clock.ranks {
		m.last.Busy, m.last.Idle = append(m.last.Busy, m.clock.ranks[i].busy), append(m.last.Idle, m.clock.ranks[i].idle)
	}
	m.time = end
	m.addStages()
	return nil
}

// addStages sums up the ranks of each stage.
func (m *Machine) addStages() {
	n := m.clock.reader.first.Mesh.Along(graph.PP)
	if n == 1 {
		return
	}
	m.last.Stages = make([]Stage, n)
	for r, s := range m.clock.reader.list {
		x := &m.last.Stages[s.Stage]
		x.Busy, x.Idle = max(x.Busy, m.last.Busy[r]), max(x.Idle, m.last.Idle[r])
	}
}

// tell passes the events of a step to the recorder, rank by rank.
func (m *Machine) tell() {
	if m.record == nil {
		return
	}
	slices.SortStableFunc(m.events, func(a, b exec.Event) int { return a.Rank - b.Rank })
	m.record(m.events)
}

// Last is the last step.
func (m *Machine) Last() Span { return m.last }

func (m *Machine) count(z graph.Sizes) {
	for i := range m.ran {
		c, p := &m.ran[i], &m.plan.Collectives[i]
		c.Calls++
		c.Elems += p.Elems.At(z)
		c.Bytes += p.Bytes.At(z)
	}
}

// Collectives counts what the collectives carried since Open or ResetCounts.
func (m *Machine) Collectives() []exec.CollectiveCount { return slices.Clone(m.ran) }

// Transport is empty: each collective takes its link's fastest algorithm.
func (m *Machine) Transport() string { return "" }

// ResetCounts lets Collectives count from 0 again.
func (m *Machine) ResetCounts() {
	for i, p := range m.plan.Collectives {
		m.ran[i] = exec.CollectiveCount{Name: p.Name, Kind: p.Kind}
	}
}

// Close does nothing.
func (m *Machine) Close() {}

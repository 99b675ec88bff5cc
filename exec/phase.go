package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// phase is what runs batches: schedules on a machine, and the batch that it runs.
type phase struct {
	schedules []*lowering.Schedule
	machine   Machine
	verify    func(Results) error
	work      Work     // reused, so that a step allocates nothing
	sources   []source // of its inputs
}

// outputs are those of the schedules.
func (p *phase) outputs() []lowering.Output { return lowering.Giver(p.schedules).Outputs }

// openPhase opens the machine of schedules.
func openPhase(schedules []*lowering.Schedule, d Device, world comm.World, o Setup, verify func(Results) error) (*phase, error) {
	p := &phase{schedules: schedules, verify: verify}
	if err := p.findInputs(); err != nil {
		return nil, err
	}
	var err error
	p.machine, err = Open(d, schedules, world, o)
	return p, err
}

// addPrefill opens the machine of prefill, beside that of decode.
func (e *Engine) addPrefill(o *Prefill, d Device, setup Setup) error {
	own := e.phases[decodes]
	if err := lowering.CheckAll(o.Schedules); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	if len(o.Schedules) != len(own.schedules) {
		return fmt.Errorf("prefill on %d ranks, and decode on %d", len(o.Schedules), len(own.schedules))
	}
	world := o.World
	if world == nil {
		world = comm.Local(len(o.Schedules))
	}
	if o.Device != nil {
		d = o.Device
	}
	setup.Trials = 0 // its slots are those of decode, spares included, as these change places
	p, err := openPhase(o.Schedules, d, world, setup, o.Verify)
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	e.phases[prefills] = p
	f, _ := own.machine.(Follower)
	if g, ok := p.machine.(Follower); ok {
		e.machine = &followers{f, g}
		return nil
	}
	machines := [2]Machine{own.machine, p.machine}
	if e.relaid, err = newRelaid(machines, [2][]*lowering.Schedule{own.schedules, o.Schedules}, setup.Slots, setup.PageTokens); err != nil {
		p.machine.Close()
		return err
	}
	e.machine = e.relaid
	return nil
}

// followers are the machines of a process that follows in both phases.
type followers struct {
	Follower // in decode
	prefill  Follower
}

// Follow runs what rank 0 runs in either phase.
func (f *followers) Follow(ctx context.Context) error {
	end := make(chan error)
	go func() { end <- f.prefill.Follow(ctx) }()
	err := f.Follower.Follow(ctx)
	return cmp.Or(err, <-end)
}

// Close closes both.
func (f *followers) Close() {
	f.Follower.Close()
	f.prefill.Close()
}

// part is the sequences of a batch that one phase runs.
type part struct {
	*phase
	side  side
	batch *Batch
}

// sideOf is the side that runs a sequence of a batch.
func (e *Engine) sideOf(q *Sequence) side {
	if e.relaid != nil && q.len() > 1 && !q.Trial {
		return prefills
	}
	return decodes
}

// split finds the slots of a batch, and divides it among the phases.
func (e *Engine) split(b *Batch) ([]part, error) {
	if err := e.find(b); err != nil {
		return nil, err
	}
	e.parts = e.parts[:0]
	first := e.sideOf(&b.Sequences[0])
	if !slices.ContainsFunc(b.Sequences, func(q Sequence) bool { return e.sideOf(&q) != first }) {
		e.parts = append(e.parts, part{e.phases[first], first, b})
		return e.parts, nil
	}
	if len(b.Inputs) > 0 {
		return nil, errors.New("a batch with Inputs has sequences of prefill and of decode, which have different schedules; run them in two batches")
	}
	for _, x := range []side{prefills, decodes} {
		e.parts = append(e.parts, part{e.phases[x], x, e.batchOf(b, x)})
	}
	return e.parts, nil
}

// batchOf is the part of a batch that one side runs.
func (e *Engine) batchOf(b *Batch, x side) *Batch {
	out := &Batch{Outputs: b.Outputs}
	if b.Choices != nil {
		out.Choices = []Choice{}
	}
	if b.picks() { // from logits of all rows, although only rows of one side may have a Pick
		out.Outputs = append(slices.Clone(b.Outputs), LogitsOutput)
	}
	row := 0
	for i := range b.Sequences {
		q := b.Sequences[i]
		if e.sideOf(&q) == x {
			out.Sequences = append(out.Sequences, q)
			n := len(b.Choices) // of a wrong number, which is refused later
			out.Choices = append(out.Choices, b.Choices[min(row, n):min(row+q.rows(), n)]...)
		}
		row += q.rows()
	}
	return out
}

// run runs the prepared parts of a batch, and checks their results.
func (e *Engine) run(ctx context.Context, b *Batch, parts []part) (out Results, err error) {
	var by [2]Results
	for _, p := range parts {
		if out, err = e.runPart(ctx, p); err != nil {
			return out, err
		}
		by[p.side] = out
	}
	if len(parts) > 1 {
		out = e.join(b, &by)
	}
	if b.Choices != nil {
		err = out.choose(b)
	}
	return out, err
}

// runPart runs a prepared part of a batch.
func (e *Engine) runPart(ctx context.Context, p part) (Results, error) {
	out := Results{outputs: p.outputs(), present: p.work.Outputs}
	if e.onBatch != nil {
		e.onBatch(&p.work)
	}
	var err error
	if e.relaid != nil {
		err = e.relaid.enter(p.side, p.batch.Sequences, &p.work)
	}
	if err == nil {
		out.tensors, err = p.machine.Step(ctx, &p.work)
	}
	if err == nil && e.checkFiles != nil {
		err = e.checkFiles()
	}
	if err == nil && p.verify != nil {
		err = p.verify(out)
	}
	return out, err
}

// join puts the results of both sides, which Verify has seen, in the order of their batch. It
// leaves out those of one side only.
func (e *Engine) join(b *Batch, by *[2]Results) Results {
	list := by[decodes].outputs
	out := Results{outputs: list, present: make(lowering.OutputMask, len(list)), tensors: make([]kernels.Tensor, len(list))}
	for i := range list {
		x, axis, err := by[decodes].OutputOf(list[i].Name)
		y, _, other := by[prefills].OutputOf(list[i].Name)
		if out.present[i] = err == nil && other == nil; out.present[i] {
			out.tensors[i] = e.joinRows(b, axis, [2]kernels.Tensor{x, y})
		}
	}
	return out
}

// joinRows takes the rows of each sequence from the side that ran it.
func (e *Engine) joinRows(b *Batch, axis graph.Sym, from [2]kernels.Tensor) kernels.Tensor {
	out := from[decodes]
	if axis == 0 {
		return out
	}
	out.Dims[0] = from[decodes].Rows() + from[prefills].Rows()
	out.Stride = out.Cols
	out.F32, out.U16, out.I32, out.U8 = resized(out.F32, &out), resized(out.U16, &out), resized(out.I32, &out), resized(out.U8, &out)
	row, next := 0, [2]int{}
	for i := range b.Sequences {
		q := &b.Sequences[i]
		n, x := 1, e.sideOf(q)
		switch axis {
		case graph.Tokens:
			n = q.len()
		case graph.Rows:
			n = q.rows()
		}
		for range n {
			out.Copy(row*out.Stride, &from[x], next[x]*from[x].Stride, out.Cols)
			row, next[x] = row+1, next[x]+1
		}
	}
	return out
}

// resized makes memory for all rows of a tensor that has its elements in data, and others nowhere.
func resized[E any](data []E, t *kernels.Tensor) []E {
	if data == nil {
		return nil
	}
	return make([]E, t.Dims[0]*t.Stride)
}

package exec

import (
	"context"
	"errors"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// A batch runs in parts: the sequences of a phase, of a replica, and of several tokens also in
// microbatches, which follow each other through the pipeline stages. A part is a batch of its own
// for the device, and its results are joined in the order of the batch.

// part is what one phase runs of a batch at a time.
type part struct {
	*phase
	side  side
	batch *Batch
	work  *Work
	from  []int // by sequence of the part: which of the batch it is, or a piece of it
}

// sideOf is the side that runs a sequence of a batch.
func (e *Engine) sideOf(q *Sequence) side {
	if e.relaid != nil && q.len() > 1 && !q.Trial {
		return prefills
	}
	return decodes
}

// split finds the slots of a batch, and divides it in parts.
func (e *Engine) split(b *Batch) ([]part, error) {
	if err := e.find(b); err != nil {
		return nil, err
	}
	e.parts, e.nextSpare = e.parts[:0], 0
	first := e.sideOf(&b.Sequences[0])
	if e.whole && !slices.ContainsFunc(b.Sequences, func(q Sequence) bool { return e.sideOf(&q) != first }) {
		e.parts = append(e.parts, part{phase: e.phases[first], side: first, batch: b, work: e.phases[first].newWork(0)})
		return e.parts, nil
	}
	for _, x := range []side{prefills, decodes} {
		if p := e.phases[x]; p != nil {
			e.splitSide(b, x, p)
		}
	}
	if len(b.Inputs) > 0 && len(e.parts) > 1 {
		if e.relaid != nil {
			return nil, errors.New("a batch with Inputs has sequences of prefill and of decode, which have different schedules; run them in two batches")
		}
		return nil, errors.New("a batch with Inputs has sequences of several replicas; run them in several batches")
	}
	return e.parts, nil
}

// splitSide adds the parts that one side runs: of each replica its sequences, cut in microbatches.
func (e *Engine) splitSide(b *Batch, x side, p *phase) {
	n := 0
	for replica := range e.replicas.number() {
		var list []piece
		for i := range b.Sequences {
			if q := &b.Sequences[i]; e.sideOf(q) == x && e.replicas.home(q.index) == replica {
				list = append(list, piece{i, 0, q.len()})
			}
		}
		cuts := [][]piece{list}
		if len(b.Inputs) == 0 {
			cuts = p.microbatches.cut(list, func(i int) bool { return b.Sequences[i].Trial || b.Sequences[i].past%graph.PartBlock > 0 })
		}
		for _, list := range cuts {
			if len(list) > 0 {
				e.parts, n = append(e.parts, p.newPart(b, x, n, replica, list)), n+1
			}
		}
	}
}

// newPart is the n-th part of a step: pieces of a batch that a replica runs.
func (p *phase) newPart(b *Batch, x side, n, replica int, list []piece) part {
	y := part{phase: p, side: x, work: p.newWork(n)}
	y.work.Replica = replica
	y.take(b, list)
	return y
}

// newWork is the n-th batch of a step, in memory that steps reuse.
func (p *phase) newWork(n int) *Work {
	for len(p.works) <= n {
		p.works = append(p.works, &Work{Inputs: slices.Clone(p.inputs), Outputs: make(lowering.OutputMask, len(p.outputs()))})
	}
	return p.works[n]
}

// take makes the part's batch of pieces of another.
func (p *part) take(b *Batch, list []piece) {
	p.batch = &Batch{Outputs: b.Outputs, Inputs: b.Inputs}
	if b.Choices != nil {
		p.batch.Choices = []Choice{}
	}
	if b.picks() { // from logits of all rows, although only rows of one part may have a Pick
		p.batch.Outputs = append(slices.Clone(b.Outputs), LogitsOutput)
	}
	rows := make([]int, len(b.Sequences)+1) // where those of each sequence begin
	for i := range b.Sequences {
		rows[i+1] = rows[i] + b.Sequences[i].rows()
	}
	n := len(b.Choices) // of a wrong number, which is refused later
	for _, x := range list {
		q, before := b.Sequences[x.sequence], 0
		if x.start > 0 || x.end < q.len() {
			before = q.cut(x.start, x.end)
		}
		at := rows[x.sequence] + before
		p.batch.Sequences, p.from = append(p.batch.Sequences, q), append(p.from, x.sequence)
		p.batch.Choices = append(p.batch.Choices, b.Choices[min(at, n):min(at+q.rows(), n)]...)
	}
}

// cut makes q a piece of its new tokens, and returns how many of its rows lie before that.
func (q *Sequence) cut(start, end int) (before int) {
	all := q.Rows
	if all == nil {
		all = []int{q.len() - 1}
	}
	q.Rows = []int{}
	for _, r := range all {
		switch {
		case r < start:
			before++
		case r < end:
			q.Rows = append(q.Rows, r-start)
		}
	}
	if q.Tokens != nil {
		q.Tokens = q.Tokens[start:end]
	}
	q.Len, q.past = end-start, q.past+start
	return before
}

// run runs the prepared parts of a batch, and checks their results.
func (e *Engine) run(ctx context.Context, b *Batch, parts []part) (out Results, err error) {
	by := make([]Results, 0, 1)
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].side == parts[0].side {
			n++
		}
		if by, err = e.runParts(ctx, parts[:n], by); err != nil {
			return out, err
		}
		parts = parts[n:]
	}
	if out = by[0]; len(by) > 1 {
		out = join(b, e.parts, by)
	}
	if b.Choices != nil {
		err = out.choose(b)
	}
	return out, err
}

// runParts runs prepared parts of one phase, and adds their results.
func (e *Engine) runParts(ctx context.Context, list []part, by []Results) (_ []Results, err error) {
	p, first := list[0].phase, len(by)
	for i := range list {
		x := &list[i]
		if e.onBatch != nil {
			e.onBatch(x.work)
		}
		by = append(by, Results{outputs: p.outputs(), present: x.work.Outputs})
		switch {
		case e.relaid != nil:
			err = e.relaid.enter(x.side, x.batch.Sequences, x.work)
		case e.replicas != nil:
			err = e.replicas.enter(x.batch.Sequences, x.work)
		}
		if err != nil {
			return by, err
		}
	}
	if len(list) == 1 {
		by[first].tensors, err = p.machine.Step(ctx, list[0].work)
	} else {
		err = e.stepAll(ctx, p, list, by[first:])
	}
	if err == nil && e.checkFiles != nil {
		err = e.checkFiles()
	}
	for i := range by[first:] {
		if err == nil && p.verify != nil {
			err = p.verify(by[first+i])
		}
	}
	return by, err
}

// stepAll runs several parts on a machine that can.
func (e *Engine) stepAll(ctx context.Context, p *phase, list []part, by []Results) error {
	works := make([]*Work, len(list))
	for i := range list {
		works[i] = list[i].work
	}
	out, err := StepAll(ctx, p.machine.(Pipeline), works)
	for i := range out {
		by[i].tensors = out[i]
	}
	return err
}

// join puts the results of all parts, which Verify has seen, in the order of their batch. It leaves
// out those of some parts only.
func join(b *Batch, parts []part, by []Results) Results {
	list := by[0].outputs
	out := Results{outputs: list, present: make(lowering.OutputMask, len(list)), tensors: make([]kernels.Tensor, len(list))}
	for i := range list {
		from, axis := make([]kernels.Tensor, len(by)), graph.Sym(0)
		out.present[i] = true
		for k := range by {
			var err error
			if from[k], axis, err = by[k].OutputOf(list[i].Name); err != nil {
				out.present[i] = false
			}
		}
		if out.present[i] {
			out.tensors[i] = joinRows(b, parts, axis, from)
		}
	}
	return out
}

// joinRows takes the rows of each sequence from the parts that ran it.
func joinRows(b *Batch, parts []part, axis graph.Sym, from []kernels.Tensor) kernels.Tensor {
	out := from[0]
	if axis == 0 {
		return out
	}
	for _, t := range from { // one without rows has no memory, which would say of what format it is
		if t.Rows() > 0 {
			out = t
			break
		}
	}
	type rows struct{ part, at, n int }
	by := make([][]rows, len(b.Sequences))
	out.Dims[0] = 0
	for k := range parts {
		at := 0
		for j, i := range parts[k].from {
			n, q := 1, &parts[k].batch.Sequences[j]
			switch axis {
			case graph.Tokens:
				n = q.len()
			case graph.Rows:
				n = q.rows()
			default: // of a sequence in pieces the last row
				out.Dims[0], by[i] = out.Dims[0]-len(by[i]), nil
			}
			by[i] = append(by[i], rows{k, at, n})
			at, out.Dims[0] = at+n, out.Dims[0]+n
		}
	}
	out.Stride = out.Cols
	out.F32, out.U16, out.I32, out.U8 = resized(out.F32, &out), resized(out.U16, &out), resized(out.I32, &out), resized(out.U8, &out)
	row := 0
	for _, list := range by {
		for _, x := range list {
			for k := range x.n {
				out.Copy(row*out.Stride, &from[x.part], (x.at+k)*from[x.part].Stride, out.Cols)
				row++
			}
		}
	}
	return out
}

package exec

import (
	"cmp"
	"context"
	"errors"

	"github.com/krait-ml/krait/exec/state"
)

// turns are batches of decode that run over and over, one after another, so that each pipeline
// stage has one to run at any time.
type turns struct {
	*Engine
	phase   *phase
	list    []*turn
	running []int // those that run, in their order
	works   int   // so far
	next    func(i int, r *Results, err error) (again bool)
	ends    bool  // none begins any more
	err     error // the reason
}

// turn is a batch, its parts by replica, and the number of the first of their works.
type turn struct {
	batch *Batch
	parts []part
	first int
	runs  bool // and has not been advanced
}

// Turns is how many batches of some sequences [Engine.StepInTurns] can run at the same time: one
// per pipeline stage, or 1 where steps run alone: where each is recorded, and with a strategy per
// phase.
func (e *Engine) Turns(sequences int) int {
	p := e.phases[decodes]
	if _, ok := p.machine.(Pipeline); !ok || e.relaid != nil || e.recorded {
		return 1
	}
	return p.microbatches.Turns(sequences)
}

// StepInTurns runs batches of sequences with one token each, which share no sequence, in turns: a
// stage runs one while other stages run others. next gets the results of batch i, with nil or a
// [ChoiceError], and may change the batch, which runs again if it returns true. StepInTurns
// returns when no batch runs. If a batch needs KV pages and there are none, it does not run, and
// neither do others after it: that is no error. After an error the sequences of batches that ran,
// and whose results next did not get, must be freed or reset.
func (e *Engine) StepInTurns(ctx context.Context, list []*Batch, next func(i int, r *Results, err error) (again bool)) error {
	if err := e.gate.Lock(); err != nil {
		return err
	}
	defer e.gate.Unlock()
	t := &turns{Engine: e, phase: e.phases[decodes], next: next}
	for i, b := range list {
		t.list = append(t.list, &turn{batch: b})
		if err := t.prepare(i); errors.Is(err, state.ErrNoPages) {
			return nil
		} else if err != nil {
			return err
		}
	}
	begun := 0
	err := t.phase.machine.(Pipeline).StepEach(ctx, func(await Await) []*Work {
		if begun < len(list) {
			begun++
			return t.begin(begun - 1)
		}
		return t.turn(await)
	})
	if err = cmp.Or(err, t.err); err != nil {
		for _, x := range t.list {
			for _, q := range x.batch.Sequences {
				if x.runs {
					e.table.Break(q.index)
				}
			}
		}
	}
	return err
}

// prepare makes the parts of a batch.
func (t *turns) prepare(i int) error {
	x := t.list[i]
	if err := t.find(x.batch); err != nil {
		return err
	}
	x.parts = x.parts[:0]
	n := t.replicas.number()
	for replica := range n {
		var list []piece
		for k := range x.batch.Sequences {
			if q := &x.batch.Sequences[k]; t.replicas.home(q.index) == replica {
				list = append(list, piece{k, 0, q.len()})
			}
		}
		if len(list) == 0 {
			continue
		}
		p := t.phase.newPart(x.batch, decodes, i*n+replica, replica, list)
		if err := t.Engine.prepare(p); err != nil {
			return err
		}
		x.parts = append(x.parts, p)
	}
	return nil
}

// begin returns the works of a prepared batch.
func (t *turns) begin(i int) (list []*Work) {
	x := t.list[i]
	x.first, x.runs = t.works, true
	for _, p := range x.parts {
		if t.onBatch != nil {
			t.onBatch(p.work)
		}
		if t.replicas != nil {
			if t.err = t.replicas.enter(p.batch.Sequences, p.work); t.err != nil {
				return nil
			}
		}
		list = append(list, p.work)
	}
	t.works += len(list)
	t.running = append(t.running, i)
	return list
}

// turn waits for the batch that runs longest, and returns the works of the next one.
func (t *turns) turn(await Await) []*Work {
	for len(t.running) > 0 && t.err == nil {
		i := t.running[0]
		t.running = t.running[1:]
		again := false
		if again, t.err = t.finish(i, await); !again || t.err != nil || t.ends {
			continue
		}
		if t.err = t.settle(i, await); t.err != nil {
			return nil
		}
		switch err := t.prepare(i); {
		case errors.Is(err, state.ErrNoPages):
			t.ends = true
		case err != nil:
			t.err = err
		default:
			return t.begin(i)
		}
	}
	return nil
}

// finish gives next the results of a batch.
func (t *turns) finish(i int, await Await) (again bool, err error) {
	x := t.list[i]
	by := make([]Results, len(x.parts))
	for k := range x.parts {
		by[k] = Results{outputs: t.phase.outputs(), present: x.parts[k].work.Outputs}
		if by[k].tensors, err = await(x.first + k); err == nil && t.checkFiles != nil {
			err = t.checkFiles()
		}
		if err == nil && t.phase.verify != nil {
			err = t.phase.verify(by[k])
		}
		if err != nil {
			return false, err
		}
	}
	out := by[0]
	if len(by) > 1 {
		out = join(x.batch, x.parts, by)
	}
	if x.batch.Choices != nil {
		err = out.choose(x.batch)
	}
	some := AsChoiceError(err)
	if err != nil && some == nil {
		return false, err
	}
	t.advance(x.batch, some)
	x.runs = false
	return t.next(i, &out, err), nil
}

// settle waits for all batches if the next one of batch i may change memory that ranks use: its
// sequences need new KV pages.
func (t *turns) settle(i int, await Await) error {
	if !t.table.HasCache() {
		return nil
	}
	for _, q := range t.list[i].batch.Sequences {
		if (q.past+q.len())%t.table.PageTokens() != 0 {
			continue
		}
		for _, k := range t.running {
			for n := range t.list[k].parts {
				if _, err := await(t.list[k].first + n); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return nil
}

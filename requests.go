package krait

import (
	"cmp"
	"context"
	"fmt"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/serving/schedule"
)

// cutAt is what prompts are cut at multiples of, where they share steps: a multiple of
// the chunks that scans are computed in on any device, so that a cut changes no bit.
const cutAt = 32

// schedule makes what lets generations share steps.
func (m *Model) schedule(o Options) (err error) {
	l := limits(o, m.engine)
	if m.requests, err = schedule.New(requestEngine{m}, l); err != nil {
		err = fmt.Errorf("MaxTokensPerStep: %w", err)
	}
	return err
}

// limits says what a step may have.
func limits(o Options, e *exec.Engine) schedule.Limits {
	slots := e.Slots()
	l := schedule.Limits{Slots: slots, Grain: cutAt, Context: e.Context()}
	l.Tokens = cmp.Or(o.MaxTokensPerStep, prefillChunk+slots-1)
	if roundedAtCuts(e.States()) { // so all chunks are of one length, and nothing else is a cut
		l.Grain = max(cutAt, l.Longest())
	}
	return l
}

// roundedAtCuts reports whether a state is kept in 16 bits that a step computes with
// all bits of: every cut of a prompt rounds it. A cache is not, since its rows are read
// as they are kept.
func roundedAtCuts(states []exec.State) bool {
	for _, s := range states {
		if s.Type.DType != graph.F32 && !s.Type.Ragged() {
			return true
		}
	}
	return false
}

// requestEngine is the model as a scheduler uses it.
type requestEngine struct{ *Model }

func (m requestEngine) Alloc() (int, error) { return m.engine.Alloc() }
func (m requestEngine) Free(slot int) error { return m.engine.Free(slot) }
func (m requestEngine) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	return m.step(ctx, b, read)
}

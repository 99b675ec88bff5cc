package virtual

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TrialSeconds is the time that trials, with a number of tokens together, take beside their step,
// which [Machine.Run] has, on the slowest rank: keep to copy states and the operands of recurrences
// before they run, and replay to run recurrences again over these tokens.
func (m *Machine) TrialSeconds(trials, tokens int) (keep, replay float64) {
	z := graph.Sizes{Tokens: int64(tokens), Seqs: int64(trials)}
	for r, s := range m.clock.reader.list {
		kept, again := m.clock.trialSeconds(s, z)
		keep, replay = max(keep, kept*m.clock.slow[r]), max(replay, again*m.clock.slow[r])
	}
	return keep, replay
}

// trialSeconds is that of a rank, with a launch for each copy and each recurrence.
func (c *clock) trialSeconds(s *lowering.Schedule, z graph.Sizes) (keep, replay float64) {
	for _, r := range s.Recurrences() {
		if len(r.States) == 0 {
			continue
		}
		st := &s.Steps[r.Step]
		var bytes graph.Poly
		for _, k := range r.States {
			bytes = bytes.Plus(graph.Var(graph.Seqs).Times(graph.Const(2 * s.Buffers[st.Args[k].Buffer].Bytes)))
		}
		for _, k := range r.Tokens {
			bytes = bytes.Plus(s.Local(st.Args[k].Type).Bytes().Times(graph.Const(2)))
		}
		w := cost.WorkOf(s, st)
		keep += c.rater.Time(&cost.Work{Bytes: bytes, Share: 1}, z, true)
		replay += c.rater.Time(&w, z, true)
	}
	return keep, replay
}

// keep takes the time to keep what trials of a batch need.
func (m *Machine) keep(w *exec.Work) {
	tokens := 0
	for _, x := range w.Trials {
		tokens += w.Ends[x.Sequence]
		if x.Sequence > 0 {
			tokens -= w.Ends[x.Sequence-1]
		}
	}
	if tokens > 0 {
		took, _ := m.TrialSeconds(len(w.Trials), tokens)
		m.time += took
	}
}

// Replay takes the time of recurrences over the first tokens of trials.
func (m *Machine) Replay(ctx context.Context, list []state.Replay) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped before the replay: %w", err)
	}
	tokens := 0
	for _, x := range list {
		tokens += x.Tokens
	}
	_, took := m.TrialSeconds(len(list), tokens)
	m.time += took
	return nil
}

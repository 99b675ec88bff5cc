// Package timeline draws what ranks did when: runs that were measured on a device, and
// those that the virtual device predicts, in one form. A [Log] collects the events of a
// run; [Trace] writes them for Perfetto (ui.perfetto.dev, chrome://tracing), [SVG] draws
// the steps that say most.
package timeline

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Run is what ranks did, step after step.
type Run struct {
	Name  string // measured on cpu; predicted for a100-nvlink
	Steps []Step
}

// Step is a batch.
type Step struct {
	Name   string // what the batch was: 512 tokens
	Events []exec.Event
}

// Bounds are when the first event of a step began, and when the last one ended; seconds.
func (s *Step) Bounds() (from, to float64) {
	for i, e := range s.Events {
		if i == 0 || e.Start < from {
			from = e.Start
		}
		to = max(to, e.End)
	}
	return from, to
}

// NameOf says what a batch is.
func NameOf(z graph.Sizes) string {
	switch {
	case z.Tokens == z.Seqs && z.Seqs == 1:
		return "1 token"
	case z.Tokens == z.Seqs:
		return fmt.Sprintf("%d sequences, a token each", z.Seqs)
	case z.Seqs == 1:
		return fmt.Sprintf("%d tokens", z.Tokens)
	}
	return fmt.Sprintf("%d tokens of %d sequences", z.Tokens, z.Seqs)
}

// Log collects a run: its Batch and Record are what [exec.Options] take, and Record what a
// virtual device takes.
type Log struct {
	Run
	Most int // events that are kept: steps after them are only counted
	Left int // how many steps those were
	kept int
	name string
}

// Batch is told of a batch before it runs.
func (l *Log) Batch(w *exec.Work) { l.name = NameOf(w.Sizes) }

// Record is an [exec.Recorder].
func (l *Log) Record(events []exec.Event) {
	if l.Full() {
		l.Left++
		return
	}
	l.kept += len(events)
	l.Steps = append(l.Steps, Step{l.name, slices.Clone(events)})
}

// Full reports whether nothing more is kept.
func (l *Log) Full() bool { return l.Most > 0 && l.kept >= l.Most }

// Shift returns the step, later by that many seconds.
func (s Step) Shift(by float64) Step {
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		s.Events[i].Start += by
		s.Events[i].End += by
	}
	return s
}

// ranksOf is one more than the highest rank of runs.
func ranksOf(runs []Run) int {
	n := 0
	for _, r := range runs {
		for _, s := range r.Steps {
			for _, e := range s.Events {
				n = max(n, e.Rank+1)
			}
		}
	}
	return n
}

// streams are the rows of a rank.
var streams = [...]lowering.Stream{lowering.Compute, lowering.Comm}

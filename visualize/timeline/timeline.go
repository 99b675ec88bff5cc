// Package timeline draws the events of ranks over time, both of runs measured on a device and of
// runs predicted by the virtual device. A [Log] collects the events of a run; [Trace] writes them
// for Perfetto (ui.perfetto.dev, chrome://tracing), and [SVG] draws typical steps.
package timeline

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Run is the events of ranks, step by step.
type Run struct {
	Name  string // measured on cpu; predicted for a100-nvlink
	Steps []Step
}

// Step is a batch.
type Step struct {
	Name   string // the batch, such as 512 tokens
	Events []exec.Event
}

// Bounds returns when the first event of a step began and the last one ended, in seconds.
func (s *Step) Bounds() (from, to float64) {
	for i, e := range s.Events {
		if i == 0 || e.Start < from {
			from = e.Start
		}
		to = max(to, e.End)
	}
	return from, to
}

// NameOf describes a batch.
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

// Log collects a run: Batch and Record are callbacks for [exec.Options], and Record also for a
// virtual device.
type Log struct {
	Run
	Most int // bound of events: further steps are only counted
	Left int // number of these steps
	kept int
	name string
}

// Batch notes a batch before it runs.
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

// Full reports whether the log has Most events.
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

// ranksOf returns the number of ranks of runs.
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

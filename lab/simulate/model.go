// Package simulate predicts a deployment of a model on hardware that need not be present: times and
// memory of whole generations, what fits, and the best strategy. Times are those of exec/virtual,
// and memory is that of the schedules' plan.
package simulate

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Workload is a batch of sequences of equal length, which start together.
type Workload struct {
	Batch  int // sequences
	Prompt int // tokens of each
	Output int // generated tokens of each; prefill gives the first
	Chunk  int // prefill chunk, in tokens of each prompt; 0: the whole prompt
	Drafts Drafts
}

// usual is the workload that nothing else is known of.
var usual = Workload{Batch: 1, Prompt: 512, Output: 64}

// check returns an error for numbers out of range.
func (w *Workload) check() error {
	for _, x := range []struct {
		what  string
		n     int
		least int
	}{{"batch", w.Batch, 1}, {"prompt", w.Prompt, 1}, {"output", w.Output, 1}, {"chunk", w.Chunk, 0}} {
		if x.n < x.least || x.n > most {
			return fmt.Errorf("%s is %d; it must be from %d to %d", x.what, x.n, x.least, int64(most))
		}
	}
	return w.Drafts.check()
}

func (w *Workload) chunk() int {
	if w.Chunk == 0 || w.Chunk > w.Prompt {
		return w.Prompt
	}
	return w.Chunk
}

// Model is a deployed model on its ranks.
type Model struct {
	Plan      *lowering.Plan
	schedules []*lowering.Schedule
	device    *virtual.Device
	machine   *virtual.Machine
	wanted    lowering.OutputMask // of steps that give tokens
	beside    *Model              // that decodes in the same engine; nil: this one does
	inSteps   bool                // decode does not run in turns
}

// pageTokens is the tokens of a KV page, as in the engine.
const pageTokens = 128

// New returns a model for the schedules of all ranks. record gets the events of ranks, and may be
// nil.
func New(schedules []*lowering.Schedule, d *virtual.Device, record exec.Recorder) (*Model, error) {
	m := &Model{schedules: schedules, device: d}
	var err error
	if m.Plan, err = lowering.NewPlan(schedules); err != nil {
		return nil, err
	}
	free := *d
	free.Unlimited = true // Fits checks memory before a run
	if m.machine, err = virtual.New(schedules, &free, exec.Setup{PageTokens: pageTokens, Record: record}); err != nil {
		return nil, err
	}
	if m.wanted, err = lowering.Giver(schedules).Want(graph.ChosenOutput); err != nil {
		return nil, fmt.Errorf("the graph chooses no tokens: %w", err)
	}
	m.arrange(usual)
	return m, nil
}

// Mesh is the mesh of the ranks; empty where they are along one axis.
func (m *Model) Mesh() graph.Mesh { return m.schedules[0].Mesh }

// Phase is prefill, or the decode of the tokens after the first.
type Phase struct {
	Seconds float64 `json:"seconds"`
	Steps   int     `json:"steps"`
	// Collectives is the seconds in which a collective runs, and Exposed those in which kernels
	// hide neither it nor the waits.
	Collectives float64 `json:"collective_seconds"`
	Exposed     float64 `json:"exposed_seconds"`
	// Busy is the share of the time in which the busiest rank's kernels ran.
	Busy float64 `json:"busy"`
	// Stages has the pipeline stages, if there are several.
	Stages []Stage `json:"stages,omitempty"`
}

// Stage is the time of a pipeline stage, of its ranks with most. The rest is collectives.
type Stage struct {
	Busy   float64 `json:"busy_seconds"`   // kernels run
	Bubble float64 `json:"bubble_seconds"` // it waits for other stages
}

func (p *Phase) add(s *virtual.Span, times int) {
	n := float64(times)
	p.Busy = (p.Busy*p.Seconds + n*slices.Max(s.Busy)) / (p.Seconds + n*s.Seconds())
	p.Seconds += n * s.Seconds()
	p.Collectives += n * s.Travelled
	p.Exposed += n * s.Exposed()
	p.Steps += times
	if len(p.Stages) == 0 {
		p.Stages = make([]Stage, len(s.Stages))
	}
	for i, x := range s.Stages {
		p.Stages[i].Busy += n * x.Busy
		p.Stages[i].Bubble += n * x.Idle
	}
}

// wait adds time in which kernels run beside steps.
func (p *Phase) wait(seconds float64) {
	if seconds > 0 {
		p.Busy = (p.Busy*p.Seconds + seconds) / (p.Seconds + seconds)
		p.Seconds += seconds
	}
}

// Result is the times and memory of a workload.
type Result struct {
	Prefill Phase `json:"prefill"`
	Decode  Phase `json:"decode"`
	// TTFT is the seconds to the first token of all sequences, TPOT the mean from one token to the
	// next; 0 for one token.
	TTFT float64 `json:"ttft_seconds"`
	TPOT float64 `json:"tpot_seconds"`
	// Throughput is the generated tokens of all sequences per second.
	Throughput float64 `json:"tokens_per_second"`
	Memory     []Need  `json:"memory"` // by rank
	// Speculation is what drafts give; nil: the workload has none.
	Speculation *Speculation `json:"speculation,omitempty"`
	Links       []Link       `json:"links,omitempty"` // of ranks on several nodes
}

// Seconds returns the time of the whole workload.
func (r *Result) Seconds() float64 { return r.Prefill.Seconds + r.Decode.Seconds }

// Run simulates a workload. The error is a [*NoRoom] if it does not fit into memory.
func (m *Model) Run(w Workload) (*Result, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	if total := float64(w.Prompt) + float64(w.Output); float64(w.Batch)*total*total > 1<<62 {
		return nil, fmt.Errorf("a batch of %d sequences of %.0f tokens is too large to count", w.Batch, total)
	}
	if err := m.Fits(w); err != nil {
		return nil, err
	}
	m.arrange(w)
	r := &Result{Memory: m.needs(w)}
	chunk := w.chunk()
	for at := 0; at < w.Prompt; at += chunk {
		n, rows, wanted := min(chunk, w.Prompt-at), 1, m.wanted
		if at+n < w.Prompt {
			rows, wanted = 0, make(lowering.OutputMask, len(m.wanted))
		}
		s, err := m.machine.Run(m.sizes(w, at, n, rows), wanted)
		if err != nil {
			return nil, err
		}
		r.Prefill.add(&s, 1)
	}
	r.linked(m, passes.Phases[0])
	r.TTFT = r.Prefill.Seconds
	if err := m.decode(r, w, w.Output-1); err != nil {
		return nil, err
	}
	r.Throughput = float64(w.Batch) * float64(w.Output) / r.Seconds()
	return r, nil
}

// decode adds the decode of n tokens of each sequence.
func (m *Model) decode(r *Result, w Workload, n int) error {
	if n == 0 {
		return nil
	}
	run := m.machine.Turns
	if m.inSteps {
		run = m.machine.Run
	}
	for i := range n {
		s, err := run(m.sizes(w, w.Prompt+i, 1, 1), m.wanted)
		if err != nil {
			return err
		}
		r.Decode.add(&s, 1)
	}
	r.linked(m, passes.Phases[1])
	if w.Drafts.Number > 0 {
		without := r.Decode.Seconds
		r.Decode = Phase{}
		if err := m.speculate(&r.Decode, w, n); err != nil {
			return err
		}
		r.Speculation = &Speculation{w.Drafts, w.Drafts.Tokens(), without / float64(n), without / r.Decode.Seconds}
	}
	r.TPOT = r.Decode.Seconds / float64(n)
	return nil
}

// Step returns the time of a step in which each sequence of a batch has n tokens after past others,
// and gets a token.
func (m *Model) Step(batch, past, n int) (virtual.Span, error) {
	return m.machine.Run(m.sizes(Workload{Batch: batch}, past, n, 1), m.wanted)
}

// sizes returns the sizes of a step in which each sequence has n tokens after past others, and gets
// logits for rows of them.
func (m *Model) sizes(w Workload, past, n, rows int) graph.Sizes {
	b, at, k := int64(w.Batch), int64(past), int64(n)
	z := graph.Sizes{Tokens: b * k, Seqs: b, Rows: b * int64(rows), Largest: graph.EvenShare(m.Plan.RowPlace, b, k, int64(m.Plan.RowRanks))}
	if m.attends() { // otherwise steps do not depend on the past
		z.Cached, z.Pairs = b*(at+k), b*(k*at+k*(k+1)/2)
	}
	return z
}

func (m *Model) attends() bool {
	return slices.ContainsFunc(m.Plan.Ranks, func(r lowering.RankPlan) bool { return r.Cache > 0 })
}

// Package simulate says what a deployment of a model would do on hardware that need not
// be there: times and memory of whole generations, what fits, and which strategy is best.
// Times are those of exec/virtual, memory is that of the schedules' own plan.
package simulate

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Workload is what is asked of a deployment: a batch of sequences of one length, which
// begin and go on together.
type Workload struct {
	Batch  int // sequences
	Prompt int // tokens of each
	Output int // tokens that each goes on for, the first of which the prompts give
	Chunk  int // tokens of each prompt that go through the model at once; 0: all
}

// check is an error for what nobody can ask for.
func (w *Workload) check() error {
	for _, x := range []struct {
		what  string
		n     int
		least int
	}{{"batch", w.Batch, 1}, {"prompt", w.Prompt, 1}, {"output", w.Output, 1}, {"chunk", w.Chunk, 0}} {
		if x.n < x.least || x.n > most {
			return fmt.Errorf("%s %d: %d to %d are possible", x.what, x.n, x.least, int64(most))
		}
	}
	return nil
}

func (w *Workload) chunk() int {
	if w.Chunk == 0 || w.Chunk > w.Prompt {
		return w.Prompt
	}
	return w.Chunk
}

// Model is a model on its ranks, as it would be deployed.
type Model struct {
	Plan      *lowering.Plan
	schedules []*lowering.Schedule
	device    *virtual.Device
	machine   *virtual.Machine
	wanted    lowering.Wanted // of steps that give tokens
}

// pageTokens is how many tokens a page of attention's caches has, as engines have it.
const pageTokens = 128

// New is for the schedules of all ranks. Record is given what ranks do when; nil: nobody
// asks.
func New(schedules []*lowering.Schedule, d *virtual.Device, record exec.Recorder) (*Model, error) {
	m := &Model{schedules: schedules, device: d}
	var err error
	if m.Plan, err = lowering.NewPlan(schedules); err != nil {
		return nil, err
	}
	free := *d
	free.Unlimited = true // what fits is looked at before anything runs
	if m.machine, err = virtual.New(schedules, &free, exec.Setup{PageTokens: pageTokens, Record: record}); err != nil {
		return nil, err
	}
	if m.wanted, err = schedules[0].Want(graph.ChosenOutput); err != nil {
		return nil, fmt.Errorf("the graph chooses no tokens: %w", err)
	}
	return m, nil
}

// Phase is the reading of the prompts, or the tokens after the first.
type Phase struct {
	Seconds float64 `json:"seconds"`
	Steps   int     `json:"steps"`
	// Collectives is for how long some collective was under way, and Exposed for how long
	// no rank's kernels hid them, nor the waiting for each other.
	Collectives float64 `json:"collective_seconds"`
	Exposed     float64 `json:"exposed_seconds"`
	// Busy is the share of the time in which the busiest rank's kernels ran.
	Busy float64 `json:"busy"`
}

func (p *Phase) add(s *virtual.Span, times int) {
	n := float64(times)
	p.Busy = (p.Busy*p.Seconds + n*slices.Max(s.Busy)) / (p.Seconds + n*s.Seconds())
	p.Seconds += n * s.Seconds()
	p.Collectives += n * s.Travelled
	p.Exposed += n * s.Exposed()
	p.Steps += times
}

// Result is what a workload takes.
type Result struct {
	Prefill Phase `json:"prefill"`
	Decode  Phase `json:"decode"`
	// TTFT is the seconds from the prompts to the first token of each, TPOT those from a
	// token to the next on average, 0 where there is one only.
	TTFT float64 `json:"ttft_seconds"`
	TPOT float64 `json:"tpot_seconds"`
	// Throughput is the tokens of output per second, of all sequences.
	Throughput float64 `json:"tokens_per_second"`
	Memory     []Need  `json:"memory"` // by rank
}

// Seconds is how long all of it takes.
func (r *Result) Seconds() float64 { return r.Prefill.Seconds + r.Decode.Seconds }

// Run simulates a workload. One that does not fit into memory is an error, a [*NoRoom].
func (m *Model) Run(w Workload) (*Result, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	if total := float64(w.Prompt) + float64(w.Output); float64(w.Batch)*total*total > 1<<62 {
		return nil, fmt.Errorf("a batch of %d sequences of %.0f tokens: these are more than can be counted", w.Batch, total)
	}
	if err := m.Fits(w); err != nil {
		return nil, err
	}
	r := &Result{Memory: m.needs(w)}
	chunk := w.chunk()
	for at := 0; at < w.Prompt; at += chunk {
		n, wanted := min(chunk, w.Prompt-at), m.wanted
		if at+n < w.Prompt {
			wanted = make(lowering.Wanted, len(m.wanted))
		}
		s, err := m.machine.Run(m.sizes(w, at, n, at+n == w.Prompt), wanted)
		if err != nil {
			return nil, err
		}
		r.Prefill.add(&s, 1)
	}
	for i := range w.Output - 1 {
		s, err := m.machine.Run(m.sizes(w, w.Prompt+i, 1, true), m.wanted)
		if err != nil {
			return nil, err
		}
		r.Decode.add(&s, 1)
	}
	r.TTFT = r.Prefill.Seconds
	if w.Output > 1 {
		r.TPOT = r.Decode.Seconds / float64(w.Output-1)
	}
	r.Throughput = float64(w.Batch) * float64(w.Output) / r.Seconds()
	return r, nil
}

// Step is the time of one step in which every sequence of a batch has n tokens after some
// others, the last of which give a token each.
func (m *Model) Step(batch, past, n int) (virtual.Span, error) {
	return m.machine.Run(m.sizes(Workload{Batch: batch}, past, n, true), m.wanted)
}

// sizes are those of a step in which every sequence has n tokens after some others.
func (m *Model) sizes(w Workload, past, n int, rows bool) graph.Sizes {
	b, at, k, ranks := int64(w.Batch), int64(past), int64(n), int64(len(m.schedules))
	z := graph.Sizes{Tokens: b * k, Seqs: b, Largest: graph.EvenShare(b, k, ranks)}
	if rows {
		z.Rows = b
	}
	if m.attends() { // else steps after any number of tokens are the same
		z.Cached, z.Pairs = b*(at+k), b*(k*at+k*(k+1)/2)
	}
	return z
}

func (m *Model) attends() bool {
	return slices.ContainsFunc(m.Plan.Ranks, func(r lowering.RankPlan) bool { return r.Cache > 0 })
}

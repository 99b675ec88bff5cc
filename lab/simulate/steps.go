package simulate

import (
	"math/bits"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/schedule"
)

// Limits returns the limits of a server's scheduler, by the memory plan that it would have.
func (m *Model) Limits(o session.Options) (schedule.Limits, error) {
	if o.Memory = session.AllMemory; m.device.Unlimited {
		o.Memory = 0
	}
	vocab := m.vocab()
	plan, err := session.Plan(m.schedules, o, m.device, vocab)
	return session.Limits(m.schedules, o, plan, vocab), err
}

// vocab returns the columns of the logits.
func (m *Model) vocab() int {
	s := lowering.Giver(m.schedules)
	for i := range s.Steps {
		if st := &s.Steps[i]; st.Op != nil && st.Op.Name == "choose" {
			return st.Args[0].Type.Dims[1].Len()
		}
	}
	return 1
}

// Steps has the times of steps of any mix of prompts and tokens, for simulations of traffic: a time
// is computed once for sizes that agree in their first five binary digits.
type Steps struct {
	m       *Model
	attends bool
	known   map[graph.Sizes]float64
	trials  map[[2]int][2]float64
}

// Steps returns the times of the model's steps.
func (m *Model) Steps() *Steps {
	return &Steps{m, m.attends(), map[graph.Sizes]float64{}, map[[2]int][2]float64{}}
}

// Step returns the time of a step.
func (s *Steps) Step(z graph.Sizes) (float64, error) {
	mixed := z.Tokens > z.Seqs // not as captured graphs run
	for _, n := range []*int64{&z.Tokens, &z.Seqs, &z.Rows, &z.Cached, &z.Pairs} {
		*n = rounded(*n)
	}
	if mixed {
		z.Tokens = max(z.Tokens, z.Seqs+1)
	}
	if !s.attends {
		z.Cached, z.Pairs = 0, 0
	}
	seconds, ok := s.known[z]
	if !ok {
		var err error
		if seconds, err = s.run(z); err != nil {
			return 0, err
		}
		s.known[z] = seconds
	}
	return seconds, nil
}

// run runs a step, in which ranks have equal shares of sequences or their tokens.
func (s *Steps) run(z graph.Sizes) (float64, error) {
	wanted := s.m.wanted
	if z.Rows == 0 {
		wanted = make(lowering.OutputMask, len(wanted))
	}
	z.Largest = graph.EvenShare(s.m.Plan.RowPlace, z.Seqs, (z.Tokens+z.Seqs-1)/z.Seqs, int64(s.m.Plan.RowRanks))
	span, err := s.m.machine.Run(z, wanted)
	return span.Seconds(), err
}

// Trial returns the time beside a step that trials of drafts take.
func (s *Steps) Trial(trials, tokens int) (keep, replay float64) {
	z := [2]int{trials, tokens}
	times, ok := s.trials[z]
	if !ok {
		times[0], times[1] = s.m.machine.TrialSeconds(trials, tokens)
		s.trials[z] = times
	}
	return times[0], times[1]
}

// rounded rounds a size to five binary digits.
func rounded(n int64) int64 {
	drop := max(bits.Len64(uint64(n))-5, 0)
	return (n + 1<<drop>>1) >> drop << drop
}

package cpu

import (
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// passed is the rows of states that a step of a chain passes in a batch.
type passed struct {
	by   func(tokens int) bool // whether a sequence's state passes
	rows []kernels.Tensor
}

// newPassed is for a step that passes states, and nil for any other.
func newPassed(s *lowering.Schedule, st *lowering.Step) *passed {
	if by := s.PassedBy(st); by != nil {
		return &passed{by: by}
	}
	return nil
}

// find gives the collective the rows of the batch's sequences, and reports whether any pass.
func (p *passed) find(st *step) bool {
	last := len(st.call.Args) - 1
	seg := &st.call.Args[last]
	p.rows = p.rows[:0]
	for i := range seg.Rows() {
		_, tokens, slot := seg.Segment(i)
		if !p.by(tokens) {
			continue
		}
		for k := range last {
			p.rows = append(p.rows, st.call.Args[k].Cut(slot, 1))
		}
	}
	st.collective.Args, st.collective.Results = p.rows, nil
	if st.Op == lowering.ReceiveStates {
		st.collective.Args, st.collective.Results = nil, p.rows
	}
	return len(p.rows) > 0
}

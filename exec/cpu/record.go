package cpu

import (
	"time"

	"github.com/krait-ml/krait/exec"
)

// recording records what ranks did when. The events of a rank are in its own list until the step
// ends.
type recording struct {
	to     exec.Recorder // nil: not called
	asked  func() bool   // whether to record a step; nil: always
	origin time.Time
	all    []exec.Event
}

// record tells the idle ranks whether to record the next step.
func (m *machine) record() {
	on := m.recording.to != nil && (m.asked == nil || m.asked())
	for _, r := range m.ranks {
		r.recorded = on
	}
}

// timed is do, and records it where the step is recorded.
func (r *rank) timed(st *step) error {
	if !r.recorded {
		return r.do(st)
	}
	before, start := st.ran.bytes, time.Since(r.origin)
	err := r.do(st)
	r.events = append(r.events, exec.Event{
		Rank: r.s.World(), Stream: st.Stream, Kind: st.Kind, Name: st.Name, Op: st.Op.Name,
		Start: start.Seconds(), End: time.Since(r.origin).Seconds(), Bytes: st.ran.bytes - before,
	})
	return err
}

// tell passes the events of a completed step to the recorder.
func (m *machine) tell() {
	if !m.ranks[0].recorded {
		return
	}
	m.recording.all = m.recording.all[:0]
	for _, r := range m.ranks {
		m.recording.all = append(m.recording.all, r.events...)
	}
	m.recording.to(m.recording.all)
}

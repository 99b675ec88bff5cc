package cpu

import (
	"time"

	"github.com/krait-ml/krait/exec"
)

// recording is what ranks did when, for who asks; events of a rank are in its own list
// until the step has ended.
type recording struct {
	to     exec.Recorder // nil: nobody
	asked  func() bool   // whether a step is to be; nil: each is
	origin time.Time
	all    []exec.Event
}

// record says to the ranks, which stand still, whether the step that follows is to be recorded.
func (m *machine) record() {
	on := m.recording.to != nil && (m.asked == nil || m.asked())
	for _, r := range m.ranks {
		r.recorded = on
	}
}

// timed is do, and writes down when it began and ended, for who wants to know.
func (r *rank) timed(st *step) error {
	if !r.recorded {
		return r.do(st)
	}
	before, start := st.ran.bytes, time.Since(r.origin)
	err := r.do(st)
	r.events = append(r.events, exec.Event{
		Rank: r.s.Rank, Stream: st.Stream, Kind: st.Kind, Name: st.Name, Op: st.Op.Name,
		Start: start.Seconds(), End: time.Since(r.origin).Seconds(), Bytes: st.ran.bytes - before,
	})
	return err
}

// tell hands over the events of a step that has ended.
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

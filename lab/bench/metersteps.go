package bench

import (
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/graph"
)

// MeterStep is an operation of the schedule with the counts of its launches.
type MeterStep struct {
	Name     string  `json:"name"` // first result
	Op       string  `json:"op"`
	Launches int     `json:"launches"`
	Bytes    int64   `json:"bytes"`
	Modelled float64 `json:"modelled_seconds"`
	// Roofline is the seconds to move operands and results once, or of the arithmetic in bf16.
	Roofline float64 `json:"floor_seconds"`
}

// meterSteps has steps by name.
type meterSteps map[string]*MeterStep

// add adds a launch and its modelled seconds.
func (m meterSteps) add(d *sim.Done, took float64) {
	s := m[d.For]
	if s == nil {
		s = &MeterStep{Name: d.For}
		m[d.For] = s
	}
	s.Launches++
	s.Bytes += d.Loads.Distinct + d.Stores.Distinct
	s.Modelled += took
}

// list returns the steps with launches, in the schedule's order.
func (m meterSteps) list(r *meterRun, z graph.Sizes) (list []MeterStep) {
	for i := range r.schedule.Steps {
		st := &r.schedule.Steps[i]
		if s := m[st.Name]; s != nil && st.Op != nil {
			s.Op = st.Op.Name
			s.Roofline = max(float64(st.Cost.Read.At(z)+st.Cost.Write.At(z))/bandwidth(r.Profile), float64(st.Cost.FLOPs.At(z))/max(rateOf(r.Profile, "f32"), rateOf(r.Profile, "bf16")))
			list = append(list, *s)
		}
	}
	return list
}

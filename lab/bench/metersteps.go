package bench

import (
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/graph"
)

// MeteredStep is an operation of the schedule with the counts of its launches.
type MeteredStep struct {
	Name     string  `json:"name"` // first result
	Op       string  `json:"op"`
	Launches int     `json:"launches"`
	Bytes    int64   `json:"bytes"`
	Modelled float64 `json:"modelled_seconds"`
	// Roofline is the seconds to move operands and results once, or of the arithmetic in bf16.
	Roofline float64 `json:"floor_seconds"`
}

// meteredSteps has steps by name.
type meteredSteps map[string]*MeteredStep

// add adds a launch and its modelled seconds.
func (m meteredSteps) add(d *sim.Done, took float64) {
	s := m[d.For]
	if s == nil {
		s = &MeteredStep{Name: d.For}
		m[d.For] = s
	}
	s.Launches++
	s.Bytes += d.Loads.Distinct + d.Stores.Distinct
	s.Modelled += took
}

// list returns the steps with launches, in the schedule's order.
func (m meteredSteps) list(r *meterRun, z graph.Sizes) (list []MeteredStep) {
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

package bench

import (
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/graph"
)

// MeteredStep is a step of the schedule: an operation, and what it launched.
type MeteredStep struct {
	Name     string  `json:"name"` // of its first result
	Op       string  `json:"op"`
	Launches int     `json:"launches"`
	Bytes    int64   `json:"bytes"`
	Modelled float64 `json:"modelled_seconds"`
	// Floor is the seconds that its operands and results through memory once take, or its
	// arithmetic at the rate of bf16.
	Floor float64 `json:"floor_seconds"`
}

// meteredSteps are steps by name.
type meteredSteps map[string]*MeteredStep

// add enters a launch that is modelled to take so many seconds.
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

// list gives those of the schedule that launched something, in its order.
func (m meteredSteps) list(r *meterRun, z graph.Sizes) (list []MeteredStep) {
	for i := range r.schedule.Steps {
		st := &r.schedule.Steps[i]
		if s := m[st.Name]; s != nil && st.Op != nil {
			s.Op = st.Op.Name
			s.Floor = max(float64(st.Cost.Read.At(z)+st.Cost.Write.At(z))/bandwidth(r.Profile), float64(st.Cost.FLOPs.At(z))/max(rateOf(r.Profile, "f32"), rateOf(r.Profile, "bf16")))
			list = append(list, *s)
		}
	}
	return list
}

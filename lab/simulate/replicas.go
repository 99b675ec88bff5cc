package simulate

import (
	"fmt"
	"math"
)

// Replicas are copies of a model beside each other, among which a batch is divided: data
// parallel.
type Replicas struct {
	Number int // 0: one
	// Efficiency is what of the replicas' throughput is left when they run beside each
	// other, and share a host; 0: 1, all of it.
	Efficiency float64
}

// Check is an error for replicas that cannot be.
func (p Replicas) Check() error {
	const most = 1 << 20
	switch e := p.efficiency(); {
	case p.Number < 0 || p.Number > most:
		return fmt.Errorf("%d replicas; 1 to %d are possible", p.Number, most)
	case !(e > 0 && e <= 1):
		return fmt.Errorf("replicas of an efficiency of %g; it is more than 0 and at most 1", e)
	}
	return nil
}

func (p Replicas) number() int { return max(1, p.Number) }

func (p Replicas) efficiency() float64 {
	if p.Efficiency == 0 {
		return 1
	}
	return p.Efficiency
}

// Each is the workload of the replica that has most of it.
func (p Replicas) Each(w Workload) Workload {
	w.Batch = int(math.Ceil(float64(w.Batch) / float64(p.number())))
	return w
}

// All is what all replicas do with a workload, by the result of one of them with its
// part: times are longer, and throughput is less, by what the efficiency leaves.
func (p Replicas) All(w Workload, one *Result) *Result {
	if p.number() == 1 {
		return one
	}
	r, e := *one, p.efficiency()
	r.TTFT, r.TPOT = r.TTFT/e, r.TPOT/e
	r.Throughput = float64(w.Batch) * float64(w.Output) / (one.Seconds() / e)
	return &r
}

package simulate

import (
	"fmt"
	"math"
)

// Replicas are data-parallel copies of a model that divide a batch.
type Replicas struct {
	Number int // 0: one
	// Efficiency is the share of the replicas' throughput that remains when they share a host; 0: 1.
	Efficiency float64
}

// Check returns an error for numbers out of range.
func (p Replicas) Check() error {
	const most = 1 << 20
	switch e := p.efficiency(); {
	case p.Number < 0 || p.Number > most:
		return fmt.Errorf("%d replicas; there must be 1 to %d", p.Number, most)
	case !(e > 0 && e <= 1):
		return fmt.Errorf("the replicas' efficiency is %g; it must be above 0 and at most 1", e)
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

// Each returns the workload of the replica with the largest part.
func (p Replicas) Each(w Workload) Workload {
	w.Batch = int(math.Ceil(float64(w.Batch) / float64(p.number())))
	return w
}

// All returns the result of all replicas from that of one with its part. The efficiency makes times
// longer and throughput lower.
func (p Replicas) All(w Workload, one *Result) *Result {
	if p.number() == 1 {
		return one
	}
	r, e := *one, p.efficiency()
	r.TTFT, r.TPOT = r.TTFT/e, r.TPOT/e
	r.Throughput = float64(w.Batch) * float64(w.Output) / (one.Seconds() / e)
	return &r
}

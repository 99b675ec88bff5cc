package calibrate

import (
	"fmt"
	"time"
)

// remaining estimates how long equal rounds of measurements take, by the first of them.
type remaining struct {
	now   func() time.Time
	each  int             // measurements of a round
	total int             // of all rounds
	took  []time.Duration // of those that have ended
	began time.Time       // of the running one
}

func newRemaining(now func() time.Time, each, rounds int) *remaining {
	return &remaining{now: now, each: each, total: each * rounds, began: now()}
}

// next ends a measurement and begins the next.
func (r *remaining) next() {
	now := r.now()
	r.took = append(r.took, now.Sub(r.began))
	r.began = now
}

// String returns the number of the measurement that begins and, after the first round, the
// estimated time of all that remain.
func (r *remaining) String() string {
	n := len(r.took)
	text := fmt.Sprintf("%d of %d", n+1, r.total)
	if n < r.each {
		return text
	}
	var left time.Duration
	for i := n; i < r.total; i++ {
		left += r.took[i%r.each]
	}
	return text + fmt.Sprintf(", about %v left", left.Round(time.Second))
}

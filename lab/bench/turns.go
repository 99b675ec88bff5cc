package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/krait-ml/krait/internal/quantile"
)

// Spread is the median, least and most of measurements.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func spreadOf(list []float64) Spread {
	if len(list) == 0 {
		return Spread{}
	}
	return Spread{quantile.Median(list), slices.Min(list), slices.Max(list)}
}

func (s Spread) String() string {
	return fmt.Sprintf("%.1f (%.1f to %.1f)", s.Median, s.Least, s.Most)
}

// GB returns bytes as billions of bytes.
func (s Spread) GB() Spread { return Spread{s.Median / 1e9, s.Least / 1e9, s.Most / 1e9} }

// turns measures work and reads of memory in turns, since bandwidth can change by the second: a
// share of the roofline is that of the reads right before and after the work.
type turns struct {
	read func() float64 // returns bytes per second; nil: none
	long time.Duration  // of work between two reads, at least

	reads []float64
	list  []turn
	group []time.Duration // since the last read
}

// turn is the median time of work between two reads, and their mean in bytes per second.
type turn struct {
	took      time.Duration
	bandwidth float64
}

// start reads before the first work.
func (t *turns) start() {
	if t.read != nil {
		t.reads = append(t.reads, t.read())
	}
}

// add adds the time of a piece of work.
func (t *turns) add(took time.Duration) {
	t.group = append(t.group, took)
	var sum time.Duration
	for _, d := range t.group {
		sum += d
	}
	if sum >= t.long {
		t.end()
	}
}

// end reads after the last work.
func (t *turns) end() {
	if t.read != nil && len(t.group) > 0 {
		before, after := t.reads[len(t.reads)-1], t.read()
		t.reads = append(t.reads, after)
		t.list = append(t.list, turn{quantile.Median(t.group), (before + after) / 2})
	}
	t.group = nil
}

// share returns the median share of the roofline of work with these bytes and operations, where
// arithmetic has a rate.
func (t *turns) share(bytes, flops int64, rate float64) float64 {
	var list []float64
	for _, x := range t.list {
		list = append(list, least(bytes, flops, x.bandwidth, rate)/ms(max(x.took, 1)))
	}
	return spreadOf(list).Median
}

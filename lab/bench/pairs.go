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

// pairs measures work in turns with reads of memory, whose bandwidth can change by the second: a
// share of the roofline is that of the reads right before and after the work.
type pairs struct {
	read func() float64 // returns bytes per second; nil: there are no pairs
	long time.Duration  // of work between two reads, at least

	reads []float64
	list  []pair
	group []time.Duration // since the last read
}

// pair is the median time of work between two reads, and their mean in bytes per second.
type pair struct {
	took      time.Duration
	bandwidth float64
}

// start reads before the first work.
func (p *pairs) start() {
	if p.read != nil {
		p.reads = append(p.reads, p.read())
	}
}

// add adds the time of a piece of work.
func (p *pairs) add(took time.Duration) {
	p.group = append(p.group, took)
	var sum time.Duration
	for _, d := range p.group {
		sum += d
	}
	if sum >= p.long {
		p.end()
	}
}

// end reads after the last work.
func (p *pairs) end() {
	if p.read != nil && len(p.group) > 0 {
		before, after := p.reads[len(p.reads)-1], p.read()
		p.reads = append(p.reads, after)
		p.list = append(p.list, pair{quantile.Median(p.group), (before + after) / 2})
	}
	p.group = nil
}

// share returns the median share of the roofline of work with these bytes and operations, where
// arithmetic has a rate.
func (p *pairs) share(bytes, flops int64, rate float64) float64 {
	var list []float64
	for _, x := range p.list {
		list = append(list, least(bytes, flops, x.bandwidth, rate)/ms(max(x.took, 1)))
	}
	return spreadOf(list).Median
}

package cost

import (
	"math/bits"

	"github.com/krait-ml/krait/graph"
)

// Link is what connects ranks.
type Link struct {
	About       string
	Algorithms  []Algorithm
	Unavailable []string // algorithms the link lacks, each with the reason
	// Peers is the most bytes of an exchange that goes by one_shot or two_shot, which are kernels
	// that write into the others' memory: above it a library has it. Profiles without it have no
	// limit.
	Peers Figure
	// Straggle is how long ranks wait for the slowest of them where they meet, on average, in
	// seconds per second that their kernels ran since they met last. Profiles without it have 0.
	Straggle Figure
}

// Algorithm is a way to run collectives, by one protocol.
type Algorithm struct {
	Name, Protocol string
	Base           Figure // seconds of a collective, whatever it carries
	Step           Figure // seconds of each of the steps that follow each other
	Bandwidth      Figure // bytes per second that a rank sends
}

// algorithmNames are those that a profile has, or says that it has not.
var algorithmNames = []string{"ring", "tree", "one_shot", "two_shot"}

// Exchange is a collective as links see it.
type Exchange struct {
	Ranks  int
	Phases int     // 2: summed and made whole; 1: either
	Bytes  float64 // of all operands, each whole and once
	Sent   float64 // that a rank sends in a ring, on average
}

// ExchangeOf is a collective of a row, for operands whose bytes are given: all of them,
// and those that all ranks together send in a ring.
func ExchangeOf(op *graph.Op, ranks int, bytes, sent float64) Exchange {
	e := Exchange{Ranks: ranks, Bytes: bytes, Sent: sent / float64(ranks)}
	if op.From == graph.Partial {
		e.Phases++
	}
	if op.To == graph.Replicated {
		e.Phases++
	}
	return e
}

// Travel is how long an exchange takes by an algorithm, by level of hardware.
type Travel struct {
	Algorithm *Algorithm
	Legs      [numLevels]Leg
}

// Leg is the part of an exchange on one level.
type Leg struct {
	Sent    float64 // bytes by a rank, on average
	Latency float64 // seconds that pass whatever else runs
	Moving  float64 // seconds of the bytes, alone on their links
}

// Latency is the seconds that pass whatever else runs.
func (t *Travel) Latency() float64 { return t.Legs[Within].Latency + t.Legs[Between].Latency }

// Moving is the seconds of the bytes, alone on their links.
func (t *Travel) Moving() float64 { return t.Legs[Within].Moving + t.Legs[Between].Moving }

// Seconds is how long it takes alone on its links.
func (t *Travel) Seconds() float64 { return t.Latency() + t.Moving() }

// or is the faster one, or the first if they are equal.
func (t Travel) or(other Travel) Travel {
	if t.Algorithm != nil && (other.Algorithm == nil || t.Seconds() <= other.Seconds()) {
		return t
	}
	return other
}

// Best is the fastest algorithm for an exchange; of equal ones the first of the profile.
func (l *Link) Best(e Exchange) Travel {
	var best Travel
	for i := range l.Algorithms {
		a := &l.Algorithms[i]
		steps, sent, ok := a.takes(e)
		if !ok || l.tooLarge(a, e) {
			continue
		}
		best = best.or(Travel{a, [numLevels]Leg{Within: {sent, a.Base.Value + steps*a.Step.Value, sent / a.Bandwidth.Value}}})
	}
	return best
}

// tooLarge reports whether an algorithm is not for exchanges of that size.
func (l *Link) tooLarge(a *Algorithm, e Exchange) bool {
	return l.Peers.Source != "" && e.Bytes > l.Peers.Value && (a.Name == "one_shot" || a.Name == "two_shot")
}

// takes counts the steps that an algorithm takes one after another, and the bytes that a
// rank sends.
//
// A ring sends what [graph.Sent] says, in ranks-1 steps a phase. A tree adds up and hands
// down along two binary trees, so that each rank sends as much as in a ring. In one shot
// every rank sends all to every other; in two each sums a part, and sends that to all.
func (a *Algorithm) takes(e Exchange) (steps, sent float64, ok bool) {
	others := float64(e.Ranks - 1)
	switch {
	case a.Name == "ring":
		return float64(e.Phases) * others, e.Sent, true
	case a.Name == "tree":
		return 2 * float64(bits.Len(uint(e.Ranks-1))), e.Sent, e.Phases == 2
	case a.Name == "one_shot" && e.Phases == 2:
		return 1, others * e.Bytes, true
	case a.Name == "one_shot":
		return 1, e.Sent, true
	}
	return 2, e.Sent, e.Phases == 2
}

// Slowed is the time with links of which one is slower by a factor.
func (t Travel) Slowed(factor float64) Travel {
	for i := range t.Legs {
		t.Legs[i].Moving *= max(1, factor)
	}
	return t
}

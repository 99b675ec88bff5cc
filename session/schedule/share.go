package schedule

import "time"

// share divides time between decode and prefill: while there are both, prefill has at most a share
// of the time. The time of a step without its prefill is taken to be that of the last step without
// any, so that such a step runs now and then.
//
// It is fair queueing of two classes by their time (Demers, Keshav and Shenker, "Analysis and
// simulation of a fair queueing algorithm", 1989), with steps as packets.
type share struct {
	most  float64       // share of prefill; 0: no bound
	alone time.Duration // of the last step without prefill; 0: there was none
	owed  float64       // seconds of decode before prefill may run again
	mixed int           // consecutive steps with both
}

// mostMixed bounds the consecutive steps with prefill: alone is measured again then, since a step
// that was slow for other reasons may have set it.
const mostMixed = 8

// prefills reports whether the next step may prefill, beside decode or without.
func (s *share) prefills(decode bool) bool {
	return s.most == 0 || !decode || s.alone > 0 && s.owed <= 0 && s.mixed < mostMixed
}

// ran records the time of a step.
func (s *share) ran(took time.Duration, decode, prefill bool) {
	if s.most == 0 {
		return
	}
	switch {
	case !decode:
		s.owed, s.mixed = 0, 0
	case !prefill:
		s.alone, s.mixed = took, 0
		s.owed = max(s.owed-took.Seconds(), 0) // unused time is not saved up
	default:
		s.mixed++
		alone := min(took, s.alone)
		s.owed = max(s.owed+(took-alone).Seconds()*(1-s.most)/s.most-alone.Seconds(), 0)
	}
}

package schedule

import "time"

// share divides time between sequences that are continued and prompts that are read beside them: while there
// are both, prompts have at most a part of the time. What a step would have taken without its prompts is what the
// last one without took, so that such a step runs now and then.
//
// It is fair queueing of two classes by the time that each had (Demers, Keshav and Shenker, "Analysis and
// simulation of a fair queueing algorithm", 1989), with steps as packets.
type share struct {
	most  float64       // of the time, for prompts; 0: all that is left
	alone time.Duration // of the last step without prompts; 0: there was none
	owed  float64       // seconds that those that are continued are to have before prompts are read again
	mixed int           // steps in a row that did both
}

// mostMixed is how many steps in a row may read prompts: alone is measured anew then, which a step that took long for
// other reasons may have made.
const mostMixed = 8

// reads reports whether the next step may read prompts.
func (s *share) reads(continued bool) bool {
	return s.most == 0 || !continued || s.alone > 0 && s.owed <= 0 && s.mixed < mostMixed
}

// ran takes in how long a step took.
func (s *share) ran(took time.Duration, continued, read bool) {
	if s.most == 0 {
		return
	}
	switch {
	case !continued: // nobody waits for prompts
		s.owed, s.mixed = 0, 0
	case !read:
		s.alone, s.mixed = took, 0
		s.owed = max(s.owed-took.Seconds(), 0) // time that prompts did not want is not theirs later
	default:
		s.mixed++
		alone := min(took, s.alone)
		s.owed = max(s.owed+(took-alone).Seconds()*(1-s.most)/s.most-alone.Seconds(), 0)
	}
}

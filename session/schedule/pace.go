package schedule

import "time"

// pace decides how many drafts pay: the number with the most tokens expected per second. It knows
// from the times of steps what a draft adds to a step of as many sequences. No text depends on it.
type pace map[int]*speed // by the number of sequences that decode

// speed is that of steps without prefill.
type speed struct {
	plain   float64    // seconds of a step without drafts
	extra   float64    // seconds that a draft adds, as a share of plain
	seen    float64    // drafts that extra is measured by, the latest ones, and at first a guess
	last    [2]float64 // what drafts added to the last two steps with some
	drafted int        // steps with drafts since the last one without
	steps   int        // without drafts
}

// Constants of pace.
const (
	mostDrafted  = 64 // steps with drafts after which plain is measured again
	firstDrafted = 4  // the same, while plain is of fewer than leastSteps steps
	leastSteps   = 3
	firstDrafts  = 8    // what the guess counts as
	enoughDrafts = 32   // that the latest ones count as
	forget       = 1024 // plain steps in which measurements lose their weight
	leastExtra   = 0.005
)

// usualExtra is what a draft is taken to add before it is measured: a step reads the weights once,
// which takes as long as the arithmetic of about 12 tokens.
func usualExtra(sequences int) float64 { return 1 / float64(11+sequences) }

// ran records the time of a step without prefill.
func (p *pace) ran(sequences, drafts int, took time.Duration) {
	if *p == nil {
		*p = pace{}
	}
	s, t := (*p)[sequences], took.Seconds()
	switch {
	case t <= 0:
	case s == nil && drafts == 0:
		guess := usualExtra(sequences)
		(*p)[sequences] = &speed{plain: t, extra: guess, seen: firstDrafts, last: [2]float64{guess, guess}, steps: 1}
	case s == nil:
	case drafts == 0:
		if s.steps++; s.steps <= leastSteps { // the first one may be slow for other reasons
			s.plain = min(s.plain, t)
		} else {
			s.plain += (t - s.plain) / 8
		}
		s.extra += (usualExtra(sequences) - s.extra) / forget
		s.seen -= s.seen / forget
		s.drafted = 0
	default:
		n := float64(drafts)
		s.seen = min(s.seen, enoughDrafts) + n
		x, a, b := (t/s.plain-1)/n, s.last[0], s.last[1]
		middle := max(min(a, b), min(max(a, b), x)) // one step may be slow, or quick, for other reasons
		s.last = [2]float64{b, x}
		s.extra = max(s.extra+(middle-s.extra)*n/s.seen, leastExtra)
		s.drafted++
	}
}

// limit lowers the limits of the drafts of requests, in a step of more sequences that decode, to
// those that pay. It maximizes tokens over time by Dinkelbach's method: at a rate of tokens per
// time a draft pays if it is expected to be right more often than that rate times its time.
func (p *pace) limit(sequences int, drafting []*request) {
	s := (*p)[sequences]
	measure := s == nil || s.drafted >= mostDrafted || s.steps < leastSteps && s.drafted >= firstDrafted
	rate := float64(sequences)
	for range 4 {
		tokens, seconds := float64(sequences), 1.0
		for _, r := range drafting {
			if r.Eager {
				continue
			}
			n, expected := 0, 0.0
			if !measure {
				n, expected = r.odds[r.grade].pays(rate*s.extra, r.trial.limit)
				seconds += s.extra * float64(n)
			}
			tokens += expected
			r.pays = n
		}
		rate = max(rate, tokens/seconds)
	}
	for _, r := range drafting {
		if !r.Eager {
			r.trial.limit = r.pays
		}
	}
}

// odds estimates how often a draft is right if those before it are.
type odds struct{ right, tried float64 }

// share is the estimate, a half before anything is known.
func (o *odds) share() float64 { return (o.right + 0.5) / (o.tried + 1) }

// saw counts drafts of a trial.
func (o *odds) saw(right, tried int) {
	o.right += float64(right)
	o.tried += float64(tried)
}

// fade forgets over about 512 steps, so that a text in which drafts were wrong tries one again now
// and then. Such tries take that share of the time, for each grade.
func (o *odds) fade() {
	o.right *= 1 - 1.0/512
	o.tried *= 1 - 1.0/512
}

// pays returns the number of drafts, up to a limit, whose probability to be right is above a price,
// and the number of right ones expected of them.
func (o *odds) pays(price float64, limit int) (n int, expected float64) {
	share := o.share()
	for p := share; n < limit && p > price; p *= share {
		n++
		expected += p
	}
	return n, expected
}

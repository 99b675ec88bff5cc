// Package workload makes synthetic traces of requests for tests of caches and schedulers. Lengths
// and times are drawn from simple distributions, which the kinds document; the same options give
// the same trace. Sessions begin as a Poisson process.
//
// A new text begins with a token that no other text begins with, unless a vocabulary is given: its
// tokens are then drawn one by one.
package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/krait-ml/krait/session/prefix"
)

// Options configure a trace.
type Options struct {
	Kind     string  // of [Kinds]
	Sessions int     // 1 to [MostSessions]
	Seed     uint64  // of random numbers
	Rate     float64 // sessions that begin per second, on average; 0: 1
	Pause    float64 // mean seconds between requests of a session; below 0: the kind's default
	Regular  float64 // share of a pause that is the same for all, 0 to 1; the rest is exponential
	Vocab    int     // token ids are below it; 0: no bound, and a new text is a run of consecutive ids
}

// MostSessions of a trace.
const MostSessions = 1_000_000

// mostIDs bounds the token ids used when a session begins.
var mostIDs = math.MaxInt32 - prefix.MaxTokens

// Kind is a kind of trace.
type Kind struct {
	Name  string
	Doc   string
	pause float64
	begin func(*maker) func() []turn
}

// Kinds lists the kinds.
var Kinds = []Kind{
	{"chat", "conversations of about 5 turns on 4 system prompts of 200 to 1,200 tokens; messages of about 40 tokens, replies of about 200", 30, beginChat},
	{"agent", "trajectories of 5 to 40 steps on 3 system prompts of 2,000 to 6,000 tokens; a task of about 800 tokens, actions of about 120, observations of about 500", 5, beginAgent},
	{"fewshot", "short questions on 12 tasks of 1,000 to 6,000 tokens of examples, some asked far more often than others; one request each", 0, beginFewshot},
	{"docs", "12 documents of 8,000 to 30,000 tokens, about which one request in four asks; the others, of about 1,500 tokens, never come again", 0, beginDocs},
	{"tools", "trajectories of 8 steps on average, of a geometric distribution; a shared beginning of 1,500 tokens, tasks of about 1,500 and results of tools of about 400 with heavy tails (lognormal, sigma 1.3 and 1.5)", 5, beginTools},
}

// Names lists the names of the kinds.
func Names() []string {
	var names []string
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return names
}

// turn is the input that a session adds, and the output.
type turn struct{ asked, answered prefix.Tokens }

// Make returns a trace in order of time.
func Make(o Options) ([]prefix.Request, error) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == o.Kind })
	switch {
	case i < 0:
		return nil, fmt.Errorf("unknown trace %q; use one of %v", o.Kind, Names())
	case o.Sessions < 1 || o.Sessions > MostSessions:
		return nil, fmt.Errorf("%d sessions; there must be 1 to %d", o.Sessions, MostSessions)
	case o.Vocab < 0 || o.Vocab == 1 || o.Vocab > math.MaxInt32:
		return nil, fmt.Errorf("the vocabulary is %d; it must be 2 to %d, or 0 for no bound", o.Vocab, math.MaxInt32)
	}
	if err := o.checkTimes(); err != nil {
		return nil, err
	}
	if o.Rate == 0 {
		o.Rate = 1
	}
	if o.Pause < 0 {
		o.Pause = Kinds[i].pause
	}
	m := &maker{Options: o, rng: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
	session := Kinds[i].begin(m)
	begins := 0.0
	for range o.Sessions {
		begins += m.rng.ExpFloat64() / o.Rate
		m.play(begins, session())
		if m.next > mostIDs {
			return nil, errors.New("the sessions use up all token ids; give fewer, or a vocabulary")
		}
	}
	return m.sorted()
}

// checkTimes returns an error for times out of range.
func (o *Options) checkTimes() error {
	switch {
	case !(o.Rate >= 0 && o.Rate <= 1e9):
		return fmt.Errorf("%g sessions per second; the rate must be above 0 and at most 1e9", o.Rate)
	case !(o.Pause <= 1e9):
		return fmt.Errorf("pauses of %g seconds; they must be at most 1e9", o.Pause)
	case !(o.Regular >= 0 && o.Regular <= 1):
		return fmt.Errorf("a share of %g of pauses is regular; it must be from 0 to 1", o.Regular)
	}
	return nil
}

// maker draws a trace.
type maker struct {
	Options
	rng   *rand.Rand
	next  int // next unused token id
	trace []prefix.Request
	left  Left
}

// play adds the requests of a session, each of which contains all turns before.
func (m *maker) play(at float64, turns []turn) {
	var said prefix.Tokens
	var b prefix.Builder
	for i, t := range turns {
		if i > 0 {
			at += (m.Regular + (1-m.Regular)*m.rng.ExpFloat64()) * m.Pause
		}
		b.AppendTokens(said)
		b.AppendTokens(t.asked)
		n := b.Len()
		b.AppendTokens(t.answered)
		said = b.Tokens()
		m.trace = append(m.trace, prefix.Request{At: at, Tokens: said, InputLen: n})
	}
}

// sorted returns the trace in order of time, with distinct times in microseconds.
func (m *maker) sorted() ([]prefix.Request, error) {
	slices.SortStableFunc(m.trace, func(a, b prefix.Request) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	last := -1.0
	for i := range m.trace {
		last = max(last+1, math.Round(m.trace[i].At*1e6))
		m.trace[i].At = last / 1e6
	}
	if last /= 1e6; last > prefix.MostSeconds {
		return nil, fmt.Errorf("the last request comes after %g seconds, and a trace has at most %g: give a higher rate", last, prefix.MostSeconds)
	}
	return m.trace, nil
}

// text returns a new text of n tokens.
func (m *maker) text(n int) prefix.Tokens {
	var b prefix.Builder
	if m.Vocab == 0 {
		b.Append(int32(m.next), n)
		m.next += n + 1 // a gap, so that texts are not joined to one run
		return b.Tokens()
	}
	for range n {
		b.Append(int32(m.rng.IntN(m.Vocab)), 1)
	}
	return b.Tokens()
}

// between returns a new text of least to most tokens, uniformly distributed.
func (m *maker) between(least, most int) prefix.Tokens {
	return m.text(least + m.rng.IntN(most-least+1))
}

// about returns a new text with a lognormal length: half the lengths are within a factor of
// e^(0.67·spread) of the median, and none exceeds most.
func (m *maker) about(median, spread float64, most int) prefix.Tokens {
	n := int(math.Round(median * math.Exp(spread*m.rng.NormFloat64())))
	return m.text(min(max(n, 1), most))
}

// several returns n new texts of least to most tokens.
func (m *maker) several(n, least, most int) (texts []prefix.Tokens) {
	for range n {
		texts = append(texts, m.between(least, most))
	}
	return texts
}

func (m *maker) one(texts []prefix.Tokens) prefix.Tokens { return texts[m.rng.IntN(len(texts))] }

// after returns a text followed by another.
func after(a, b prefix.Tokens) prefix.Tokens {
	var both prefix.Builder
	both.AppendTokens(a)
	both.AppendTokens(b)
	return both.Tokens()
}

package schedule

import (
	"context"
	"time"
)

// Stepper runs a [Scheduler] step by step on a clock of the caller, in the caller's goroutine: it
// simulates traffic by the rules that a server has.
type Stepper struct {
	s     *Scheduler
	now   time.Time
	begun time.Time // of the step
	err   error     // of the step
	open  []visit   // requests that have not ended
	spare []visit   // memory for the next open
	used  []event
}

// Reader reads a request of a [Stepper].
type Reader interface {
	// Token gets a token.
	Token(Token)
	// Fetch begins a fetch of a request whose Fetch is not nil: it is not called, but done must be,
	// once and later. A nil Beginning without an error leaves the prompt to the scheduler.
	Fetch(done func(Beginning, error))
	// End gets the error of the request, or nil.
	End(err error)
}

// visit is a request and its reader.
type visit struct {
	*request
	reader Reader
}

// NewStepper makes a stepper, as [New] makes a scheduler.
func NewStepper(e Engine, l Limits, c Cache) (*Stepper, error) {
	s, err := New(e, l, c)
	if err != nil {
		return nil, err
	}
	p := &Stepper{s: s}
	s.manual, s.now = true, func() time.Time { return p.now }
	return p, nil
}

// Enter queues a request, or returns an error if it can never run.
func (p *Stepper) Enter(now time.Time, q Request, r Reader) error {
	p.now = now
	entered, err := p.s.enter(context.Background(), []Request{q})
	if err == nil {
		p.open = append(p.open, visit{entered[0], r})
	}
	return err
}

// Begin begins the next step: it runs the engine, and keeps the results for End. It reports whether
// there is a step to run; if not, all requests wait for their Fetch, or there is none.
func (p *Stepper) Begin(now time.Time) bool {
	if p.begun = now; len(p.s.parts) > 0 {
		panic("BUG: a step begins before the last one has ended")
	}
	p.now = now
	runs := p.s.prepare()
	if p.read(); runs {
		p.err = p.s.step()
	}
	return runs
}

// End ends the step.
func (p *Stepper) End(now time.Time) {
	p.now = now
	p.s.settle(p.err, now.Sub(p.begun))
	p.read()
}

// Load returns the scheduler's counts.
func (p *Stepper) Load() Load { return p.s.Load() }

// read gives the readers what has happened.
func (p *Stepper) read() {
	all := p.open
	p.open = p.spare[:0] // readers may call Enter
	for _, v := range all {
		if !p.tell(v) {
			p.open = append(p.open, v)
		}
	}
	clear(all)
	p.spare = all
}

// tell gives a reader what has happened to its request, and reports whether the request has ended.
func (p *Stepper) tell(v visit) (ended bool) {
	list, ended, err := v.poll(p.used)
	for _, e := range list {
		switch {
		case e.fetch:
			p.fetch(v)
		case e.call != nil:
			e.call(e.tokens)
		default:
			v.reader.Token(e.Token)
		}
	}
	clear(list)
	if p.used = list; ended {
		v.reader.End(err)
	}
	return ended
}

// fetch begins a request's fetch.
func (p *Stepper) fetch(v visit) {
	if !p.s.beginFetch(v.request) {
		return
	}
	v.reader.Fetch(func(from Beginning, err error) { p.s.endFetch(v.request, from, err) })
}

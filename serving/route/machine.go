package route

import (
	"context"
	"errors"
	"time"
)

// A machine is not asked for new things after a check that failed, and is taken for gone,
// with what it had begun, after so many in a row.
const misses = 3

// mostEjected bounds how often the time doubles for which a machine is left out.
const mostEjected = 5

// errGone is why a request ended that was asked of a machine which does not answer checks.
var errGone = errors.New("the machine is gone")

// errNotReady is a check's of a machine that is there, and takes nothing new: it drains, or loads.
var errNotReady = errors.New("it is not ready")

// machine is one of those that requests go to. Its pool's lock guards it, but for what does
// not change.
type machine struct {
	name  string
	check func(context.Context) error
	kick  chan struct{} // to check at once

	ready  bool
	missed int   // checks in a row that had no answer
	why    error // of the last check that failed
	alive  context.Context
	die    context.CancelCauseFunc

	failed  int // answers in a row that failed
	ejected int // how often in a row it was left out
	until   time.Time

	running int
	work    int64 // bytes that it has to read, and answers' tokens by answerBytes
	seen    seen
}

func newMachine(name string, check func(context.Context) error) *machine {
	m := &machine{name: name, check: check, kick: make(chan struct{}, 1)}
	m.alive, m.die = context.WithCancelCause(context.Background())
	return m
}

// checked takes in what a check said, and reports whether that is news.
func (m *machine) checked(err error) (news bool) {
	was, gone := m.ready, m.alive.Err() != nil
	m.ready, m.why = err == nil, err
	if err == nil || errors.Is(err, errNotReady) {
		m.missed = 0
		if gone {
			m.alive, m.die = context.WithCancelCause(context.Background())
		}
		return was != m.ready || gone
	}
	if m.missed++; m.missed == misses {
		m.die(errGone)
		m.seen = seen{} // it will begin with nothing
	}
	return was || m.missed == misses
}

// answered takes in how a request went, and reports whether the machine is left out for it.
func (m *machine) answered(ok bool, now time.Time, after int, pause time.Duration) (ejected bool) {
	if ok {
		m.failed, m.ejected = 0, 0
		return false
	}
	if now.Before(m.until) { // it was asked before that, or since all are left out
		return false
	}
	if m.failed++; m.failed < after {
		return false
	}
	m.until = now.Add(pause << min(m.ejected, mostEjected))
	m.failed = 0
	m.ejected++
	return true
}

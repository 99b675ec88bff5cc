package route

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// misses is how many checks in a row must fail until what a machine holds is forgotten, and, if
// they had no answer at all, until requests give it up whose connections are silent, too.
const misses = 3

// mostEjected bounds how often the time doubles for which a machine is left out.
const mostEjected = 5

// errSilent is why a request ended whose machine answers neither checks nor it.
var errSilent = errors.New("the machine is silent")

// errNotReady is a check's of a machine that is there, and takes nothing new: it drains, or loads.
var errNotReady = errors.New("it is not ready")

// machine is one of those that requests go to. Its pool's lock guards it, but for what does
// not change.
type machine struct {
	name  string
	check func(context.Context) error
	kick  chan struct{} // to check at once

	ready  bool
	missed int   // checks in a row that failed
	silent int   // of these, the last that had no answer at all
	why    error // of the last check that failed

	flights map[*flight]struct{}

	failed  int // answers in a row that failed
	ejected int // how often in a row it was left out
	until   time.Time

	running int
	work    int64 // bytes that it has to read, and answers' tokens by answerBytes
	seen    seen
}

func newMachine(name string, check func(context.Context) error) *machine {
	return &machine{name: name, check: check, kick: make(chan struct{}, 1)}
}

// checked takes in what a check said, and reports whether that is news. A machine that fails one
// gets nothing new. What it has begun goes on: a server that drains or whose port is closed still
// answers on connections that it has.
func (m *machine) checked(err error) (news bool) {
	was, gone := m.ready, m.gone()
	m.ready, m.why = err == nil, err
	switch {
	case err == nil || errors.Is(err, errNotReady):
		m.missed, m.silent = 0, 0
		return was != m.ready || gone
	case errors.Is(err, syscall.ECONNREFUSED): // its system lives, and ends connections of its process if that does not
		m.silent = 0
	default:
		m.silent++
	}
	if m.missed++; m.missed == misses {
		m.seen = seen{} // it will begin with nothing
	}
	return was || gone != m.gone()
}

// gone reports whether a machine has not answered checks for a while. It may hang, or its network
// may be cut, so that connections to it do not end by themselves.
func (m *machine) gone() bool { return m.silent >= misses }

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

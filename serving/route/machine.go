package route

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/krait-ml/krait/internal/balance"
)

// misses is the number of consecutive failed checks after which the router forgets the machine's
// prefix cache, and, if none had an answer, cancels its silent requests.
const misses = 3

// mostEjected bounds how often the ejection time doubles.
const mostEjected = 5

// errSilent cancels a request whose machine answers neither checks nor the request.
var errSilent = errors.New("the machine is silent")

// errNotReady is why a check fails of a machine that answers but takes no requests: it drains, or
// loads its model.
var errNotReady = errors.New("not ready")

// machine is a server or prefill server. Its pool's lock guards the fields that change.
type machine struct {
	name  string
	check func(context.Context) error
	kick  chan struct{} // triggers a check

	ready  bool
	missed int   // consecutive failed checks
	silent int   // of these, the last ones that had no answer at all
	why    error // the last check's

	flights map[*flight]struct{}

	failed  int       // consecutive failed answers
	ejected int       // consecutive ejections
	until   time.Time // end of the ejection

	load balance.Load
}

func newMachine(name string, check func(context.Context) error) *machine {
	return &machine{name: name, check: check, kick: make(chan struct{}, 1)}
}

// checked applies the result of a check, and reports whether the state changed. A machine that
// fails a check gets no new requests. Its active requests continue: a server that drains or has
// closed its port still answers on open connections.
func (m *machine) checked(err error) (news bool) {
	was, gone := m.ready, m.gone()
	m.ready, m.why = err == nil, err
	switch {
	case err == nil || errors.Is(err, errNotReady):
		m.missed, m.silent = 0, 0
		return was != m.ready || gone
	case errors.Is(err, syscall.ECONNREFUSED): // the host is up, and would reset the connections of a dead process
		m.silent = 0
	default:
		m.silent++
	}
	if m.missed++; m.missed == misses {
		m.load.Seen = balance.Prefixes{} // it will restart with an empty prefix cache
	}
	return was || gone != m.gone()
}

// gone reports whether the last checks had no answer. The machine may hang or its network be down,
// so that connections do not end by themselves.
func (m *machine) gone() bool { return m.silent >= misses }

// answered applies the outcome of a request, and reports whether it ejects the machine.
func (m *machine) answered(ok bool, now time.Time, after int, pause time.Duration) (ejected bool) {
	if ok {
		m.failed, m.ejected = 0, 0
		return false
	}
	if now.Before(m.until) { // the request began before the ejection, or all machines are ejected
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

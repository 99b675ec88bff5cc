// Package spin lets goroutines wait for each other: they spin for a while, which sees an event
// within a fraction of a microsecond, and then sleep, which takes no processor.
package spin

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	polite = 10 * time.Microsecond // of spinning, between two calls of Gosched
	looks  = 16                    // between two looks at the clock
)

// Patience is how long a goroutine spins before it sleeps. Waking it can take a tenth of the
// default. It must be set before anything waits.
var Patience = time.Millisecond

// Waiter is where one goroutine waits, again and again. The zero value is not fit for
// use: see [New].
type Waiter struct {
	crowded bool
	asleep  atomic.Bool
	wake    chan struct{} // has room for one token
}

// New makes a Waiter. If crowded, more goroutines want to run than there are processors, so
// spinning would delay the event, and the waiter sleeps at once.
func New(crowded bool) *Waiter {
	return &Waiter{crowded: crowded, wake: make(chan struct{}, 1)}
}

// Wait returns when ready returns true. The waiting goroutine calls it often; it reads atomics that
// others write before they call Wake.
func (w *Waiter) Wait(ready func() bool) {
	for !w.look(ready) {
		w.asleep.Store(true)
		if ready() && w.asleep.CompareAndSwap(true, false) {
			return
		}
		<-w.wake // from the one that reset asleep
	}
}

// look spins until ready returns true, and gives up after a while.
func (w *Waiter) look(ready func() bool) bool {
	if ready() {
		return true
	}
	if w.crowded {
		return false
	}
	start, gave := time.Now(), time.Duration(0)
	for {
		for range looks {
			if ready() {
				return true
			}
			pause()
		}
		took := time.Since(start)
		if took >= Patience {
			return ready()
		}
		if took-gave >= polite {
			gave = took
			runtime.Gosched()
		}
	}
}

// Wake lets the waiting goroutine recheck its condition. If it does not sleep, that takes a
// nanosecond.
func (w *Waiter) Wake() {
	if w.asleep.Load() && w.asleep.CompareAndSwap(true, false) {
		w.wake <- struct{}{}
	}
}

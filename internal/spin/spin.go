// Package spin lets goroutines that work on the same thing wait for each other: for a
// while they look, which takes a fraction of a microsecond to see what comes, and then
// they sleep, which takes no processor.
package spin

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	patience = time.Millisecond      // of looking, before a goroutine sleeps: to be woken can take a tenth of it
	polite   = 10 * time.Microsecond // of it, before goroutines that want to run are let run
	looks    = 16                    // between two looks at the clock
)

// Waiter is where one goroutine waits, again and again. The zero value is not fit for
// use: see [New].
type Waiter struct {
	crowded bool
	asleep  atomic.Bool
	wake    chan struct{} // has room for the one token that there can be
}

// New makes a Waiter. Where there are more goroutines that want to run than
// processors, what it waits for cannot come while it looks: crowded says so, and then
// it sleeps at once.
func New(crowded bool) *Waiter {
	return &Waiter{crowded: crowded, wake: make(chan struct{}, 1)}
}

// Wait returns when ready does. Ready is called by the waiting goroutine, often; it
// reads what others write by atomics, before they call Wake.
func (w *Waiter) Wait(ready func() bool) {
	for !w.look(ready) {
		w.asleep.Store(true)
		if ready() && w.asleep.CompareAndSwap(true, false) {
			return
		}
		<-w.wake // from who took asleep back
	}
}

// look reports whether ready came while it was worth looking.
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
		if took >= patience {
			return ready()
		}
		if took-gave >= polite {
			gave = took
			runtime.Gosched()
		}
	}
}

// Wake lets the goroutine look whether what it waits for is there. Where it does not
// sleep, that takes a nanosecond.
func (w *Waiter) Wake() {
	if w.asleep.Load() && w.asleep.CompareAndSwap(true, false) {
		w.wake <- struct{}{}
	}
}

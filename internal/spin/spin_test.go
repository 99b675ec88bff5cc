package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestWait: two goroutines hand a number to and fro, whether they look or sleep,
// whatever the delays between; none is lost.
func TestWait(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		for _, delay := range []time.Duration{0, polite, Patience, 3 * Patience} {
			rounds := 20000
			if delay > 0 {
				rounds = 30
			}
			var at atomic.Int64
			a, b := New(crowded), New(crowded)
			go func() {
				for i := int64(1); i <= int64(rounds); i++ {
					b.Wait(func() bool { return at.Load() == 2*i-1 })
					at.Add(1)
					a.Wake()
				}
			}()
			for i := int64(1); i <= int64(rounds); i++ {
				if delay > 0 {
					time.Sleep(delay)
				}
				at.Add(1)
				b.Wake()
				a.Wait(func() bool { return at.Load() == 2*i })
			}
		}
	}
}

// TestOneProcessor: a spinning goroutine lets others run.
func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var done atomic.Bool
	w := New(false)
	go func() {
		done.Store(true)
		w.Wake()
	}()
	w.Wait(done.Load)
}

// TestWake: Wake without a waiter does nothing, however often.
func TestWake(t *testing.T) {
	w := New(false)
	for range 3 {
		w.Wake()
	}
	w.Wait(func() bool { return true })
}

// TestAllocations: waiting allocates nothing.
func TestAllocations(t *testing.T) {
	w := New(false)
	calls := 0
	ready := func() bool { calls++; return calls%2 == 0 }
	if n := testing.AllocsPerRun(100, func() { w.Wait(ready); w.Wake() }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// BenchmarkHand is there and back between two goroutines.
func BenchmarkHand(b *testing.B) {
	var at atomic.Int64
	here, there := New(false), New(false)
	n := int64(b.N)
	go func() {
		for i := int64(1); i <= n; i++ {
			there.Wait(func() bool { return at.Load() == 2*i-1 })
			at.Add(1)
			here.Wake()
		}
	}()
	for i := int64(1); i <= n; i++ {
		at.Add(1)
		there.Wake()
		here.Wait(func() bool { return at.Load() == 2*i })
	}
}

//go:build unix

package cpu

import (
	"testing"
	"time"

	"github.com/krait-ml/krait/kernels"
	"golang.org/x/sys/unix"
)

// TestIdle: a pool that has nothing to do takes no processor.
func TestIdle(t *testing.T) {
	withPool(4, false, func(p *pool) {
		k := &kernels.Kernel{Units: func(*kernels.Call) int { return 64 }, Run: func(*kernels.Call, int, int) {}}
		if err := p.run(k, callOf(1), 1<<30); err != nil {
			t.Fatal(err)
		}
		const idle = 200 * time.Millisecond
		least := idle
		for range 3 { // the collector of the test may run in one
			before := processorTime(t)
			time.Sleep(idle)
			least = min(least, processorTime(t)-before)
		}
		if least > idle/10 {
			t.Errorf("an idle pool took %v of the processors in %v", least, idle)
		}
	})
}

func processorTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package bench

import (
	"math"
	"testing"
	"time"
)

// TestTurns: memory's speed halves and doubles every 330 ms, and that of work with it, which has
// always 80 % of the speed of its moment. The share of all is that, whichever speed comes first.
func TestTurns(t *testing.T) {
	const fast, bytes, operations = 20e9, 200e6, 1e9
	for _, now := range []float64{0, 0.33} {
		speed := func() float64 { return fast / float64(1+int(now/0.33)%2) }
		p := &turns{long: 30 * time.Millisecond, read: func() float64 {
			v := speed()
			now += bytes / v
			return v
		}}
		p.start()
		for range 100 {
			took := bytes / (0.8 * speed())
			now += took
			p.add(time.Duration(took * float64(time.Second)))
		}
		p.end()
		if n := len(p.list); n < 30 || n > 51 || len(p.reads) != n+1 {
			t.Errorf("%d turns of %d reads, want one per 2 or 3 steps", n, len(p.reads))
		}
		if got := p.share(bytes, 0, 0); math.Abs(got-0.8) > 0.001 {
			t.Errorf("the share of memory is %g, want 0.8", got)
		}
		if got := p.share(bytes, operations, operations/0.1); got < 4 || got > 8 {
			t.Errorf("the share of arithmetic that takes 100 ms is %g, want 4 or 8", got)
		}
		if got := spreadOf(p.reads); got.Least != fast/2 || got.Most != fast {
			t.Errorf("reads of %v", got)
		}
	}
	none := turns{}
	none.start()
	none.add(time.Second)
	none.end()
	if got := none.share(0, 0, 0); got != 0 || len(none.reads) > 0 {
		t.Errorf("without reads the share is %g", got)
	}
}

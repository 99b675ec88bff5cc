package gate

import (
	"errors"
	"testing"
)

// TestGate: an open gate locks unless it refuses; a closed one is an error, runs its function once,
// and locks for readings only.
func TestGate(t *testing.T) {
	var g Gate
	if err := g.Lock(); err != nil || g.Closed() {
		t.Fatal(err, g.Closed())
	}
	g.Unlock()
	g.Refusal = errors.New("refused")
	if err := g.Lock(); err != g.Refusal {
		t.Fatal(err)
	}
	calls := 0
	for range 2 {
		g.Close(func() { calls++ })
	}
	if err := g.Lock(); err != ErrClosed || calls != 1 || !g.Closed() {
		t.Fatal(err, calls, g.Closed())
	}
	g.LockAlways()
	g.Unlock()
}

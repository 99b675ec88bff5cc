// Package gate serializes the calls of an engine and of its store, and refuses them after Close.
package gate

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrClosed is the error of [Gate.Lock] after [Gate.Close].
var ErrClosed = errors.New("the model is closed")

// Gate is a mutex that can be closed. The zero value is open.
type Gate struct {
	// Refusal is the error of each Lock of an open gate; nil: Lock succeeds. It is set before the
	// gate is shared.
	Refusal error

	mu     sync.Mutex
	closed atomic.Bool
	once   sync.Once
}

// Lock waits for the gate, unless it is closed or refuses.
func (g *Gate) Lock() error {
	g.mu.Lock()
	err := g.Refusal
	if g.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		g.mu.Unlock()
	}
	return err
}

// Unlock lets the next caller in.
func (g *Gate) Unlock() { g.mu.Unlock() }

// Closed reports whether Close was called.
func (g *Gate) Closed() bool { return g.closed.Load() }

// Close makes waiting and later calls of Lock fail, waits for the current holder, and runs f.
// Another Close waits for the first, and does nothing.
func (g *Gate) Close(f func()) {
	g.once.Do(func() {
		g.closed.Store(true)
		g.mu.Lock()
		defer g.mu.Unlock()
		f()
	})
}

// LockAlways locks the gate also when it is closed, for readings that stay valid after Close.
func (g *Gate) LockAlways() { g.mu.Lock() }

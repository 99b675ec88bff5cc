package route

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// flight is an attempt of a request on one machine. Its context ends with the request's, or when
// the machine answers neither checks nor this request.
type flight struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	last atomic.Int64 // when the machine last sent something, in nanoseconds since 1970
}

// fly begins a flight.
func (p *pool) fly(ctx context.Context, m *machine) *flight {
	f := &flight{}
	f.ctx, f.end = context.WithCancelCause(ctx)
	f.last.Store(time.Now().UnixNano())
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.flights == nil {
		m.flights = map[*flight]struct{}{}
	}
	m.flights[f] = struct{}{}
	context.AfterFunc(f.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(m.flights, f)
	})
	return f
}

// giveUp cancels the flights of a machine that does not answer checks, if they have been silent for
// the stall time, too. Other flights may still finish.
func (p *pool) giveUp(m *machine, now time.Time, stall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !m.gone() {
		return
	}
	for f := range m.flights {
		if now.UnixNano()-f.last.Load() >= int64(stall) {
			f.end(errSilent)
		}
	}
}

// heard records when an answer's bytes arrive.
type heard struct {
	io.Reader
	f *flight
}

func (h heard) Read(to []byte) (int, error) {
	n, err := h.Reader.Read(to)
	if n > 0 {
		h.f.last.Store(time.Now().UnixNano())
	}
	return n, err
}

// The retry budget of requests that a server answers with status 500:
// retryBurst at once, and one more every requestsPerRetry requests.
const (
	retryBurst       = 32
	requestsPerRetry = 10
)

// allowance is a retry budget.
type allowance struct {
	mu     sync.Mutex
	left   int
	earned int // requests since left last grew
}

// earn counts a request.
func (a *allowance) earn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.earned++; a.earned == requestsPerRetry {
		a.earned, a.left = 0, min(a.left+1, retryBurst)
	}
}

// take reports whether a retry is allowed now, and counts it.
func (a *allowance) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

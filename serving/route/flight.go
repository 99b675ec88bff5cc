package route

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// flight is a request that a machine was asked. Its context ends with the request's, or when the
// machine answers neither checks nor this request.
type flight struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	last atomic.Int64 // when something came, in nanoseconds since 1970
}

// fly begins one.
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

// giveUp ends the flights of a machine that has not answered checks for a while and has sent
// nothing for them either. Others may still come to their end.
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

// heard notes when something comes of an answer.
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

// mostAgain is how many requests that one server answered by status 500 may be asked of another at
// once; after that one for each earning requests, so that such a request costs little more than its
// own.
const (
	mostAgain = 32
	earning   = 10
)

// allowance bounds how often something may be done again.
type allowance struct {
	mu     sync.Mutex
	left   int
	earned int // requests since left grew
}

// earn counts a request.
func (a *allowance) earn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.earned++; a.earned == earning {
		a.earned, a.left = 0, min(a.left+1, mostAgain)
	}
}

// take reports whether it may be done now.
func (a *allowance) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

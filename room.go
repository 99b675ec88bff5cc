package krait

import (
	"context"
	"slices"
	"sync"
)

// roomQueue is what generations hold of [MemoryPlan.Room], first come, first served: from before a prompt
// comes from elsewhere, which takes pages before the scheduler knows of it, up to their end.
type roomQueue struct {
	mu      sync.Mutex
	held    int
	waiting []*heldRoom
}

type heldRoom struct {
	tokens int
	turn   chan struct{} // closed when it has them
}

// take waits until there is room for so many tokens of all there are.
func (r *roomQueue) take(ctx context.Context, tokens, all int) (give func(), err error) {
	h := &heldRoom{tokens, make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, h)
	r.next(all)
	r.mu.Unlock()
	give = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.waiting, h); i >= 0 {
			r.waiting = slices.Delete(r.waiting, i, i+1)
		} else {
			r.held -= h.tokens
		}
		r.next(all)
	}
	select {
	case <-h.turn:
		return give, nil
	case <-ctx.Done():
		give()
		return nil, context.Cause(ctx)
	}
}

// next lets those have room that are first.
func (r *roomQueue) next(all int) {
	for len(r.waiting) > 0 && r.held+r.waiting[0].tokens <= all {
		r.held += r.waiting[0].tokens
		close(r.waiting[0].turn)
		r.waiting = r.waiting[1:]
	}
}

// takeRoom waits until there is room for a generation. One that never has any is left to the scheduler,
// which says so.
func (m *Model) takeRoom(ctx context.Context, prompt, most int) (give func(), err error) {
	all, page := m.plan.Room, m.plan.PageTokens
	tokens := prompt + min(most, 1<<40) - 1 // which no device has room for
	if n := m.engine.Context(); n > 0 {
		tokens = min(tokens, n)
	}
	if all == 0 || tokens > all {
		return func() {}, nil
	}
	return m.room.take(ctx, (tokens+page-1)/page*page, all)
}

package transfer

import (
	"context"
	"errors"
)

var errDrains = errors.New("the server is draining")

// Drain refuses new prompts and clients, tells connected clients and answers pings that it does, so
// that they and routers go elsewhere. It returns when no prompt is being prefilled or lent, or with
// the context's error. [Server.Close] is due then.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.drain()
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.prompts.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts a prompt, unless the server drains. It leaves by prompts.Done.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Err() != nil {
		return errDrains
	}
	s.prompts.Add(1)
	return nil
}

// drained leaves a server that takes no new prompts, and connects to it in the background until it
// does. Those that it has go on.
func (c *Client) drained(p *pair) {
	c.leave(p, errDrains)
	go func() {
		select {
		case <-p.gone:
		case <-c.ctx.Done():
		}
		p.close()
	}()
}

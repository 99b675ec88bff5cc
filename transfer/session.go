package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/transfer/internal/wire"
	"github.com/krait-ml/krait/transfer/ping"
	"github.com/krait-ml/krait/transfer/transport"
)

// session serves a client, until its connection for control ends.
type session struct {
	*Server
	*channel
	id      transport.Session
	end     lowering.End  // of this side
	packing *state.Codecs // nil: states are not encoded
	live    sync.WaitGroup

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // of requests being prefilled
	lent    int
}

func (s *session) serve() error {
	ctx, cancel := context.WithCancel(s.Server.ctx)
	tell := context.AfterFunc(s.draining, func() { s.say(kindDrains, struct{}{}) })
	defer func() {
		tell()
		cancel()
		s.channel.Close()
		s.live.Wait()
		s.grants.EndAll(s.id)
	}()
	for {
		kind, text, err := s.hear()
		if err != nil {
			return ended(err)
		}
		if err := s.take(ctx, kind, text); err != nil {
			return err
		}
	}
}

// ended drops the error of a connection closed between messages.
func ended(err error) error {
	if err == io.EOF || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// take handles a message. An error ends the session.
func (s *session) take(ctx context.Context, kind wire.Kind, text []byte) error {
	switch kind {
	case ping.Question:
		return s.send(ping.Answer)
	case kindPrefill:
		p, err := parse[prefill](text)
		if err != nil {
			return err
		}
		return s.begin(ctx, p)
	case kindRelease:
		r, err := parse[release](text)
		if err != nil {
			return err
		}
		lasted := s.grants.End(s.id, r.Ticket)
		if lasted {
			s.count(func(c *ServerStats) { c.Released++ })
		}
		return s.say(kindReleased, released{r.Request, lasted})
	case kindCancel:
		c, err := parse[cancelled](text)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if stop := s.running[c.Request]; stop != nil {
			stop()
		}
		return nil
	}
	return fmt.Errorf("an unexpected message of kind %d from the decode side", kind)
}

// begin starts the prefill of a prompt.
func (s *session) begin(ctx context.Context, p prefill) error {
	s.count(func(c *ServerStats) { c.Requests++; c.Tokens += int64(len(p.Tokens)) })
	s.mu.Lock()
	defer s.mu.Unlock()
	var why error
	switch {
	case len(p.Tokens) == 0 || len(p.Tokens) > mostTokens:
		why = fmt.Errorf("a prompt of %d tokens; it must have from 1 to %d", len(p.Tokens), mostTokens)
	case len(p.Salt) > mostSalt:
		why = fmt.Errorf("a salt of %d bytes; the limit is %d", len(p.Salt), mostSalt)
	case p.Have < 0 || p.Have > len(p.Tokens):
		why = fmt.Errorf("have is %d of %d tokens", p.Have, len(p.Tokens))
	case s.running[p.Request] != nil:
		return fmt.Errorf("request %d exists already", p.Request)
	case len(s.running)+s.lent >= s.o.MaxRequests:
		why = fmt.Errorf("%d prompts are being prefilled or lent already", s.o.MaxRequests)
	}
	if why == nil {
		why = s.enter()
	}
	if why != nil {
		return s.say(kindFailed, failed{p.Request, why.Error()})
	}
	ctx, cancel := context.WithCancel(ctx)
	s.running[p.Request] = cancel
	s.live.Go(func() {
		begun := time.Now()
		err := s.prefill(ctx, p, begun)
		cancel()
		s.mu.Lock()
		delete(s.running, p.Request)
		s.mu.Unlock()
		if err != nil {
			s.prompts.Done()
			s.record(p, begun, err)
			s.count(func(c *ServerStats) { c.Failures++ })
			s.say(kindFailed, failed{p.Request, err.Error()})
		}
	})
	return nil
}

// record records the span of a prompt, before the client gets the answer.
func (s *session) record(p prefill, begun time.Time, err error) {
	parent := trace.Parse(p.Trace)
	if !parent.Valid() {
		return
	}
	span := trace.Span{Context: s.o.Trace.Start(parent), Parent: parent.Span, Name: "prefill", Kind: trace.Server, Start: begun, End: time.Now(),
		Attributes: []trace.Attribute{{Key: "krait.prompt_tokens", Value: len(p.Tokens)}, {Key: "krait.request_id", Value: trace.CheckID(p.ID)}}}
	if err != nil {
		span.Error = err.Error()
	}
	s.o.Trace.Record(span)
}

// prefill prefills a prompt, and lends its state.
func (s *session) prefill(ctx context.Context, p prefill, begun time.Time) error {
	quiet := s.beat(ctx, p.Request)
	k, err := s.source.Prefill(ctx, string(p.Salt), p.Tokens, quiet.set)
	quiet.end()
	if err != nil {
		return err
	}
	numbers, regions, err := s.regions(k.View, len(p.Tokens), p.Have)
	if err != nil {
		k.Free()
		return err
	}
	if s.packing != nil { // a copy is lent
		k.Free()
		k.Free = func() {}
	}
	if ctx.Err() != nil { // it was cancelled
		k.Free()
		return ctx.Err()
	}
	s.mu.Lock()
	s.lent++
	s.mu.Unlock()
	ends := time.Now().Add(s.o.Lease)
	ticket := s.grants.Lend(s.id, regions, s.o.Lease, func() {
		k.Free()
		s.mu.Lock()
		s.lent--
		s.mu.Unlock()
		s.prompts.Done()
		if !time.Now().Before(ends) {
			s.count(func(c *ServerStats) { c.Expired++ })
			s.o.Log.Warn("the lease expired before the state was fetched", "client", s.RemoteAddr().String(), "id", trace.CheckID(p.ID))
		}
	})
	s.o.Log.Info("prompt prefilled", "client", s.RemoteAddr().String(), "id", trace.CheckID(p.ID), "tokens", len(p.Tokens), "seconds", time.Since(begun).Seconds())
	s.record(p, begun, nil)
	s.say(kindReady, ready{p.Request, ticket, numbers, s.o.Lease.Milliseconds()})
	return nil
}

// regions returns the memory of a state, and its numbers for [ready].
func (s *session) regions(v *state.View, tokens, have int) (numbers [][]uint64, _ map[transport.Region]transport.Memory, err error) {
	regions := map[transport.Region]transport.Memory{}
	end := &s.end
	caches := slices.ContainsFunc(end.States.Buffers, func(b lowering.StateBuffer) bool { return b.Cache() })
	for rank := range end.States.Ranks {
		list := make([]uint64, 1)
		add := func(i, region int) {
			r, none := v.Region(rank, region)
			if none != nil || err != nil {
				return
			}
			regions[transport.Region(r.ID())], err = s.memory(r, rank, region, tokens, have)
			list[i] = r.ID() + 1
		}
		add(0, 0)
		for page := have / end.PageTokens; page*end.PageTokens < tokens && caches; page++ {
			list = append(list, 0)
			add(len(list)-1, 1+page)
		}
		numbers = append(numbers, list)
	}
	return numbers, regions, err
}

// memory returns the memory of a region, or an encoded copy: of a page only the rows to transfer.
func (s *session) memory(r *state.Region, rank, region, tokens, have int) (transport.Memory, error) {
	if s.packing == nil {
		return r, nil
	}
	first, end := 0, 1
	if region > 0 {
		begin := (region - 1) * s.end.PageTokens
		first, end = max(0, have-begin), min(s.end.PageTokens, tokens-begin)
	}
	raw := make([]byte, r.Size())
	if err := r.Read(raw, 0); err != nil {
		return nil, err
	}
	packed, err := s.packing.Region(s.end, rank, region == 0).Encode(raw, first, end)
	return transport.Host(packed), err
}

// beat reports the progress of a prefill to the client, also as a sign of life.
type beat struct {
	mu   sync.Mutex
	read int
	stop chan struct{}
	done chan struct{}
}

func (s *session) beat(ctx context.Context, request uint64) *beat {
	b := &beat{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		tick := time.NewTicker(s.o.Stall / 5)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.mu.Lock()
				read := b.read
				b.mu.Unlock()
				s.say(kindProgress, progress{request, read})
			case <-b.stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return b
}

func (b *beat) set(read int) {
	b.mu.Lock()
	b.read = read
	b.mu.Unlock()
}

func (b *beat) end() {
	close(b.stop)
	<-b.done
}

package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/transfer/internal/wire"
	"github.com/krait-ml/krait/transfer/ping"
	"github.com/krait-ml/krait/transfer/transport"
)

// pair is a session, at the decode side.
type pair struct {
	client  *Client
	session transport.Session
	moves   *lowering.Transfer
	reader  transport.Reader
	*channel
	heard atomic.Int64 // time of the last message, in nanoseconds since 1970

	mu      sync.Mutex
	last    uint64 // request
	waiting map[uint64]chan any
	err     error         // why the pair ended
	gone    chan struct{} // closed at its end
}

func (p *pair) alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

func (p *pair) close() {
	p.channel.Close()
	<-p.gone
	p.reader.Close()
}

// listen dispatches messages to their requests, until the connection ends.
func (p *pair) listen() {
	var err error
	for err == nil {
		err = p.next()
	}
	p.fail(fmt.Errorf("the connection to the prefill side ended: %w", err))
	close(p.gone)
}

// fail ends the pair. The first error is reported.
func (p *pair) fail(err error) {
	p.mu.Lock()
	p.err = cmp.Or(p.err, err)
	p.mu.Unlock()
	p.channel.Close()
}

// why returns the error of a pair that has ended.
func (p *pair) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// say sends a message. If that fails, the error is why the pair ended, if it did.
func (p *pair) say(k wire.Kind, message any) error {
	err := p.channel.say(k, message)
	if err != nil {
		err = cmp.Or(p.why(), err)
	}
	return err
}

// pings is the number of ticks within the allowed silence.
const pings = 5

// watch pings the prefill side, and ends the pair if a ping is not answered. It counts ticks and
// not time, which also passes while this process is stopped.
func (p *pair) watch() {
	silence := p.client.o.Silence
	tick := time.NewTicker(max(silence/pings, time.Millisecond))
	defer tick.Stop()
	var asked time.Time
	for missed := 0; ; missed++ {
		select {
		case <-p.gone:
			return
		case <-tick.C:
		}
		if missed == 0 || !time.Unix(0, p.heard.Load()).Before(asked) {
			missed, asked = 0, time.Now()
			go p.send(ping.Question) // a write may block
		}
		if missed == pings {
			err := fmt.Errorf("the prefill side is silent for %s", silence)
			p.client.leave(p, err)
			p.fail(err)
			p.close()
			return
		}
	}
}

// next dispatches a message.
func (p *pair) next() error {
	kind, text, err := p.hear()
	if err != nil {
		return err
	}
	p.heard.Store(time.Now().UnixNano())
	switch kind {
	case ping.Answer:
		return nil
	case kindDrains:
		p.client.drained(p)
		return nil
	}
	var request uint64
	var message any
	switch kind {
	case kindProgress:
		m, e := parse[progress](text)
		request, message, err = m.Request, m, e
	case kindReady:
		m, e := parse[ready](text)
		request, message, err = m.Request, m, e
	case kindFailed:
		m, e := parse[failed](text)
		request, message, err = m.Request, m, e
	case kindReleased:
		m, e := parse[released](text)
		request, message, err = m.Request, m, e
	default:
		err = fmt.Errorf("an unexpected message of kind %d from the prefill side", kind)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	to := p.waiting[request]
	p.mu.Unlock()
	if to == nil {
		if m, late := message.(ready); late { // it was cancelled
			return p.say(kindRelease, release{m.Request, m.Ticket})
		}
		return nil
	}
	select {
	case to <- message:
		return nil
	default:
		if _, more := message.(progress); more {
			return nil
		}
		return errors.New("more messages than expected")
	}
}

// begin returns a new request and the channel of its messages.
func (p *pair) begin() (uint64, chan any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c := make(chan any, 8)
	p.waiting[p.last] = c
	return p.last, c
}

// end drops further messages of a request, and releases a state that was lent meanwhile.
func (p *pair) end(request uint64, c chan any) {
	p.mu.Lock()
	delete(p.waiting, request)
	p.mu.Unlock()
	for {
		select {
		case m := <-c:
			if r, late := m.(ready); late {
				p.say(kindRelease, release{request, r.Ticket})
			}
		default:
			return
		}
	}
}

// wait returns the next message of a request.
func (p *pair) wait(ctx context.Context, c chan any) (any, error) {
	select {
	case m := <-c:
		return m, nil
	case <-p.gone:
		return nil, p.why()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// during returns a context that also ends with the pair.
func (p *pair) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.gone:
			cancel(p.why())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Fetched is the state of a prompt: recurrent states, and KV pages of tokens that were not local.
// It belongs to the caller, who frees it.
type Fetched struct {
	States   *state.DeviceState
	Rows     *state.DeviceKV
	Bytes    int64
	Pieces   int
	Begun    time.Time     // when the prompt was sent
	Prefill  time.Duration // from the request to the answer that it is ready
	Transfer time.Duration
}

// Free releases the state.
func (a *Fetched) Free() {
	a.States.Free()
	a.Rows.Free()
}

// Fetch has a prompt prefilled, with a salt of the server's prefix cache, and transfers its state.
// Have is the number of its tokens whose KV pages are local. Progress gets the number of tokens
// prefilled; it may be nil. After an error no state is held on either side.
func (c *Client) Fetch(ctx context.Context, salt string, tokens []int, have int, progress func(tokens int)) (*Fetched, error) {
	c.count(func(s *ClientStats) { s.Requests++ })
	a, err := c.fetch(ctx, salt, tokens, have, progress)
	if err != nil && over(ctx) {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	c.count(func(s *ClientStats) {
		if err != nil {
			s.Failures++
			return
		}
		s.Fetched++
		s.Tokens, s.Held = s.Tokens+int64(len(tokens)), s.Held+int64(have)
		s.Bytes, s.Pieces, s.Transfer = s.Bytes+a.Bytes, s.Pieces+int64(a.Pieces), s.Transfer+a.Transfer
	})
	return a, err
}

func (c *Client) count(change func(*ClientStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

func (c *Client) fetch(ctx context.Context, salt string, tokens []int, have int, onProgress func(int)) (*Fetched, error) {
	p, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	request, messages := p.begin()
	defer p.end(request, messages)
	call := trace.From(ctx)
	if err := p.say(kindPrefill, prefill{request, tokens, have, []byte(salt), call.ID, call.String()}); err != nil {
		return nil, err
	}
	r, err := p.ready(ctx, messages, onProgress)
	if err != nil {
		if ctx.Err() != nil {
			p.say(kindCancel, cancelled{request})
		}
		return nil, err
	}
	a, err := p.bring(ctx, r, len(tokens), have)
	lasted, failed := p.release(ctx, request, r.Ticket, messages)
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		err = failed
	case !lasted:
		err = fmt.Errorf("%w before all of it was transferred: give the prefill side a longer --lease", transport.ErrEnded)
	}
	if err != nil {
		a.Free()
		return nil, err
	}
	a.Begun, a.Prefill = begun, time.Since(begun)-a.Transfer
	return a, nil
}

// ready waits until a prompt is prefilled.
func (p *pair) ready(ctx context.Context, messages chan any, onProgress func(int)) (ready, error) {
	for {
		m, err := p.wait(ctx, messages)
		if err != nil {
			return ready{}, err
		}
		switch m := m.(type) {
		case ready:
			return m, nil
		case failed:
			return ready{}, fmt.Errorf("the prefill side could not prefill the prompt: %s", clean(m.Why))
		case progress:
			if onProgress != nil {
				onProgress(m.Read)
			}
		default:
			return ready{}, fmt.Errorf("the prefill side answers with %T", m)
		}
	}
}

// bring allocates memory, and reads the parts that the ranks own by one call.
func (p *pair) bring(ctx context.Context, r ready, tokens, have int) (*Fetched, error) {
	e := p.client.engine
	states, rows, err := e.Reserve(tokens, have)
	if err != nil {
		return nil, err
	}
	a := &Fetched{States: states, Rows: rows}
	begun := time.Now()
	v, err := e.View(states, rows)
	var pieces []transport.Piece
	var packed *packedReads
	if err == nil {
		pieces, a.Pieces, packed, err = p.pieces(r, v, tokens, have)
	}
	if err == nil {
		ctx, cancel := p.during(ctx)
		defer cancel()
		a.Bytes = transport.Bytes(pieces)
		err = p.reader.Read(ctx, r.Ticket, pieces).Wait()
	}
	if err == nil {
		err = packed.unpack()
	}
	if err != nil {
		a.Free()
		return nil, err
	}
	a.Transfer = time.Since(begun)
	return a, nil
}

// pieces returns the runs of bytes to read with their destinations, and the number of pieces of the
// transfer, of which some have a run in each row. Encoded ones go to host memory first.
func (p *pair) pieces(r ready, v *state.View, tokens, have int) (list []transport.Piece, n int, packed *packedReads, err error) {
	packed = newPackedReads(p.client.o.Packing, p.moves.From)
	first := have / p.moves.From.PageTokens
	for rank := range p.moves.To.States.Ranks {
		reads, err := p.moves.Reads(rank, tokens, have)
		if err != nil {
			return nil, 0, nil, err
		}
		n += len(reads)
		for i := range reads {
			x := &reads[i]
			region, err := r.region(x.From, x.Source.Region, first)
			if err != nil {
				return nil, 0, nil, err
			}
			to, err := v.Region(rank, x.Dest.Region)
			if err != nil {
				return nil, 0, nil, err
			}
			x.Each(func(from, at int64) {
				piece := transport.Piece{Region: region, From: from, Bytes: x.Bytes, To: to, At: at}
				if packed != nil {
					packed.add(piece, x.From, x.Source.Region == 0)
					return
				}
				list = append(list, piece)
			})
		}
	}
	if packed != nil {
		list = packed.pieces()
	}
	return list, n, packed, nil
}

// region returns the number of a region of the prefill side, whose first page is number first.
func (r *ready) region(rank, region, first int) (transport.Region, error) {
	if region > 0 {
		region -= first
	}
	if rank >= len(r.Regions) || region < 0 || region >= len(r.Regions[rank]) || r.Regions[rank][region] == 0 {
		return 0, fmt.Errorf("the prefill side does not lend region %d of its rank %d", region, rank)
	}
	return transport.Region(r.Regions[rank][region] - 1), nil
}

// release releases a lent state, and reports whether the lease lasted until now.
func (p *pair) release(ctx context.Context, request uint64, t transport.Ticket, messages chan any) (lasted bool, err error) {
	if err := p.say(kindRelease, release{request, t}); err != nil {
		return false, err
	}
	for {
		m, err := p.wait(ctx, messages)
		if err != nil {
			return false, err
		}
		switch m := m.(type) {
		case released:
			return m.Lasted, nil
		case progress: // late
		default:
			return false, fmt.Errorf("the prefill side answers with %T", m)
		}
	}
}

// clean returns a text of the other side for messages.
func clean(text string) string {
	const most = 500
	return strings.ToValidUTF8(text[:min(len(text), most)], "?")
}

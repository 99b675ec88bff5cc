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

	"github.com/krait-ml/krait/exec"
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
	heard atomic.Int64 // when a message came, in nanoseconds since 1970

	mu      sync.Mutex
	last    uint64 // request
	waiting map[uint64]chan any
	err     error         // why it is gone
	gone    chan struct{} // closed when it is
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

// listen hands messages to the requests that they are for, until the connection ends.
func (p *pair) listen() {
	var err error
	for err == nil {
		err = p.next()
	}
	p.fail(fmt.Errorf("the connection to the prefill side ended: %w", err))
	close(p.gone)
}

// fail ends the pair. The first error counts.
func (p *pair) fail(err error) {
	p.mu.Lock()
	p.err = cmp.Or(p.err, err)
	p.mu.Unlock()
	p.channel.Close()
}

// why is the error of a pair that is gone.
func (p *pair) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// say sends a message. Where that fails, the error is why the pair has ended, if it has.
func (p *pair) say(k wire.Kind, message any) error {
	err := p.channel.say(k, message)
	if err != nil {
		err = cmp.Or(p.why(), err)
	}
	return err
}

// pings is how many times a pair asks for a sign of life within the silence that it bears.
const pings = 5

// watch asks the prefill side again and again whether it lives, and ends the pair where a question
// stays without any answer. It counts ticks and not time, which also passes while this process
// itself stands still.
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
			go p.send(ping.Question) // a write may wait for a side that hangs
		}
		if missed == pings {
			err := fmt.Errorf("the prefill side is silent for %s", silence)
			p.client.hung(p, err)
			p.fail(err)
			p.close()
			return
		}
	}
}

// next hands on a message.
func (p *pair) next() error {
	kind, text, err := p.hear()
	if err != nil {
		return err
	}
	p.heard.Store(time.Now().UnixNano())
	if kind == ping.Answer {
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
		err = fmt.Errorf("a message of kind %d, which no prefill side sends", kind)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	to := p.waiting[request]
	p.mu.Unlock()
	if to == nil {
		if m, late := message.(ready); late { // nobody wants it any more
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
		return errors.New("more messages than were asked for")
	}
}

// begin is a new request, and where its messages come.
func (p *pair) begin() (uint64, chan any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c := make(chan any, 8)
	p.waiting[p.last] = c
	return p.last, c
}

// end takes no more messages of a request. What was lent meanwhile is given back.
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

// wait is the next message of a request.
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

// during is a context that ends with the pair, too.
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

// Fetched is what came of a prompt: states, and rows of its tokens that were not there. The
// engine has them like what it kept itself: whoever has them frees them.
type Fetched struct {
	States   *exec.KeptStates
	Rows     *exec.KeptRows
	Bytes    int64
	Pieces   int
	Prefill  time.Duration // from the question to the answer that it is read
	Transfer time.Duration
}

// Free gives back what arrived.
func (a *Fetched) Free() {
	a.States.Free()
	a.Rows.Free()
}

// Fetch has a prompt read, which goes on there from those of the same salt only, and brings what
// came of it. Have is of how many of its tokens the
// engine has the rows of caches. Tell is told how many tokens were read; it may be nil. After
// an error nothing is held, here or there.
func (c *Client) Fetch(ctx context.Context, salt string, tokens []int, have int, tell func(read int)) (*Fetched, error) {
	c.count(func(s *ClientStats) { s.Requests++ })
	a, err := c.fetch(ctx, salt, tokens, have, tell)
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

func (c *Client) fetch(ctx context.Context, salt string, tokens []int, have int, tell func(int)) (*Fetched, error) {
	p, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	request, messages := p.begin()
	defer p.end(request, messages)
	if err := p.say(kindPrefill, prefill{request, tokens, have, []byte(salt)}); err != nil {
		return nil, err
	}
	r, err := p.ready(ctx, messages, tell)
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
		err = fmt.Errorf("%w before all of it was read: give the prefill side a longer --lease", transport.ErrEnded)
	}
	if err != nil {
		a.Free()
		return nil, err
	}
	a.Prefill = time.Since(begun) - a.Transfer
	return a, nil
}

// ready waits until a prompt is read.
func (p *pair) ready(ctx context.Context, messages chan any, tell func(int)) (ready, error) {
	for {
		m, err := p.wait(ctx, messages)
		if err != nil {
			return ready{}, err
		}
		switch m := m.(type) {
		case ready:
			return m, nil
		case failed:
			return ready{}, fmt.Errorf("the prefill side could not read the prompt: %s", clean(m.Why))
		case progress:
			if tell != nil {
				tell(m.Read)
			}
		default:
			return ready{}, fmt.Errorf("the prefill side answers by %T", m)
		}
	}
}

// bring makes room, and reads all that the ranks own, by one call.
func (p *pair) bring(ctx context.Context, r ready, tokens, have int) (*Fetched, error) {
	e := p.client.engine
	states, rows, err := e.Room(tokens, have)
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

// pieces says where everything lies that the ranks own, and where it goes: a stretch after
// another, and how many pieces these are, of which some have a stretch in each row. What is
// packed goes to memory of the host first.
func (p *pair) pieces(r ready, v *exec.View, tokens, have int) (list []transport.Piece, n int, packed *packedReads, err error) {
	packed = newPackedReads(p.client.o.Packing, p.moves.From)
	first := have / p.moves.From.PageTokens
	for rank := range p.moves.To.Keeps.Ranks {
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

// region is the number of a region of the prefill side; its first page is number first.
func (r *ready) region(rank, region, first int) (transport.Region, error) {
	if region > 0 {
		region -= first
	}
	if rank >= len(r.Regions) || region < 0 || region >= len(r.Regions[rank]) || r.Regions[rank][region] == 0 {
		return 0, fmt.Errorf("the prefill side lends no region %d of its rank %d", region, rank)
	}
	return transport.Region(r.Regions[rank][region] - 1), nil
}

// release gives back what was lent, and says whether it was lent up to now.
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
		case progress: // said before the prompt was read
		default:
			return false, fmt.Errorf("the prefill side answers by %T", m)
		}
	}
}

// clean is a text of the other side, for people.
func clean(text string) string {
	const most = 500
	return strings.ToValidUTF8(text[:min(len(text), most)], "?")
}

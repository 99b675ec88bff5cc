package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/transfer/internal/wire"
	"github.com/krait-ml/krait/transfer/transport"
)

// Engine is the decode side's engine: see [exec.Engine].
type Engine interface {
	Reserve(tokens, from int) (*state.DeviceState, *state.DeviceKV, error)
	View(*state.DeviceState, *state.DeviceKV) (*state.View, error)
}

// ClientOptions configure a client.
type ClientOptions struct {
	// Dial makes a connection to the server, over TCP or TLS, for control or data.
	Dial func(context.Context) (net.Conn, error)
	// By is the transport for data: tcp, a registered one such as ucx, or local for a server of the
	// same process.
	By string
	// Local is that server.
	Local *Server
	// Token authenticates the client.
	Token string
	// Packing encodes states and KV pages in transit; nil: none.
	Packing *state.Codecs
	// Connections is the number of parallel connections per state; 0: 2.
	Connections int
	// Stall is how long a connection may carry nothing while data is expected; 0: 10 s.
	Stall time.Duration
	// Silence is how long a server may leave a handshake or a ping unanswered before it counts as
	// hung. 0: a quarter of Stall.
	Silence time.Duration
	// Retry is the time between attempts to connect after a failure; 0: 2 s.
	Retry time.Duration
}

// Client has prompts prefilled by a server. Its methods may be called from several goroutines.
type Client struct {
	meta   Meta
	engine Engine
	o      ClientOptions

	ctx   context.Context // until Close
	close context.CancelFunc
	live  sync.WaitGroup

	mu     sync.Mutex
	pair   *pair // nil: no connection
	failed error // why not, during retries
	closed bool
	stats  ClientStats

	down atomic.Bool
}

// ClientStats count since the client was made.
type ClientStats struct {
	Requests, Fetched, Failures int
	Tokens, Held                int64 // fetched, and those of them whose KV pages were local
	Bytes                       int64
	Pieces                      int64
	Transfer                    time.Duration // total
}

// NewClient makes a client for a model and its engine. It connects on first use, or by
// [Client.Connect].
func NewClient(meta Meta, e Engine, o ClientOptions) (*Client, error) {
	switch o.By = cmp.Or(o.By, "tcp"); {
	case o.By == "local" && o.Local == nil:
		return nil, errors.New("transport local needs a server of this process")
	case o.By == "local":
		if o.Dial == nil {
			o.Dial = o.Local.Pipe
		}
	case o.By != "tcp":
		if _, err := transport.CarriageOf(o.By); err != nil {
			return nil, err
		}
	}
	o.Connections = cmp.Or(o.Connections, 2)
	o.Stall, o.Retry = cmp.Or(o.Stall, 10*time.Second), cmp.Or(o.Retry, 2*time.Second)
	o.Silence = cmp.Or(o.Silence, o.Stall/4)
	meta.Protocol, meta.Codecs = Protocol, o.Packing.String()
	c := &Client{meta: meta, engine: e, o: o}
	c.ctx, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Connect connects to the server, unless it is connected. An [ErrDiffers] is permanent.
func (c *Client) Connect(ctx context.Context) error {
	_, err := c.connected(ctx)
	return err
}

// connected returns the pair, which it makes if there is none. A failed server is retried in the
// background; until then requests fail at once.
func (c *Client) connected(ctx context.Context) (*pair, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case c.failed != nil:
		return nil, c.failed
	case c.pair != nil && c.pair.alive():
		return c.pair, nil
	}
	if c.pair != nil {
		c.pair.close()
		c.pair = nil
	}
	p, err := c.greet(ctx)
	switch {
	case err == nil:
		c.pair = p
	case !over(ctx):
		c.fail(err)
	}
	return p, err
}

// fail records a failure, and starts retries unless they are useless.
func (c *Client) fail(err error) {
	c.failed = err
	c.down.Store(true)
	if !c.closed && !errors.Is(err, ErrDiffers) {
		c.live.Go(c.retry)
	}
}

// retry connects to a failed server until it answers.
func (c *Client) retry() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(c.o.Retry):
		}
		p, err := c.greet(c.ctx)
		c.mu.Lock()
		switch {
		case c.closed:
			c.mu.Unlock()
			if err == nil {
				p.close()
			}
			return
		case err == nil:
			c.pair, c.failed = p, nil
			c.down.Store(false)
		default:
			c.failed = err
		}
		c.mu.Unlock()
		if err == nil || errors.Is(err, ErrDiffers) {
			return
		}
	}
}

// leave drops a pair whose server does not answer or drains.
func (c *Client) leave(p *pair, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair == p {
		c.pair = nil
		c.fail(err)
	}
}

// Down reports whether the server cannot be reached, does not answer or drains. Requests fail at
// once until a retry in the background succeeds.
func (c *Client) Down() bool { return c.down.Load() }

// over reports whether a context has ended or its deadline has passed, which a dialer may notice
// first.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// dial makes an authenticated connection: for data of a session, or with the token.
func (c *Client) dial(ctx context.Context, session transport.Session) (*channel, error) {
	dialing, cancel := context.WithTimeout(ctx, c.o.Silence)
	defer cancel()
	conn, err := c.o.Dial(dialing)
	if err != nil {
		return nil, err
	}
	ch := newChannel(conn, c.o.Stall)
	k := knock{Protocol: Protocol, Session: session}
	if session == (transport.Session{}) && c.o.Token != "" {
		k.Token = tokenSum(c.o.Token)
	}
	if _, err := ask[struct{}](ctx, ch, kindKnock, k, kindAdmitted, c.o.Silence); err != nil {
		ch.Close()
		return nil, err
	}
	ch.trust(mostHello)
	return ch, nil
}

// greet connects and does the handshake.
func (c *Client) greet(ctx context.Context) (*pair, error) {
	ch, err := c.dial(ctx, transport.Session{})
	if err != nil {
		return nil, err
	}
	w, err := ask[welcome](ctx, ch, kindHello, hello{c.meta, c.o.By}, kindWelcome, c.o.Silence)
	if err == nil {
		p := &pair{client: c, channel: ch, session: w.Session, waiting: map[uint64]chan any{}, gone: make(chan struct{})}
		if p.moves, err = moves(&w.Meta, &c.meta); err == nil && w.Meta.Codecs != c.meta.Codecs {
			err = fmt.Errorf("%w: the client requested states in %q, and the server offers %.40q", ErrDiffers, c.meta.Codecs, w.Meta.Codecs)
		}
		if err == nil {
			ch.trust(mostControl)
			p.reader = c.reader(p)
			p.heard.Store(time.Now().UnixNano())
			go p.listen()
			go p.watch()
			return p, nil
		}
	}
	ch.Close()
	return nil, err
}

// ask sends a message on a new connection, and returns the answer of the expected kind.
func ask[T any](ctx context.Context, c *channel, k wire.Kind, message any, want wire.Kind, within time.Duration) (answer T, err error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer func() {
		if !stop() && err == nil { // it is closed, or about to be
			err = context.Cause(ctx)
		}
	}()
	if err = c.say(k, message); err != nil {
		return answer, err
	}
	kind, text, err := c.hearFor(within)
	switch {
	case err != nil:
		return answer, fmt.Errorf("the prefill side does not answer: %w", cmp.Or(context.Cause(ctx), err))
	case kind == want:
		return parse[T](text)
	case kind != kindRefuse:
		return answer, fmt.Errorf("the prefill side answers with a message of kind %d", kind)
	}
	r, err := parse[refuse](text)
	if err != nil {
		return answer, err
	}
	if err = fmt.Errorf("the prefill side refuses: %s", clean(r.Why)); r.Differs {
		err = fmt.Errorf("%w: %s", ErrDiffers, strings.TrimPrefix(clean(r.Why), ErrDiffers.Error()+": "))
	}
	return answer, err
}

// reader makes the reader of the other side's memory.
func (c *Client) reader(p *pair) transport.Reader {
	switch c.o.By {
	case "local":
		return transport.Local(c.o.Local.grants, p.session)
	case "tcp":
		return transport.TCP(func(ctx context.Context) (net.Conn, error) {
			return c.dialData(ctx, p.session, data{By: c.o.By})
		}, c.o.Connections, c.o.Stall)
	}
	return transport.Carried(func(ctx context.Context) (net.Conn, transport.Receiver, error) {
		return c.receive(ctx, p.session)
	}, c.o.Connections, c.o.Stall)
}

// receive makes a receiver, and a connection to its sender.
func (c *Client) receive(ctx context.Context, session transport.Session) (net.Conn, transport.Receiver, error) {
	x, err := transport.CarriageOf(c.o.By)
	if err != nil {
		return nil, nil, err
	}
	r, err := x.Receiver(c.o.Stall)
	if err != nil {
		return nil, nil, err
	}
	address, err := r.Address()
	var conn net.Conn
	if err == nil {
		conn, err = c.dialData(ctx, session, data{c.o.By, address})
	}
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return conn, r, nil
}

// dialData makes a connection for data.
func (c *Client) dialData(ctx context.Context, session transport.Session, d data) (net.Conn, error) {
	ch, err := c.dial(ctx, session)
	if err != nil {
		return nil, err
	}
	if _, err := ask[struct{}](ctx, ch, kindData, d, kindAccepted, c.o.Stall); err != nil {
		ch.Close()
		return nil, err
	}
	ch.SetDeadline(time.Time{})
	return ch.Conn, nil
}

// Close closes the connections and fails active requests.
func (c *Client) Close() {
	c.close()
	c.mu.Lock()
	if c.pair != nil {
		c.pair.close()
	}
	c.pair, c.closed = nil, true
	c.mu.Unlock()
	c.live.Wait()
}

// Stats returns the counts.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/transfer/internal/wire"
	"github.com/krait-ml/krait/transfer/transport"
)

// Engine is what a client asks of the decode side's engine: see [exec.Engine].
type Engine interface {
	Room(tokens, from int) (*exec.KeptStates, *exec.KeptRows, error)
	View(*exec.KeptStates, *exec.KeptRows) (*exec.View, error)
}

// ClientOptions say how a client reaches a server.
type ClientOptions struct {
	// Dial makes a connection to the server, over TCP or TLS: for control, and for data.
	Dial func(context.Context) (net.Conn, error)
	// By is the transport for data: tcp, what was registered, such as ucx, or local, for a server of the same process.
	By string
	// Local is that server.
	Local *Server
	// Token is what the server wants to know.
	Token string
	// Packing is what states and rows travel in; nil: as ranks hold them.
	Packing *exec.Packing
	// Connections is over how many a state is read at the same time; 0: 2.
	Connections int
	// Stall is how long the server may be silent while it has something to do; 0: 10 s.
	Stall time.Duration
	// Retry is for how long a server that was not reached is not tried again; 0: 2 s.
	Retry time.Duration
}

// Client has prompts read elsewhere. Its methods may be called from several goroutines.
type Client struct {
	meta   Meta
	engine Engine
	o      ClientOptions

	mu     sync.Mutex
	pair   *pair // nil: there is no connection
	failed error // why not
	again  time.Time
	closed bool
	stats  ClientStats

	down atomic.Int64 // nanoseconds since 1970 until which nobody is to wait for the server
}

// ClientStats count since the client was made.
type ClientStats struct {
	Requests, Fetched, Failures int
	Tokens, Held                int64 // of what was fetched, and those whose rows were there
	Bytes                       int64
	Pieces                      int64
	Reading                     time.Duration // bytes, in all
}

// NewClient makes a client of a model and its engine. It connects when it is first needed, or
// by [Client.Connect].
func NewClient(meta Meta, e Engine, o ClientOptions) (*Client, error) {
	switch o.By = cmp.Or(o.By, "tcp"); {
	case o.By == "local" && o.Local == nil:
		return nil, errors.New("the transport local, and no server of this process")
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
	meta.Protocol, meta.Codecs = Protocol, o.Packing.String()
	return &Client{meta: meta, engine: e, o: o}, nil
}

// Connect greets the server, unless that was done. An error that is [ErrDiffers] stays.
func (c *Client) Connect(ctx context.Context) error {
	_, err := c.connected(ctx)
	return err
}

// connected is the pair, which is made if there is none.
func (c *Client) connected(ctx context.Context) (*pair, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case c.pair != nil && c.pair.alive():
		return c.pair, nil
	case c.failed != nil && (errors.Is(c.failed, ErrDiffers) || time.Now().Before(c.again)):
		return nil, c.failed
	}
	if c.pair != nil {
		c.pair.close()
		c.pair = nil
	}
	if c.failed != nil { // one tries again; others need not wait for how that ends
		c.down.Store(math.MaxInt64)
	}
	p, err := c.greet(ctx)
	switch {
	case err == nil:
		c.pair, c.failed = p, nil
		c.down.Store(0)
	case over(ctx):
		c.down.Store(0)
	case errors.Is(err, ErrDiffers):
		c.failed = err
		c.down.Store(math.MaxInt64)
	default:
		c.failed, c.again = err, time.Now().Add(c.o.Retry)
		c.down.Store(c.again.UnixNano())
	}
	return p, err
}

// Down reports whether the server could not be reached, and is not tried again yet, or is being
// tried: what is asked of it now comes to nothing, or waits.
func (c *Client) Down() bool { return time.Now().UnixNano() < c.down.Load() }

// over reports whether a context has ended, or is about to: a dialer may be first to notice.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// dial makes a connection, on which something was said and is answered.
func (c *Client) dial(ctx context.Context) (*channel, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Stall)
	defer cancel()
	conn, err := c.o.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return newChannel(conn, c.o.Stall), nil
}

// greet makes a pair.
func (c *Client) greet(ctx context.Context) (*pair, error) {
	ch, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	w, err := ask[welcome](ctx, ch, kindHello, hello{c.meta, c.o.Token, c.o.By}, kindWelcome)
	if err == nil {
		p := &pair{client: c, channel: ch, session: w.Session, waiting: map[uint64]chan any{}, gone: make(chan struct{})}
		if p.moves, err = moves(&w.Meta, &c.meta); err == nil && w.Meta.Codecs != c.meta.Codecs {
			err = fmt.Errorf("%w: states are asked for in %q, and would come in %.40q", ErrDiffers, c.meta.Codecs, w.Meta.Codecs)
		}
		if err == nil {
			ch.known()
			p.reader = c.reader(p)
			go p.listen()
			return p, nil
		}
	}
	ch.Close()
	return nil, err
}

// ask says something on a new connection, and returns the answer that it is to have.
func ask[T any](ctx context.Context, c *channel, k wire.Kind, message any, want wire.Kind) (answer T, err error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer func() {
		if !stop() && err == nil { // it is closed, or about to be: nobody is to ask anything there
			err = context.Cause(ctx)
		}
	}()
	if err = c.say(k, message); err != nil {
		return answer, err
	}
	kind, text, err := c.hearFor(c.stall)
	switch {
	case err != nil:
		return answer, fmt.Errorf("the prefill side does not answer: %w", cmp.Or(context.Cause(ctx), err))
	case kind == want:
		return parse[T](text)
	case kind != kindRefuse:
		return answer, fmt.Errorf("the prefill side answers by a message of kind %d", kind)
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

// reader makes what reads the memory of the other side.
func (c *Client) reader(p *pair) transport.Reader {
	switch c.o.By {
	case "local":
		return transport.Local(c.o.Local.grants, p.session)
	case "tcp":
		return transport.TCP(func(ctx context.Context) (net.Conn, error) {
			return c.dialData(ctx, data{p.session, c.o.By, nil})
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
		conn, err = c.dialData(ctx, data{session, c.o.By, address})
	}
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return conn, r, nil
}

// dialData makes a connection for data.
func (c *Client) dialData(ctx context.Context, d data) (net.Conn, error) {
	ch, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := ask[struct{}](ctx, ch, kindData, d, kindAccepted); err != nil {
		ch.Close()
		return nil, err
	}
	ch.SetDeadline(time.Time{})
	return ch.Conn, nil
}

// Close ends what is under way.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil {
		c.pair.close()
	}
	c.pair, c.closed = nil, true
}

// Stats counts.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

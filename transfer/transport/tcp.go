package transport

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// leastShare is the number of bytes from which on another connection pays.
const leastShare = 1 << 20

// ErrRefused is the error of a read that the source refuses, with its reason.
var ErrRefused = errors.New("the source refuses")

// tcp reads over connections, several at a time.
type tcp struct {
	dial  func(context.Context) (net.Conn, error)
	most  int
	stall time.Duration

	mu     sync.Mutex
	idle   []*link
	busy   map[*link]bool
	closed bool
}

// link is a connection for data.
type link struct {
	net.Conn
	r   *wire.Reader
	w   *wire.Writer
	ask []byte
	buf []byte // for device memory
}

// TCP returns a reader over up to that many connections, which dial makes and [Answer] serves: each
// has a share of the bytes of a read. A read fails if no data comes for the time of stall.
func TCP(dial func(context.Context) (net.Conn, error), connections int, stall time.Duration) Reader {
	return &tcp{dial: dial, most: max(1, connections), stall: stall, busy: map[*link]bool{}}
}

func (t *tcp) Read(ctx context.Context, ticket Ticket, pieces []Piece) *Completion {
	return NewCompletion(func() error {
		if err := Check(pieces); err != nil {
			return err
		}
		return share(ctx, pieces, t.most, func(ctx context.Context, _ int, pieces []Piece) error {
			return t.read(ctx, ticket, pieces)
		})
	})
}

// share reads pieces in up to n parallel shares. It returns when all have ended, so that none
// writes afterwards; one that fails ends the others.
func share(ctx context.Context, pieces []Piece, n int, read func(ctx context.Context, i int, pieces []Piece) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := shares(pieces, n, leastShare)
	errs := make(chan error, len(list))
	for i, pieces := range list {
		go func() { errs <- read(ctx, i, pieces) }()
	}
	var first error
	for range list {
		if err := <-errs; err != nil {
			first = cmp.Or(first, err)
			cancel()
		}
	}
	return first
}

// read reads a share by one connection.
func (t *tcp) read(ctx context.Context, ticket Ticket, pieces []Piece) (err error) {
	l, err := t.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	for _, list := range asks(pieces, mostAsked) {
		if err = l.read(ticket, list, t.stall); err != nil {
			break
		}
	}
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	t.give(l, err == nil && ctx.Err() == nil)
	return err
}

// take returns an idle or a new connection.
func (t *tcp) take(ctx context.Context) (*link, error) {
	t.mu.Lock()
	if n := len(t.idle); n > 0 {
		l := t.idle[n-1]
		t.idle = t.idle[:n-1]
		t.busy[l] = true
		t.mu.Unlock()
		return l, nil
	}
	t.mu.Unlock()
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, r: wire.NewReader(bufio.NewReaderSize(conn, 32<<10), dataBytes), w: wire.NewWriter(conn)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	t.busy[l] = true
	return l, nil
}

// give returns a connection to the idle ones, or closes it.
func (t *tcp) give(l *link, good bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, l)
	if good && !t.closed && len(t.idle) < t.most {
		t.idle = append(t.idle, l)
	} else {
		l.Close()
	}
}

func (t *tcp) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for l := range t.busy {
		l.Close()
	}
	for _, l := range t.idle {
		l.Close()
	}
	t.idle = nil
	return nil
}

// read requests pieces and receives them.
func (l *link) read(t Ticket, pieces []Piece, stall time.Duration) error {
	l.ask = appendAsk(l.ask[:0], t, pieces)
	l.SetDeadline(time.Now().Add(stall))
	if err := l.w.Write(kindAsk, l.ask); err != nil {
		return err
	}
	left := Bytes(pieces)
	for left > 0 {
		l.SetDeadline(time.Now().Add(stall))
		h, err := l.r.Next()
		if err != nil {
			return err
		}
		switch {
		case h.Kind == kindRefused:
			return refusal(l.r)
		case h.Kind != kindData || h.Bytes == 0 || int64(h.Bytes) > left:
			return fmt.Errorf("%w: kind %#x, %d bytes; %d bytes of data are expected", wire.ErrCorrupt, h.Kind, h.Bytes, left)
		}
		left -= int64(h.Bytes)
		if pieces, err = l.scatter(pieces); err == nil {
			err = l.r.End()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scatter writes the payload of a message to its places, and returns the remaining pieces.
func (l *link) scatter(pieces []Piece) ([]Piece, error) {
	for l.r.Left() > 0 {
		p := &pieces[0]
		head, rest := p.cut(int64(l.r.Left()))
		to := head.To.Direct(head.At, head.Bytes)
		direct := to != nil
		if !direct {
			if l.buf == nil {
				l.buf = make([]byte, dataBytes)
			}
			to = l.buf[:head.Bytes]
		}
		if err := l.r.Fill(to); err != nil {
			return nil, err
		}
		if !direct {
			if err := head.To.Write(to, head.At); err != nil {
				return nil, err
			}
		}
		if *p = rest; rest.Bytes == 0 {
			pieces = pieces[1:]
		}
	}
	return pieces, nil
}

// refusal returns the error that the source sent.
func refusal(r *wire.Reader) error {
	text, err := r.Payload()
	if err != nil {
		return err
	}
	for _, known := range []error{ErrEnded, ErrAnother} {
		if string(text) == known.Error() {
			return fmt.Errorf("%w: %w", ErrRefused, known)
		}
	}
	return fmt.Errorf("%w: %q", ErrRefused, text[:min(len(text), mostRefusal)])
}

package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"sync"
	"time"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// Transports other than a connection, such as RDMA, still send requests on one: so the source knows
// what it lends to whom, and both sides notice at once when the other ends. Pieces are sent in
// order, in parts of at most [PartBytes].

// PartBytes bounds a part.
const PartBytes = 1 << 20

// Part is a run of bytes to carry.
type Part struct {
	Memory
	At, Bytes int64
}

// Sender carries parts to a reader.
type Sender interface {
	// Send carries parts under a number, and returns their checksums when all are sent. Until then
	// they must not change. It fails when the context ends.
	Send(ctx context.Context, number uint32, parts []Part) ([]uint32, error)
	Close()
}

// Receiver receives from a [Sender].
type Receiver interface {
	// Receive prepares for parts, calls ask, and returns the checksums of received data. After it
	// returns no part is written; after an error it is closed.
	Receive(ctx context.Context, number uint32, parts []Part, ask func() error) ([]uint32, error)
	Close()
}

// Checksum returns the CRC-32C of a part.
func Checksum(part []byte) uint32 {
	return crc32.Checksum(part, crc32.MakeTable(crc32.Castagnoli))
}

// partsOf cuts memory into parts.
func partsOf(to []Part, m Memory, at, n int64) []Part {
	for ; n > 0; at, n = at+PartBytes, n-PartBytes {
		to = append(to, Part{m, at, min(n, PartBytes)})
	}
	return to
}

// AnswerBy serves reads on a connection, as [Answer] does, by a sender.
func AnswerBy(conn net.Conn, g *Grants, by Session, stall time.Duration, s Sender) error {
	defer s.Close()
	a := &answerer{conn: conn, g: g, by: by, stall: stall, w: wire.NewWriter(conn)}
	ctx, cancel := context.WithCancelCause(context.Background())
	asked := make(chan []byte)
	var live sync.WaitGroup
	defer live.Wait()
	defer conn.Close()
	live.Go(func() { // also during a send, to notice the reader's end
		defer close(asked)
		r := wire.NewReader(bufio.NewReader(conn), mostAsk)
		for {
			payload, err := a.next(r)
			if err != nil {
				cancel(err)
				return
			}
			select {
			case asked <- payload:
			case <-ctx.Done():
				return
			}
		}
	})
	defer cancel(net.ErrClosed)
	for number := uint32(0); ; number++ {
		payload, ok := <-asked
		if !ok {
			return context.Cause(ctx)
		}
		if err := a.carry(ctx, number, payload, s); err != nil {
			return err
		}
	}
}

// carry sends the requested pieces, or a refusal.
func (a *answerer) carry(ctx context.Context, number uint32, payload []byte, s Sender) error {
	x, list, err := a.lent(payload)
	if err != nil {
		return a.refuse(err)
	}
	defer a.g.leave(x)
	var parts []Part
	for _, p := range list {
		parts = partsOf(parts, x.regions[p.region], p.from, p.bytes)
	}
	sums, err := s.Send(ctx, number, parts)
	if err != nil {
		a.refuse(err)
		return err
	}
	var out []byte
	for _, sum := range sums {
		out = binary.LittleEndian.AppendUint32(out, sum)
	}
	a.conn.SetWriteDeadline(time.Now().Add(a.stall))
	return a.w.Write(kindSent, out)
}

// carried reads by receivers.
type carried struct {
	dial  func(context.Context) (net.Conn, Receiver, error)
	stall time.Duration
	lanes []lane
}

// lane has a receiver. Reads of a lane follow each other.
type lane struct {
	mu     sync.Mutex
	c      *carrier // nil: none yet, or the last read failed
	closed bool
}

// carrier is a connection for requests, and the receiver of their pieces.
type carrier struct {
	net.Conn
	Receiver
	w      *wire.Writer
	number uint32
	ends   chan end
}

// end is the end of an answer.
type end struct {
	sums []byte
	err  error
}

// Carried returns a reader by up to that many receivers, whose senders [AnswerBy] has; dial makes
// one, with its connection. A read fails if no data comes for the time of stall.
func Carried(dial func(context.Context) (net.Conn, Receiver, error), receivers int, stall time.Duration) Reader {
	return &carried{dial, stall, make([]lane, max(1, receivers))}
}

func (r *carried) Read(ctx context.Context, t Ticket, pieces []Piece) *Completion {
	return NewCompletion(func() error {
		if err := Check(pieces); err != nil {
			return err
		}
		return share(ctx, pieces, len(r.lanes), func(ctx context.Context, i int, pieces []Piece) error {
			return r.read(ctx, &r.lanes[i], t, pieces)
		})
	})
}

// read reads by a lane.
func (r *carried) read(ctx context.Context, l *lane, t Ticket, pieces []Piece) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	if l.c == nil {
		conn, receiver, err := r.dial(ctx)
		if err != nil {
			return err
		}
		l.c = &carrier{Conn: conn, Receiver: receiver, w: wire.NewWriter(conn), ends: make(chan end, 1)}
		go l.c.listen()
	}
	for _, list := range asks(pieces, mostAtOnce(pieces)) {
		if err := l.c.read(ctx, t, list, r.stall); err != nil {
			l.end()
			return err
		}
	}
	return nil
}

// mostAtOnce bounds a request: it is smaller for device memory, which goes through host buffers.
func mostAtOnce(pieces []Piece) int64 {
	for i := range pieces {
		if p := &pieces[i]; p.To.Direct(p.At, p.Bytes) == nil {
			return 4 * PartBytes
		}
	}
	return mostAsked
}

// end closes the carrier of a lane.
func (l *lane) end() {
	l.c.Conn.Close()
	l.c.Receiver.Close()
	l.c = nil
}

// Close closes idle lanes, and active ones at the end of their read.
func (r *carried) Close() error {
	for i := range r.lanes {
		l := &r.lanes[i]
		l.mu.Lock()
		if l.c != nil {
			l.end()
		}
		l.closed = true
		l.mu.Unlock()
	}
	return nil
}

// listen receives the ends of answers, until the connection ends.
func (c *carrier) listen() {
	r := wire.NewReader(bufio.NewReader(c.Conn), mostAsk)
	for {
		h, err := r.Next()
		var sums []byte
		switch {
		case err != nil:
		case h.Kind == kindSent:
			sums, err = r.Payload()
		case h.Kind == kindRefused:
			err = refusal(r)
		default:
			err = fmt.Errorf("%w: kind %#x", wire.ErrCorrupt, h.Kind)
		}
		c.ends <- end{sums, err}
		if err != nil && !errors.Is(err, ErrRefused) {
			return
		}
	}
}

// read requests pieces and receives them.
func (c *carrier) read(ctx context.Context, t Ticket, pieces []Piece, stall time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts []Part
	for i := range pieces {
		parts = partsOf(parts, pieces[i].To, pieces[i].At, pieces[i].Bytes)
	}
	answer := make(chan end, 1)
	sums, err := c.Receive(ctx, c.number, parts, func() error {
		go func() { // ends with the connection, if not before
			s := <-c.ends
			if s.err != nil {
				cancel(s.err)
			}
			answer <- s
		}()
		c.SetWriteDeadline(time.Now().Add(stall))
		return c.w.Write(kindAsk, appendAsk(nil, t, pieces))
	})
	c.number++
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	select {
	case s := <-answer:
		return s.fit(sums)
	case <-time.After(stall):
		return fmt.Errorf("the source did not confirm the end of its data for %s", stall)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fit compares checksums.
func (s end) fit(sums []uint32) error {
	if s.err != nil {
		return s.err
	}
	if len(s.sums) != 4*len(sums) {
		return fmt.Errorf("%w: checksums of %d bytes for %d parts", wire.ErrCorrupt, len(s.sums), len(sums))
	}
	for i, sum := range sums {
		if binary.LittleEndian.Uint32(s.sums[4*i:]) != sum {
			return fmt.Errorf("%w: the checksum of part %d does not fit", wire.ErrCorrupt, i)
		}
	}
	return nil
}

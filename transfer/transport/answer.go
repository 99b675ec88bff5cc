package transport

import (
	"bufio"
	"fmt"
	"net"
	"time"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// Answer answers a reader's connection for data until it ends: from the memory that is lent
// to the session, without a copy where that is the host's. The reader has to take what it asked
// for: where nothing moves for as long as stall, the connection is closed.
func Answer(conn net.Conn, g *Grants, by Session, stall time.Duration) error {
	defer conn.Close()
	a := &answerer{conn: conn, g: g, by: by, stall: stall, w: wire.NewWriter(conn)}
	r := wire.NewReader(bufio.NewReaderSize(conn, 32<<10), mostAsk)
	for {
		payload, err := a.next(r)
		if err != nil {
			return err
		}
		if err := a.answer(payload); err != nil {
			return err
		}
	}
}

// answerer answers what is asked on a connection.
type answerer struct {
	conn   net.Conn
	g      *Grants
	by     Session
	stall  time.Duration
	w      *wire.Writer
	parts  [][]byte
	bytes  int
	buffer []byte // for what is not the host's memory
	used   int    // of it
}

// next is the next message that asks. A reader may be idle, but not in the middle of one.
func (a *answerer) next(r *wire.Reader) ([]byte, error) {
	a.conn.SetReadDeadline(time.Time{})
	h, err := r.Next()
	if err != nil {
		return nil, err
	}
	if h.Kind != kindAsk {
		return nil, fmt.Errorf("a message of kind %#x where pieces are asked for", h.Kind)
	}
	a.conn.SetReadDeadline(time.Now().Add(a.stall))
	return r.Payload()
}

// answer sends what a message asks for, or says why not. An error means that the connection
// cannot go on.
func (a *answerer) answer(payload []byte) error {
	x, list, err := a.lent(payload)
	if err != nil {
		return a.refuse(err)
	}
	defer a.g.leave(x)
	for _, p := range list {
		if err := a.send(x, p); err != nil {
			return err
		}
	}
	return a.flush()
}

// lent is what a message asks for, all of it or nothing. It stays as it is until it is left.
func (a *answerer) lent(payload []byte) (*grant, []asked, error) {
	t, list, err := parseAsk(payload)
	if err != nil {
		return nil, nil, err
	}
	x, err := a.g.hold(a.by, t)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range list {
		if _, err := x.at(p.region, p.from, p.bytes); err != nil {
			a.g.leave(x)
			return nil, nil, err
		}
	}
	return x, list, nil
}

// send adds a piece to the message under way, and sends that when it is full.
func (a *answerer) send(x *grant, p asked) error {
	m := x.regions[p.region]
	for p.bytes > 0 {
		n := min(p.bytes, int64(dataBytes-a.bytes))
		part := m.Direct(p.from, n)
		if part == nil {
			if a.buffer == nil {
				a.buffer = make([]byte, dataBytes)
			}
			part = a.buffer[a.used:][:n]
			a.used += int(n)
			if err := m.Read(part, p.from); err != nil {
				a.refuse(err) // in the middle: what was sent is of no use
				return err
			}
		}
		a.parts = append(a.parts, part)
		a.bytes += int(n)
		p.from, p.bytes = p.from+n, p.bytes-n
		if a.bytes == dataBytes {
			if err := a.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush sends the message under way.
func (a *answerer) flush() error {
	if a.bytes == 0 {
		return nil
	}
	a.conn.SetWriteDeadline(time.Now().Add(a.stall))
	err := a.w.Write(kindData, a.parts...)
	clear(a.parts)
	a.parts, a.bytes, a.used = a.parts[:0], 0, 0
	return err
}

// refuse says why nothing, or nothing more, comes of what was asked.
func (a *answerer) refuse(why error) error {
	text := why.Error()
	a.conn.SetWriteDeadline(time.Now().Add(a.stall))
	return a.w.Write(kindRefused, []byte(text[:min(len(text), mostRefusal)]))
}

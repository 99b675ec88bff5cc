package transport

import (
	"bufio"
	"fmt"
	"net"
	"time"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// Answer serves reads on a connection for data until it ends: from the memory lent to the session,
// without a copy if it is host memory. The connection is closed if the reader takes no data for the
// time of stall.
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

// answerer serves the reads of a connection.
type answerer struct {
	conn   net.Conn
	g      *Grants
	by     Session
	stall  time.Duration
	w      *wire.Writer
	parts  [][]byte
	bytes  int
	buffer []byte // for device memory
	used   int    // of it
}

// next returns the next request. A reader may be idle, but not within a message.
func (a *answerer) next(r *wire.Reader) ([]byte, error) {
	a.conn.SetReadDeadline(time.Time{})
	h, err := r.Next()
	if err != nil {
		return nil, err
	}
	if h.Kind != kindAsk {
		return nil, fmt.Errorf("a message of kind %#x; expected is a request for pieces", h.Kind)
	}
	a.conn.SetReadDeadline(time.Now().Add(a.stall))
	return r.Payload()
}

// answer sends the requested pieces, or a refusal. After an error the connection cannot be used.
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

// lent returns the pieces of a request, all or none, and holds their grant.
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

// send adds a piece to the current message, and sends that when it is full.
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
				a.refuse(err)
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

// flush sends the current message.
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

// refuse sends why a request fails.
func (a *answerer) refuse(why error) error {
	text := why.Error()
	a.conn.SetWriteDeadline(time.Now().Add(a.stall))
	return a.w.Write(kindRefused, []byte(text[:min(len(text), mostRefusal)]))
}

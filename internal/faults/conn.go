// Package faults breaks connections, for tests.
package faults

import (
	"cmp"
	"net"
	"sync/atomic"
)

// Fault is what happens to the bytes that a connection reads.
type Fault int

// The faults.
const (
	None  Fault = iota
	Cut         // the connection ends
	Flip        // a bit is another
	Stall       // nothing comes any more, and the connection stays open
)

// Conn is a connection to which something happens after a number of bytes was read.
type Conn struct {
	net.Conn
	Fault    Fault
	After    int64
	read     atomic.Int64
	happened atomic.Bool
}

// New breaks a connection.
func New(c net.Conn, f Fault, after int64) *Conn {
	return &Conn{Conn: c, Fault: f, After: after}
}

// Read reads up to the byte at which it happens.
func (c *Conn) Read(b []byte) (int, error) {
	at := c.read.Load()
	if c.Fault == None || at > c.After {
		return c.count(b)
	}
	if left := c.After - at; left > 0 {
		return c.count(b[:min(int64(len(b)), left)])
	}
	switch c.Fault {
	case Cut: // when there is more to read: all may have been read that is ever sent
		n, err := c.Conn.Read(b[:min(1, len(b))])
		c.happened.Store(c.happened.Load() || n > 0)
		c.Conn.Close()
		return 0, cmp.Or(err, net.ErrClosed)
	case Stall: // what comes is not seen; a deadline is
		var drop [4096]byte
		for {
			n, err := c.Conn.Read(drop[:])
			c.happened.Store(c.happened.Load() || n > 0)
			if err != nil {
				return 0, err
			}
		}
	}
	n, err := c.count(b)
	if n > 0 {
		b[0] ^= 1
		c.happened.Store(true)
	}
	return n, err
}

func (c *Conn) count(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// Bytes is how many were read.
func (c *Conn) Bytes() int64 { return c.read.Load() }

// Happened reports whether the fault did.
func (c *Conn) Happened() bool { return c.happened.Load() }

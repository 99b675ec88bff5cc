// Package tcp joins processes by TCP connections, one between each two. It needs no launcher and
// no library. Processes prove to each other that they know the same secret before they join, see
// [Options]; what goes over the connections afterwards is not encrypted.
package tcp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec/comm"
)

// Link is a [comm.Link] of connections.
type Link struct {
	rank  int
	peers []*peer // by rank; nil for this one
	live  sync.WaitGroup
}

// peer is another process.
type peer struct {
	conn *net.TCPConn

	mu      sync.Mutex
	some    *sync.Cond
	queue   []comm.Message
	closing bool // when the queue is empty
	broken  bool // nothing can be sent
}

func newLink(rank int, conns []*net.TCPConn) *Link {
	l := &Link{rank: rank, peers: make([]*peer, len(conns))}
	for r, c := range conns {
		if c != nil {
			l.peers[r] = &peer{conn: c}
			l.peers[r].some = sync.NewCond(&l.peers[r].mu)
		}
	}
	return l
}

// Rank is the rank of this process.
func (l *Link) Rank() int { return l.rank }

// Ranks is the number of processes.
func (l *Link) Ranks() int { return len(l.peers) }

// Start begins to receive and to send.
func (l *Link) Start(deliver func(from int, m comm.Message), lost func(rank int, err error)) {
	for r, p := range l.peers {
		if p == nil {
			continue
		}
		l.live.Go(func() { p.write() })
		l.live.Go(func() {
			err := p.read(func(m comm.Message) { deliver(r, m) })
			lost(r, err)
		})
	}
}

// read reads messages until there are no more.
func (p *peer) read(deliver func(comm.Message)) error {
	from := bufio.NewReaderSize(p.conn, 64<<10)
	for {
		var length [4]byte
		if _, err := io.ReadFull(from, length[:]); err != nil {
			return said(err)
		}
		n := int64(binary.LittleEndian.Uint32(length[:]))
		if n < comm.Header || n >= comm.MaxMessage {
			return fmt.Errorf("it sent a message of %d bytes", n)
		}
		m := comm.NewMessage(int(n) - comm.Header)
		if _, err := io.ReadFull(from, m[4:]); err != nil {
			return said(err)
		}
		deliver(m)
	}
}

// said describes an error of a connection.
func said(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("its connection was closed")
	case errors.As(err, &op):
		return fmt.Errorf("its connection broke: %w", op.Err)
	}
	return err
}

// Send queues a message.
func (l *Link) Send(to int, m comm.Message) {
	p := l.peers[to]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken || p.closing {
		return // the reader reports it
	}
	p.queue = append(p.queue, m)
	p.some.Signal()
}

// write sends queued messages, all at once.
func (p *peer) write() {
	var list []comm.Message
	var out net.Buffers
	for {
		var more bool
		if list, more = p.next(list[:0]); !more {
			return
		}
		out = out[:0]
		for _, m := range list {
			out = append(out, m)
		}
		sent := out // which WriteTo changes
		if _, err := sent.WriteTo(p.conn); err != nil {
			p.breaks()
			return
		}
		for _, m := range list {
			comm.Recycle(m)
		}
	}
}

// next waits for messages to send.
func (p *peer) next(list []comm.Message) ([]comm.Message, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.closing && !p.broken {
		p.some.Wait()
	}
	if p.broken || len(p.queue) == 0 {
		if !p.broken {
			_ = p.conn.CloseWrite() // the other end sees that nothing follows
		}
		return nil, false
	}
	list = append(list, p.queue...)
	clear(p.queue)
	p.queue = p.queue[:0]
	return list, true
}

func (p *peer) breaks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.queue = true, nil
	p.some.Signal()
}

// Close sends queued messages and waits until the others have closed their ends: closing a
// connection with unread data may drop data on its way to them.
func (l *Link) Close(within time.Duration, failed bool) error {
	for _, p := range l.peers {
		if p != nil {
			p.mu.Lock()
			p.closing = true
			p.some.Signal()
			p.mu.Unlock()
			_ = p.conn.SetDeadline(time.Now().Add(within))
		}
	}
	l.live.Wait()
	for _, p := range l.peers {
		if p != nil {
			_ = p.conn.Close() // the others have it all, or never will
		}
	}
	return nil
}

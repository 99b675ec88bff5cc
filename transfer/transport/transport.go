// Package transport brings bytes from the memory of one machine to that of another. A source
// lends regions of its memory under a ticket; a [Reader] reads pieces of them, all with one
// call, straight to where they belong. There is one for memory of the same process here, and
// one over TCP; package transfer/ucx has another.
package transport

import (
	"context"
	"fmt"
)

// Memory is memory of a rank: of some states that are kept, or a page of caches.
type Memory interface {
	Size() int64
	// Direct is the memory itself, n bytes from one on; nil where only the device reaches it.
	Direct(at, n int64) []byte
	// Read and Write copy bytes from one on. They are what there is where Direct gives nil.
	Read(to []byte, at int64) error
	Write(from []byte, at int64) error
}

// Host is memory of the host.
type Host []byte

// Size is its length.
func (h Host) Size() int64 { return int64(len(h)) }

// Direct is a part of it.
func (h Host) Direct(at, n int64) []byte { return h[at:][:n:n] }

// Read copies out of it.
func (h Host) Read(to []byte, at int64) error { copy(to, h[at:]); return nil }

// Write copies into it.
func (h Host) Write(from []byte, at int64) error { copy(h[at:], from); return nil }

// Region is the number of a stretch of a source's memory, the same for as long as the source
// lives.
type Region uint64

// Piece is some bytes that are to be read: where the source has them, and where they go.
type Piece struct {
	Region Region
	From   int64 // byte of the region
	Bytes  int64
	To     Memory
	At     int64 // byte of To
}

// Reader reads memory of a source. Its methods may be called from several goroutines.
type Reader interface {
	// Read begins to read pieces that are lent under a ticket. Once the completion is done,
	// nothing is written to their memory any more, whether it failed or not.
	Read(ctx context.Context, t Ticket, pieces []Piece) *Completion
	// Close ends what is under way.
	Close() error
}

// Completion is a read that was begun.
type Completion struct {
	done chan struct{}
	err  error
}

// NewCompletion runs a read by a goroutine of its own.
func NewCompletion(read func() error) *Completion {
	c := &Completion{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = read()
	}()
	return c
}

// Poll reports whether the read is done, and if so its error.
func (c *Completion) Poll() (done bool, err error) {
	select {
	case <-c.done:
		return true, c.err
	default:
		return false, nil
	}
}

// Done is closed when the read is done.
func (c *Completion) Done() <-chan struct{} { return c.done }

// Wait waits until the read is done. It ends soon after the read's context does.
func (c *Completion) Wait() error {
	<-c.done
	return c.err
}

// Bytes is what pieces have in all.
func Bytes(pieces []Piece) (n int64) {
	for i := range pieces {
		n += pieces[i].Bytes
	}
	return n
}

// Check looks at pieces before anything is read: those of a wrong list would be written
// where they do not belong.
func Check(pieces []Piece) error {
	for i := range pieces {
		p := &pieces[i]
		if p.Bytes < 1 || p.From < 0 || p.At < 0 || p.At > p.To.Size()-p.Bytes {
			return fmt.Errorf("piece %d has %d bytes from %d on, and goes to byte %d of %d", i, p.Bytes, p.From, p.At, p.To.Size())
		}
	}
	return nil
}

// inside reports whether n bytes from one on are in a memory.
func inside(m Memory, from, n int64) bool { return n >= 1 && from >= 0 && from <= m.Size()-n }

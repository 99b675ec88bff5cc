// Package transport transfers bytes between the memories of two machines. A source lends regions of
// its memory under a ticket; a [Reader] reads pieces of them by one call, straight to their
// destination. Readers for the same process and over TCP are here; package transfer/ucx has
// another.
package transport

import (
	"context"
	"fmt"
)

// Memory is memory of a rank: of recurrent states, or a KV page.
type Memory interface {
	Size() int64
	// Direct returns n bytes of the memory itself, or nil for device memory.
	Direct(at, n int64) []byte
	// Read and Write copy bytes from or to an offset.
	Read(to []byte, at int64) error
	Write(from []byte, at int64) error
}

// Host is memory of the host.
type Host []byte

// Size returns the length.
func (h Host) Size() int64 { return int64(len(h)) }

// Direct returns a slice of it.
func (h Host) Direct(at, n int64) []byte { return h[at:][:n:n] }

// Read copies out of it.
func (h Host) Read(to []byte, at int64) error { copy(to, h[at:]); return nil }

// Write copies into it.
func (h Host) Write(from []byte, at int64) error { copy(h[at:], from); return nil }

// Region is the number of a region of a source's memory, fixed for the lifetime of the source.
type Region uint64

// Piece is a run of bytes to read: its place at the source, and its destination.
type Piece struct {
	Region Region
	From   int64 // byte of the region
	Bytes  int64
	To     Memory
	At     int64 // byte of To
}

// Reader reads memory of a source. Its methods may be called from several goroutines.
type Reader interface {
	// Read starts to read pieces that are lent under a ticket. After completion, with an error or
	// without, no piece is written.
	Read(ctx context.Context, t Ticket, pieces []Piece) *Completion
	// Close ends active reads.
	Close() error
}

// Completion is a started read.
type Completion struct {
	done chan struct{}
	err  error
}

// NewCompletion runs a read in a goroutine.
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

// Wait waits until the read is done, which is soon after its context ends.
func (c *Completion) Wait() error {
	<-c.done
	return c.err
}

// Bytes returns the total size of pieces.
func Bytes(pieces []Piece) (n int64) {
	for i := range pieces {
		n += pieces[i].Bytes
	}
	return n
}

// Check checks the bounds of pieces before a read.
func Check(pieces []Piece) error {
	for i := range pieces {
		p := &pieces[i]
		if p.Bytes < 1 || p.From < 0 || p.At < 0 || p.At > p.To.Size()-p.Bytes {
			return fmt.Errorf("piece %d has %d bytes from %d on, and goes to byte %d of %d", i, p.Bytes, p.From, p.At, p.To.Size())
		}
	}
	return nil
}

// inside reports whether n bytes from an offset are within a memory.
func inside(m Memory, from, n int64) bool { return n >= 1 && from >= 0 && from <= m.Size()-n }

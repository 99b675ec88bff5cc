// Package wire frames the messages of transfers: each has a kind, a length and a checksum, and its
// size is bounded before memory is allocated for it.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
)

// Kind is the kind of a message.
type Kind uint8

// HeaderBytes is what precedes each message: its kind, three zeros, its length, the CRC-32C
// of its payload, and that of these 12 bytes, all little-endian.
const HeaderBytes = 16

// ErrCorrupt is the error of a damaged message.
var ErrCorrupt = errors.New("a corrupt message")

var table = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// Header is the header of a message.
type Header struct {
	Kind  Kind
	Bytes int
	sum   uint32
}

// Writer writes messages. It belongs to one goroutine.
type Writer struct {
	w    io.Writer
	head [HeaderBytes]byte
	list net.Buffers
}

// NewWriter writes to a connection.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write sends a message with a payload of some parts, without copying them.
func (w *Writer) Write(k Kind, parts ...[]byte) error {
	n, sum := 0, uint32(0)
	for _, p := range parts {
		n += len(p)
		sum = crc32.Update(sum, table(), p)
	}
	putHeader(&w.head, k, n, sum)
	w.list = append(append(w.list[:0], w.head[:]), parts...)
	list := w.list // WriteTo consumes it
	_, err := list.WriteTo(w.w)
	clear(w.list)
	return err
}

func putHeader(to *[HeaderBytes]byte, k Kind, n int, sum uint32) {
	*to = [HeaderBytes]byte{byte(k)}
	binary.LittleEndian.PutUint32(to[4:], uint32(n))
	binary.LittleEndian.PutUint32(to[8:], sum)
	binary.LittleEndian.PutUint32(to[12:], crc32.Checksum(to[:12], table()))
}

// Reader reads messages: [Reader.Next], and then the payload, by [Reader.Payload] or in pieces by
// [Reader.Fill] and [Reader.End]. It belongs to one goroutine.
type Reader struct {
	r    io.Reader
	most int // bytes of a payload
	sum  uint32
	now  Header
	left int
}

// NewReader returns a reader of messages with payloads of at most that many bytes.
func NewReader(r io.Reader, most int) *Reader { return &Reader{r: r, most: most} }

// Next reads the header of the next message. The error is io.EOF if the connection ends between
// messages.
func (r *Reader) Next() (Header, error) {
	var head [HeaderBytes]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Header{}, err
	}
	le := binary.LittleEndian
	if le.Uint32(head[12:]) != crc32.Checksum(head[:12], table()) || head[1]|head[2]|head[3] != 0 {
		return Header{}, fmt.Errorf("%w: its header's checksum does not fit; is the other side krait's transfer?", ErrCorrupt)
	}
	n := le.Uint32(head[4:])
	if int64(n) > int64(r.most) {
		return Header{}, fmt.Errorf("a message of %d bytes; at most %d are taken", n, r.most)
	}
	r.now = Header{Kind(head[0]), int(n), le.Uint32(head[8:])}
	r.sum, r.left = 0, int(n)
	return r.now, nil
}

// Fill reads the next bytes of the payload.
func (r *Reader) Fill(to []byte) error {
	if len(to) > r.left {
		return fmt.Errorf("%w: %d bytes are missing in it", ErrCorrupt, len(to)-r.left)
	}
	if _, err := io.ReadFull(r.r, to); err != nil {
		return whole(err)
	}
	r.sum = crc32.Update(r.sum, table(), to)
	r.left -= len(to)
	return nil
}

// End checks the payload after all of it was read.
func (r *Reader) End() error {
	switch {
	case r.left > 0:
		return fmt.Errorf("%w: it has %d bytes too many", ErrCorrupt, r.left)
	case r.sum != r.now.sum:
		return fmt.Errorf("%w: the checksum of its %d bytes does not fit", ErrCorrupt, r.now.Bytes)
	}
	return nil
}

// Payload reads all of the payload, growing as data arrives, so that a length alone takes no
// memory.
func (r *Reader) Payload() ([]byte, error) {
	const step = 1 << 20
	var out []byte
	for r.left > 0 {
		at, n := len(out), min(r.left, step)
		out = append(out, make([]byte, n)...)
		if err := r.Fill(out[at:]); err != nil {
			return nil, err
		}
	}
	return out, r.End()
}

// Left returns the number of unread bytes of the payload.
func (r *Reader) Left() int { return r.left }

// whole turns an end within a message into io.ErrUnexpectedEOF.
func whole(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

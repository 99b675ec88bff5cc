package route

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/lobby"
	"github.com/krait-ml/krait/serving/internal/api"
)

// slowest is the least rate of an upload after its start, in bytes per second.
const slowest = 64 << 10

// uploadBytes is the memory of a request besides its body: a goroutine and buffers.
const uploadBytes = 16 << 10

// body is the body of a request. The router holds it until a machine has read it and begins to
// answer.
type body struct {
	r     *Router
	who   string
	guest *lobby.Guest
	holds int64
	waits bool     // complete, and in Router.waiting
	parts [][]byte // until it is complete

	mu    sync.Mutex
	data  []byte
	taken *bodyReader // the last machine's
}

// A body is read into buffers that are reused, so that incomplete uploads leave no garbage.
const (
	firstPart = 4 << 10
	partBytes = 64 << 10
)

var spare = sync.Pool{New: func() any { return new([partBytes]byte) }}

// upload reads a body. The request is not active yet. When all bytes are taken, the client that
// holds most loses its largest body.
func (r *Router) upload(w http.ResponseWriter, q *http.Request, who string) (*body, *api.Error) {
	b := &body{r: r, who: who, holds: uploadBytes}
	control := http.NewResponseController(w)
	b.guest = r.lobby.Enter(who, uploadBytes, func() { control.SetReadDeadline(time.Unix(1, 0)) })
	if b.guest == nil {
		return nil, errBodies()
	}
	begun, got := time.Now(), 0
	from := http.MaxBytesReader(w, q.Body, r.o.Body)
	for {
		control.SetReadDeadline(begun.Add(r.o.SlowStart + time.Duration(got)*time.Second/slowest)) // a test may have none
		part := b.room()
		if part == nil {
			b.free()
			return nil, errBodies()
		}
		n, err := from.Read((*part)[len(*part):cap(*part)])
		*part = (*part)[:len(*part)+n]
		got += n
		if err == io.EOF {
			b.data = slices.Concat(b.parts...)
			b.recycle()
			return b, nil
		}
		if err != nil {
			evicted := !b.guest.Grow(0)
			b.free()
			return nil, r.errUpload(err, evicted)
		}
	}
}

// room returns the buffer for the next bytes, or nil if the body was evicted.
func (b *body) room() *[]byte {
	n := len(b.parts)
	if n > 0 && len(b.parts[n-1]) < cap(b.parts[n-1]) {
		if !b.guest.Grow(0) {
			return nil
		}
		return &b.parts[n-1]
	}
	more := int64(partBytes)
	if n == 0 {
		more = firstPart
	}
	if !b.guest.Grow(more) {
		return nil
	}
	b.holds += more
	if n == 0 {
		b.parts = append(b.parts, make([]byte, 0, firstPart))
	} else {
		b.parts = append(b.parts, spare.Get().(*[partBytes]byte)[:0])
	}
	return &b.parts[n]
}

// recycle returns the buffers to the pool.
func (b *body) recycle() {
	for _, p := range b.parts {
		if cap(p) == partBytes {
			spare.Put((*[partBytes]byte)(p[:partBytes]))
		}
	}
	b.parts = nil
}

func (r *Router) errUpload(err error, evicted bool) *api.Error {
	var large *http.MaxBytesError
	switch {
	case evicted:
		return errBodies()
	case errors.As(err, &large):
		return coded(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes, the limit of this router", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return coded(http.StatusRequestTimeout, "slow_client", "the body came too slowly; send at least %d bytes per second after the first %v", slowest, r.o.SlowStart)
	}
	return coded(http.StatusBadRequest, "short_body", "the body ends early")
}

// errBodies is the error for a body that does not fit the bounds of bytes.
func errBodies() *api.Error {
	return coded(http.StatusTooManyRequests, "router_full", "the router holds its limit of request bytes, or this client's share of it; try again later")
}

// wait counts a complete body against its client's share of bytes, and reports whether it fits.
func (b *body) wait() bool {
	if b == nil {
		return true
	}
	b.waits = b.r.waiting.Take(b.who, b.holds)
	return b.waits && b.guest.Settle()
}

// free releases the bytes. It may be called more than once, and on nil.
func (b *body) free() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = nil
	b.recycle()
	b.guest.Leave()
	if b.waits {
		b.r.waiting.Add(b.who, -b.holds)
		b.waits = false
	}
}

// bytes returns the data; b may be nil.
func (b *body) bytes() []byte {
	if b == nil {
		return nil
	}
	return b.data
}

// answered frees a body whose answer has begun, unless the machine has yet to read the end of it:
// net/http would close a connection whose request stops short.
func (b *body) answered() {
	if b == nil {
		return
	}
	b.mu.Lock()
	short := b.taken != nil && b.taken.at < b.taken.size
	b.mu.Unlock()
	if !short {
		b.free()
	}
}

// reader reads the body for a machine, until the body is freed.
func (b *body) reader() io.ReadCloser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = &bodyReader{b: b, size: len(b.data)}
	return b.taken
}

type bodyReader struct {
	b        *body
	at, size int
}

func (r *bodyReader) Read(to []byte) (int, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	switch {
	case r.at == r.size:
		return 0, io.EOF
	case r.b.data == nil:
		return 0, io.ErrClosedPipe // the request has ended
	}
	n := copy(to, r.b.data[r.at:])
	r.at += n
	return n, nil
}

func (r *bodyReader) Close() error { return nil }

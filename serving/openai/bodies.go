package openai

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/lobby"
	"github.com/krait-ml/krait/serving/internal/budget"
)

// Bounds of requests before they enter the queue.
const (
	leastBody    = 4 << 10  // bytes that a request counts as, at least
	leastBodies  = 8 << 20  // least default of Options.Bodies
	mostBodies   = 64 << 20 // greatest default
	bodiesShare  = 64       // the default is planned memory divided by this
	bodiesAtOnce = 8        // Bodies divided by this is parsed and tokenized at the same time
)

// defaultBodies returns the default of Options.Bodies for planned memory; 0: no plan.
func defaultBodies(memory int64) int64 {
	if memory == 0 {
		return mostBodies
	}
	return min(max(memory/bodiesShare, leastBodies), mostBodies)
}

// intake bounds requests before they enter the queue: the bytes of their bodies, per sender, and
// the bytes that are parsed and tokenized at the same time, which needs about 15 times the memory,
// and up to 70 times with some tokenizers. Senders take turns by bytes (start-time fair queueing:
// Goyal, Vin and Cheng, 1996).
type intake struct {
	bytes  *budget.Bytes
	atOnce int64

	mu      sync.Mutex // of all below, and of leases
	busy    int64      // bytes of leases that have their turn
	waiting []*lease   // in order of arrival
	clock   int64      // virtual time: bytes served to a sender that always waits
	finish  map[string]int64
}

// lease is a request's share of an intake.
type lease struct {
	in     *intake
	sender string
	bytes  int64 // of the budget

	start int64 // virtual time of its turn
	size  int64 // bytes that count during its turn
	turn  chan struct{}
	has   bool // it has its turn
}

func newIntake(bodies, body int64) *intake {
	return &intake{bytes: budget.New(bodies), atOnce: max(body, bodies/bodiesAtOnce), finish: map[string]int64{}}
}

// take leases n bytes for the body of a request.
func (in *intake) take(sender string, n int64) (*lease, error) {
	n = max(n, leastBody)
	if !in.bytes.Take(sender, n) {
		e := coded(http.StatusTooManyRequests, "rate_limit_error", "bodies_full", "%d bytes of requests are in progress, and %d more exceed this sender's share; retry later", in.bytes.Held(), n)
		e.Retry = time.Second
		return nil, e
	}
	return &lease{in: in, sender: sender, bytes: n}, nil
}

// resize sets the bytes of the lease to those of the request, or of its answer.
func (l *lease) resize(n int) {
	to := max(int64(n), leastBody)
	l.in.bytes.Add(l.sender, to-l.bytes)
	l.bytes = to
}

// wait waits for the lease's turn to be parsed and tokenized.
func (l *lease) wait(ctx context.Context) error {
	in := l.in
	in.mu.Lock()
	l.turn, l.size = make(chan struct{}), l.bytes
	l.start = max(in.clock, in.finish[l.sender])
	in.finish[l.sender] = l.start + l.size
	in.waiting = append(in.waiting, l)
	in.next()
	in.mu.Unlock()
	select {
	case <-l.turn:
		return nil
	case <-ctx.Done():
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if l.has {
		return nil
	}
	in.waiting = slices.DeleteFunc(in.waiting, func(o *lease) bool { return o == l })
	in.next()
	return context.Cause(ctx)
}

// next gives turns in order of virtual time. A small lease does not overtake a large one.
func (in *intake) next() {
	for len(in.waiting) > 0 {
		l := slices.MinFunc(in.waiting, func(a, b *lease) int { return cmp.Compare(a.start, b.start) })
		if in.busy > 0 && in.busy+l.size > in.atOnce {
			return
		}
		in.waiting = slices.DeleteFunc(in.waiting, func(o *lease) bool { return o == l })
		in.busy += l.size
		in.clock = l.start
		maps.DeleteFunc(in.finish, func(_ string, at int64) bool { return at <= in.clock })
		l.has = true
		close(l.turn)
	}
	if in.busy == 0 {
		clear(in.finish)
	}
}

// rest ends the lease's turn, if it has one. The lease keeps its bytes.
func (l *lease) rest() {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	if l.has {
		l.has = false
		l.in.busy -= l.size
		l.in.next()
	}
}

// end ends the lease. It may be called more than once.
func (l *lease) end() {
	l.rest()
	l.in.bytes.Add(l.sender, -l.bytes)
	l.bytes = 0
}

// admit bounds a request before it reads the body, and stores the body's lease in w.
func (s *Server) admit(w *response, r *http.Request) error {
	if err := s.queue.Check(w.tenant, 0); err != nil {
		return err
	}
	size := r.ContentLength
	switch {
	case size > s.o.Body:
		return &http.MaxBytesError{Limit: s.o.Body}
	case size < 0:
		size = s.o.Body
	}
	var err error
	if w.lease, err = s.intake.take(cmp.Or(w.tenant, lobby.Host(r.RemoteAddr)), size); err != nil {
		return err
	}
	r.Body = &timedBody{ReadCloser: http.MaxBytesReader(w, r.Body, s.o.Body), w: w, begun: time.Now(), rate: float64(s.o.Body) / (w.stall * 2 / 3).Seconds()}
	return nil
}

// timedBody requires a body to arrive at a rate. The first byte may take a third of the time for
// the largest body. After the body there is no deadline: net/http reads on to detect a disconnect.
type timedBody struct {
	io.ReadCloser
	w     *response
	begun time.Time
	rate  float64 // bytes per second
	n     int64
}

func (b *timedBody) Read(p []byte) (int, error) {
	late := b.w.stall/3 + time.Duration(float64(b.n)/b.rate*float64(time.Second))
	b.w.control.SetReadDeadline(b.begun.Add(late))
	n, err := b.ReadCloser.Read(p)
	if b.n += int64(n); err == io.EOF {
		b.w.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// readAll reads the body, and waits for its turn to be parsed and tokenized.
func readAll(w *response, r *http.Request) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	if _, err := data.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	w.lease.resize(data.Len())
	return data.Bytes(), w.lease.wait(r.Context())
}

// leased answers with JSON, whose bytes replace those of the request in its lease.
func (w *response) leased(data []byte) {
	w.lease.resize(len(data))
	w.lease.rest()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.Write(data)
}

// leastTokens returns a lower bound of the tokens of a text, by the vocabulary's longest token.
func (s *Server) leastTokens(bytes int) int {
	longest := s.longestToken()
	return (bytes + longest - 1) / longest
}

// newLongestToken returns the bytes of the vocabulary's longest token.
func (s *Server) newLongestToken() int {
	longest := 1
	for id := range s.m.Vocab() {
		if piece, ok := s.tokens.Piece(id); ok {
			longest = max(longest, len(piece))
		}
	}
	return longest
}

package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/faults"
	"github.com/krait-ml/krait/transfer/internal/wire"
)

// far is memory that only a device reaches.
type far struct{ Host }

func (far) Direct(at, n int64) []byte { return nil }

// failing is memory whose device fails.
type failing struct{ far }

func (failing) Read(to []byte, at int64) error { return errors.New("the device is lost") }

// source is one of random bytes, and the readers of it.
type source struct {
	*Grants
	by      Session
	regions map[Region]Memory
	data    map[Region][]byte
	ended   atomic.Int32
}

func newSource(r *rand.Rand, sizes ...int) *source {
	s := &source{Grants: NewGrants(), by: NewSession(), regions: map[Region]Memory{}, data: map[Region][]byte{}}
	for i, n := range sizes {
		data := make([]byte, n)
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		id := Region(i)<<32 | 5
		s.data[id], s.regions[id] = data, Host(data)
		if i%2 == 1 {
			s.regions[id] = far{data}
		}
	}
	return s
}

func (s *source) lend(lease time.Duration) Ticket {
	return s.Lend(s.by, s.regions, lease, func() { s.ended.Add(1) })
}

// listen answers connections, each broken as said, and dials them.
func (s *source) listen(t testing.TB, by Session, broken func(net.Conn) net.Conn) func(context.Context) (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var live sync.WaitGroup
	live.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			live.Go(func() { Answer(c, s.Grants, by, time.Second) })
		}
	})
	t.Cleanup(func() { l.Close(); live.Wait() })
	return func(ctx context.Context) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err == nil && broken != nil {
			c = broken(c)
		}
		return c, err
	}
}

// draw makes random pieces, with memory for them, and what is to be there.
func (s *source) draw(r *rand.Rand, n int) (pieces []Piece, check func(t *testing.T)) {
	var at int64
	for range n {
		id := Region(r.IntN(len(s.data)))<<32 | 5
		size := int64(len(s.data[id]))
		from := r.Int64N(size)
		p := Piece{Region: id, From: from, Bytes: 1 + r.Int64N(size-from), At: at}
		at += p.Bytes + r.Int64N(3)
		pieces = append(pieces, p)
	}
	to, want := make([]byte, at+2), make([]byte, at+2)
	for i := range pieces {
		p := &pieces[i]
		if p.To = Host(to); i%3 == 2 {
			p.To = far{to}
		}
		copy(want[p.At:], s.data[p.Region][p.From:][:p.Bytes])
	}
	return pieces, func(t *testing.T) {
		t.Helper()
		if !bytes.Equal(to, want) {
			t.Error("what arrived is not what was sent, or not where it belongs")
		}
	}
}

func TestRead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := newSource(r, 1, 7, 4096, dataBytes, 2*leastShare+3, 3*dataBytes-1)
	tcp := TCP(s.listen(t, s.by, nil), 3, time.Second)
	defer tcp.Close()
	for name, reader := range map[string]Reader{"local": Local(s.Grants, s.by), "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 30, 1, mostPieces + 1} {
				ticket := s.lend(time.Minute)
				src := s
				if n > 1000 { // many small ones
					src = &source{data: map[Region][]byte{5: s.data[5], 1<<32 | 5: s.data[1<<32|5]}}
				}
				pieces, check := src.draw(r, n)
				if err := reader.Read(t.Context(), ticket, pieces).Wait(); err != nil {
					t.Fatal(err)
				}
				check(t)
				if !s.End(s.by, ticket) || s.End(s.by, ticket) {
					t.Error("a lease ends once")
				}
			}
			for range 1000 { // memory is given back when the side that sends has let go of it, too
				if s.ended.Load() == 6 {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if n := s.ended.Swap(0); n != 6 || s.Len() != 0 {
				t.Errorf("%d ended, %d are lent", n, s.Len())
			}
		})
	}
}

// TestShares: pieces that are cut are the same bytes, within the bounds of messages.
func TestShares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var pieces []Piece
		var at int64
		for range r.IntN(5) {
			n := 1 + r.Int64N(3<<30)
			pieces = append(pieces, Piece{Region: Region(len(pieces)), From: r.Int64N(100), Bytes: n, At: at})
			at += n
		}
		var got []Piece
		lists := shares(pieces, 1+r.IntN(4), leastShare)
		for _, share := range lists {
			for _, list := range asks(share, mostAsked) {
				if len(list) > mostPieces || Bytes(list) > mostAsked {
					t.Fatalf("%d pieces of %d bytes", len(list), Bytes(list))
				}
				if _, back, err := parseAsk(appendAsk(nil, Ticket{}, list)); err != nil || len(back) != len(list) {
					t.Fatal(err)
				}
				got = append(got, list...)
			}
		}
		for _, p := range pieces {
			for n := int64(0); n < p.Bytes; got = got[1:] {
				if len(got) == 0 || got[0].Region != p.Region || got[0].From != p.From+n || got[0].At != p.At+n {
					t.Fatalf("byte %d of a piece is lost", n)
				}
				n += got[0].Bytes
			}
		}
		if len(got) > 0 {
			t.Fatal("there are bytes that nobody wanted")
		}
	}
}

// TestFaults: whatever happens to a connection at any byte is an error of the read, in time;
// afterwards nothing is lent, and the next read is well.
func TestFaults(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	s := newSource(r, 3*dataBytes)
	for _, f := range []faults.Fault{faults.Cut, faults.Flip, faults.Stall} {
		for _, after := range []int64{0, 5, wire.HeaderBytes, wire.HeaderBytes + 1, dataBytes / 2, dataBytes + wire.HeaderBytes - 1, 3*dataBytes + 3*wire.HeaderBytes - 1} {
			var conn *faults.Conn
			reader := TCP(s.listen(t, s.by, func(c net.Conn) net.Conn {
				if conn != nil { // the second is well
					return c
				}
				conn = faults.New(c, f, after)
				return conn
			}), 1, 200*time.Millisecond)
			ticket := s.lend(time.Minute)
			to := make([]byte, 3*dataBytes)
			pieces := []Piece{{5, 0, 3 * dataBytes, Host(to), 0}}
			if err := reader.Read(t.Context(), ticket, pieces).Wait(); err == nil {
				t.Errorf("fault %d after %d bytes is not seen", f, after)
			}
			clear(to)
			if err := reader.Read(t.Context(), ticket, pieces).Wait(); err != nil || !bytes.Equal(to, s.data[5]) {
				t.Errorf("after fault %d: %v", f, err)
			}
			reader.Close()
			s.End(s.by, ticket)
			waitFor(t, func() bool { return s.ended.Swap(0) == 1 })
		}
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to an end")
		}
	}
}

// TestRefused: what is not lent is not read, and the reason comes over.
func TestRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	s := newSource(r, 100, 100)
	other := NewSession()
	s.regions[9] = failing{far{make([]byte, 10)}}
	ticket := s.lend(time.Minute)
	stale := s.lend(time.Nanosecond)
	waitFor(t, func() bool { return s.ended.Load() == 1 })
	to := Host(make([]byte, 200))
	for _, c := range []struct {
		name   string
		by     Session
		ticket Ticket
		piece  Piece
		want   string
	}{
		{"stale", s.by, stale, Piece{5, 0, 10, to, 0}, ErrEnded.Error()},
		{"made up", s.by, Ticket{1}, Piece{5, 0, 10, to, 0}, ErrEnded.Error()},
		{"another's", other, ticket, Piece{5, 0, 10, to, 0}, ErrAnother.Error()},
		{"region", s.by, ticket, Piece{6, 0, 10, to, 0}, "region 0x6 is not lent"},
		{"too many bytes", s.by, ticket, Piece{5, 0, 101, to, 0}, "101 bytes from 0 on of region 0x5, which has 100"},
		{"behind its end", s.by, ticket, Piece{5, 100, 1, to, 0}, "1 bytes from 100 on"},
		{"overflow", s.by, ticket, Piece{5, 1<<63 - 1, 10, to, 0}, "10 bytes from 9223372036854775807 on"},
		{"device", s.by, ticket, Piece{9, 0, 10, to, 0}, "the device is lost"},
		{"own memory", s.by, ticket, Piece{5, 0, 10, to, 191}, "goes to byte 191 of 200"},
		{"none", s.by, ticket, Piece{5, 0, 0, to, 0}, "0 bytes"},
	} {
		tcp := TCP(s.listen(t, c.by, nil), 2, time.Second)
		for name, reader := range map[string]Reader{"local": Local(s.Grants, c.by), "tcp": tcp} {
			err := reader.Read(t.Context(), c.ticket, []Piece{c.piece}).Wait()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v", c.name, name, err)
			}
			if wantEnded := c.want == ErrEnded.Error(); errors.Is(err, ErrEnded) != wantEnded {
				t.Errorf("%s, %s: %v is not the error that it is", c.name, name, err)
			}
		}
		if c.name != "device" { // the connection is still good
			if err := tcp.Read(t.Context(), ticket, []Piece{{5, 0, 10, to, 0}}).Wait(); (err == nil) != (c.by == s.by) {
				t.Errorf("%s, and then: %v", c.name, err)
			}
		}
		tcp.Close()
	}
}

// TestLeaseDuringRead: memory is not given back while it is sent, and the reader learns
// at the end that its lease was over.
func TestLeaseDuringRead(t *testing.T) {
	s := newSource(rand.New(rand.NewPCG(9, 9)), 8<<20)
	begun, go_on := make(chan bool), make(chan bool)
	var once sync.Once
	s.regions[5] = slow{far{s.data[5]}, func() { once.Do(func() { close(begun); <-go_on }) }}
	reader := TCP(s.listen(t, s.by, nil), 1, 5*time.Second)
	defer reader.Close()
	ticket := s.lend(time.Minute)
	to := make([]byte, 8<<20)
	c := reader.Read(t.Context(), ticket, []Piece{{5, 0, 8 << 20, Host(to), 0}})
	<-begun
	if done, _ := c.Poll(); done {
		t.Error("it is done before it is there")
	}
	s.End(s.by, ticket)
	if s.ended.Load() != 0 {
		t.Error("memory that is being sent is given back")
	}
	close(go_on)
	if err := c.Wait(); err != nil || !bytes.Equal(to, s.data[5]) {
		t.Error(err)
	}
	if done, err := c.Poll(); !done || err != nil {
		t.Error(done, err)
	}
	waitFor(t, func() bool { return s.ended.Load() == 1 })
	if s.End(s.by, ticket) {
		t.Error("the lease had not ended")
	}
}

// slow is memory that calls before it is read.
type slow struct {
	far
	before func()
}

func (s slow) Read(to []byte, at int64) error { s.before(); return s.far.Read(to, at) }

// TestCancel: a read whose context ends does so, too, at any time.
func TestCancel(t *testing.T) {
	s := newSource(rand.New(rand.NewPCG(1, 9)), 8<<20)
	for _, name := range []string{"local", "tcp"} {
		ctx, cancel := context.WithCancel(t.Context())
		s.regions[5] = slow{far{s.data[5]}, cancel}
		reader := Local(s.Grants, s.by)
		if name == "tcp" {
			reader = TCP(s.listen(t, s.by, nil), 2, 5*time.Second)
		}
		err := reader.Read(ctx, s.lend(time.Minute), []Piece{{5, 0, 8 << 20, Host(make([]byte, 8<<20)), 0}}).Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		reader.Close()
	}
}

// TestGone: a reader who is gone leaves nothing that is lent, also in the middle of a read
// that it does not take.
func TestGone(t *testing.T) {
	s := newSource(rand.New(rand.NewPCG(2, 9)), 64<<20)
	conn, err := s.listen(t, s.by, nil)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ticket := s.lend(time.Minute)
	s.lend(time.Minute)
	w := wire.NewWriter(conn)
	if err := w.Write(kindAsk, appendAsk(nil, ticket, []Piece{{5, 0, 64 << 20, nil, 0}})); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil { // and no more: it is stopped
		t.Fatal(err)
	}
	s.EndAll(NewSession())
	if s.Len() != 2 {
		t.Error("somebody else's leases ended")
	}
	s.EndAll(s.by)
	if s.Len() != 0 || s.ended.Load() != 1 {
		t.Errorf("%d are lent, %d ended", s.Len(), s.ended.Load())
	}
	waitFor(t, func() bool { return s.ended.Load() == 2 }) // by the stall
}

// FuzzAsk: what asks for pieces is within bounds, and what it says.
func FuzzAsk(f *testing.F) {
	f.Add(appendAsk(nil, Ticket{1}, []Piece{{1, 2, 3, nil, 0}, {4, 5, 6, nil, 0}}))
	f.Add(make([]byte, 16))
	f.Fuzz(func(t *testing.T, data []byte) {
		ticket, list, err := parseAsk(data)
		if err != nil {
			return
		}
		var pieces []Piece
		all := int64(0)
		for _, p := range list {
			all += p.bytes
			if p.bytes < 1 || p.from < 0 || all > mostAsked {
				t.Fatal(list)
			}
			pieces = append(pieces, Piece{Region: p.region, From: p.from, Bytes: p.bytes})
		}
		if !bytes.Equal(appendAsk(nil, ticket, pieces), data) {
			t.Fatal("it says something else")
		}
	})
}

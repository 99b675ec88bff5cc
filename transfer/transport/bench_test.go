package transport

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// BenchmarkTCP reads states over the loopback, and BenchmarkCopy sends as many bytes by one
// io.Copy to one that throws them away.
func BenchmarkTCP(b *testing.B) {
	for _, n := range []int{64 << 20, 256 << 20} {
		s := newSource(rand.New(rand.NewPCG(1, 1)), n)
		to := make([]byte, n)
		cut := func(piece int) (pieces []Piece) {
			for at := 0; at < n; at += piece {
				pieces = append(pieces, Piece{5, int64(at), int64(min(piece, n-at)), Host(to), int64(at)})
			}
			return pieces
		}
		pieces := cut(3<<20 + 64)                                             // as an SSM layer has
		b.Run(fmt.Sprintf("%dMB/stretches=2048", n>>20), func(b *testing.B) { // as rows have, of some heads
			reader := TCP(s.listen(b, s.by, nil), 2, 10*time.Second)
			defer reader.Close()
			readLoopback(b, s, reader, cut(2048))
		})
		for _, connections := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%dMB/connections=%d", n>>20, connections), func(b *testing.B) {
				reader := TCP(s.listen(b, s.by, nil), connections, 10*time.Second)
				defer reader.Close()
				readLoopback(b, s, reader, pieces)
			})
		}
		b.Run(fmt.Sprintf("%dMB/io.Copy", n>>20), func(b *testing.B) { copyLoopback(b, s.data[5]) })
	}
}

func readLoopback(b *testing.B, s *source, reader Reader, pieces []Piece) {
	ticket := s.lend(time.Minute)
	defer s.End(s.by, ticket)
	b.SetBytes(Bytes(pieces))
	for b.Loop() {
		if err := reader.Read(b.Context(), ticket, pieces).Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// copyLoopback sends data by io.Copy, as a benchmark.
func copyLoopback(b *testing.B, data []byte) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	got := make(chan int64)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		to := make([]byte, len(data))
		for {
			n, err := io.ReadFull(c, to)
			got <- int64(n)
			if err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := io.Copy(c, &once{data}); err != nil {
			b.Fatal(err)
		}
		if n := <-got; n != int64(len(data)) {
			b.Fatal(n)
		}
	}
	c.Close()
	<-got
}

// once is a reader that io.Copy asks to write itself, in one go.
type once struct{ data []byte }

func (o *once) Read(p []byte) (int, error) { panic("BUG: io.Copy asks for WriteTo first") }

func (o *once) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(o.data)
	return int64(n), err
}

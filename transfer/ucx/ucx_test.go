//go:build linux && (amd64 || arm64) && !static

package ucx

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer/transport"
)

// installed skips a test without UCX, in a line that says so.
func installed(t testing.TB) {
	if _, err := Version(); err != nil {
		t.Skip(err)
	}
}

// TestMain is a source or a reader in a process of its own where it is asked to.
func TestMain(m *testing.M) {
	switch n := 0; {
	case os.Getenv("KRAIT_TEST_SOURCE") != "":
		fmt.Sscan(os.Getenv("KRAIT_TEST_SOURCE"), &n)
		s, err := newSource(n)
		if err != nil {
			panic(err)
		}
		s.mortal = os.Getenv("KRAIT_TEST_MORTAL") != ""
		json.NewEncoder(os.Stdout).Encode(s.lent)
		bufio.NewReader(os.Stdin).ReadString('\n') // until the test has ended
	case os.Getenv("KRAIT_TEST_READER") != "":
		var l lent
		json.Unmarshal([]byte(os.Getenv("KRAIT_TEST_READER")), &l)
		pieces, _ := all(memory(bytesOfTest), false)
		r := l.reads()
		die(40 * time.Millisecond)
		for r.Read(context.Background(), l.Ticket, pieces).Wait() == nil {
		}
		os.Exit(1) // it is to be killed
	default:
		os.Exit(m.Run())
	}
}

// die kills this process within some time.
func die(most time.Duration) {
	time.AfterFunc(rand.N(most), func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
}

// mortal is a sender that dies while it sends.
type mortal struct{ transport.Sender }

func (m mortal) Send(ctx context.Context, number uint32, parts []transport.Part) ([]uint32, error) {
	die(2 * time.Millisecond)
	return m.Sender.Send(ctx, number, parts)
}

// lent says how a source is reached.
type lent struct {
	Address string
	Ticket  transport.Ticket
	Session transport.Session
	Far     bool // taken for one on another host
}

// source lends memory by UCX and over TCP.
type source struct {
	lent
	*transport.Grants
	net.Listener
	mortal bool // it dies as soon as it sends
}

// memory is a source of n bytes in its regions.
func memory(n int) (list []transport.Host) {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for _, size := range []int{1, 100, n} {
		h := make(transport.Host, size)
		for i := 0; i < size; i += 1 + i/64 {
			h[i] = byte(r.Uint32())
		}
		list = append(list, h)
	}
	return list
}

// far is memory that only a device reaches.
type far struct{ transport.Host }

func (far) Direct(at, n int64) []byte { return nil }

const stall = 500 * time.Millisecond

func newSource(n int) (*source, error) {
	s := &source{Grants: transport.NewGrants()}
	regions := map[transport.Region]transport.Memory{}
	for i, h := range memory(n) {
		regions[transport.Region(i)] = h
		regions[transport.Region(10+i)] = far{h}
	}
	s.Ticket = s.Lend(s.Session, regions, time.Hour, func() {})
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.Address = s.Listener.Addr().String()
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s, nil
}

// serve answers a connection over TCP, or by UCX where an address comes first.
func (s *source) serve(c net.Conn) {
	var n uint16
	binary.Read(c, binary.LittleEndian, &n)
	if n == 0 {
		transport.Answer(c, s.Grants, s.Session, stall)
		return
	}
	address := make([]byte, n)
	io.ReadFull(c, address)
	sender, err := NewSender(address, stall)
	if err != nil { // the receiver is gone
		c.Close()
		return
	}
	if s.mortal {
		sender = mortal{sender}
	}
	transport.AnswerBy(c, s.Grants, s.Session, stall, sender)
}

// reader reads by UCX.
func (l lent) reader(t testing.TB) transport.Reader {
	r := l.reads()
	t.Cleanup(func() { r.Close() })
	return r
}

func (l lent) reads() transport.Reader {
	return transport.Carried(func(ctx context.Context) (net.Conn, transport.Receiver, error) {
		r, err := NewReceiver(stall)
		if err != nil {
			return nil, nil, err
		}
		address, err := r.Address()
		if err != nil {
			return nil, nil, err
		}
		if l.Far {
			address[0]++
		}
		c, err := net.Dial("tcp", l.Address)
		if err != nil {
			return nil, nil, err
		}
		c.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(address))), address...))
		return c, r, nil
	}, 2, stall)
}

// overTCP reads over TCP.
func (l lent) overTCP(t testing.TB) transport.Reader {
	r := transport.TCP(func(ctx context.Context) (net.Conn, error) {
		c, err := net.Dial("tcp", l.Address)
		if err == nil {
			c.Write([]byte{0, 0})
		}
		return c, err
	}, 2, stall)
	t.Cleanup(func() { r.Close() })
	return r
}

// start starts a source in a process of its own.
func start(t testing.TB, n int, env ...string) (lent, *exec.Cmd) {
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), fmt.Sprintf("KRAIT_TEST_SOURCE=%d", n)), env...)
	c.Stderr = os.Stderr
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Process.Kill(); c.Wait() })
	var l lent
	if err := json.NewDecoder(out).Decode(&l); err != nil {
		t.Fatal(err)
	}
	return l, c
}

// all are pieces for all that a source has, cut in a few, with gaps, and what checks them.
func all(list []transport.Host, device bool) ([]transport.Piece, func() bool) {
	var pieces []transport.Piece
	var at int64
	for i, h := range list {
		for from := int64(0); from < h.Size(); {
			n := min(h.Size()-from, 3<<20+7)
			pieces = append(pieces, transport.Piece{Region: transport.Region(i), From: from, Bytes: n, At: at})
			from, at = from+n, at+n+1
		}
	}
	to := make(transport.Host, at)
	for i := range pieces {
		if pieces[i].To = to; device {
			pieces[i].To = far{to}
			pieces[i].Region += 10
		}
	}
	return pieces, func() bool {
		for _, p := range pieces {
			if !bytes.Equal(to[p.At:][:p.Bytes], list[p.Region%10][p.From:][:p.Bytes]) || to[p.At+p.Bytes] != 0 {
				return false
			}
		}
		return true
	}
}

const bytesOfTest = 9<<20 + 1

func TestRead(t *testing.T) {
	installed(t)
	s, err := newSource(bytesOfTest)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, list := s.reader(t), memory(bytesOfTest)
	for _, device := range []bool{false, true, false} {
		pieces, good := all(list, device)
		if err := r.Read(t.Context(), s.Ticket, pieces).Wait(); err != nil || !good() {
			t.Errorf("%v, the right bytes: %v", err, good())
		}
	}
	pieces, _ := all(list, false)
	if err := r.Read(t.Context(), transport.Ticket{}, pieces).Wait(); !errors.Is(err, transport.ErrEnded) {
		t.Error(err)
	}
	pieces[0].Region = 77
	if err := r.Read(t.Context(), s.Ticket, pieces).Wait(); err == nil || !strings.Contains(err.Error(), "region 0x4d is not lent") {
		t.Error(err)
	}
	pieces, good := all(list, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Read(ctx, s.Ticket, pieces).Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := r.Read(t.Context(), s.Ticket, pieces).Wait(); err != nil || !good() { // it connects again
		t.Error(err)
	}
}

// TestProcesses reads from another process.
func TestProcesses(t *testing.T) {
	installed(t)
	l, _ := start(t, bytesOfTest)
	for _, device := range []bool{false, true} {
		pieces, good := all(memory(bytesOfTest), device)
		if err := l.reader(t).Read(t.Context(), l.Ticket, pieces).Wait(); err != nil || !good() {
			t.Errorf("%v, the right bytes: %v", err, good())
		}
	}
}

// TestKilled: a source that is killed or stopped, before a reader has connected, between reads
// or in the middle of one, is an error in time.
func TestKilled(t *testing.T) {
	installed(t)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for _, when := range []string{"before", "between", "during"} {
			l, c := start(t, bytesOfTest)
			end := func() {
				c.Process.Signal(signal)
				if signal == syscall.SIGKILL {
					c.Wait()
				} else { // until all of its threads stand still
					syscall.Wait4(c.Process.Pid, nil, syscall.WUNTRACED, nil)
				}
			}
			r := l.reader(t)
			pieces, _ := all(memory(bytesOfTest), false)
			var err error
			switch when {
			case "before":
				end()
			case "between":
				if err := r.Read(t.Context(), l.Ticket, pieces).Wait(); err != nil {
					t.Fatal(err)
				}
				end()
			case "during":
				timer := time.AfterFunc(20*time.Millisecond, end)
				defer timer.Stop()
				for err == nil {
					err = r.Read(t.Context(), l.Ticket, pieces).Wait()
				}
			}
			if err == nil {
				err = r.Read(t.Context(), l.Ticket, pieces).Wait()
			}
			if err == nil {
				t.Errorf("%v %s is not seen", signal, when)
			}
			t.Log(signal, when, err)
		}
	}
}

// TestKilledWhileConnecting: whatever moment a source is killed at, or a reader, the other side
// lives on, also where UCX has just met a process and finds it gone. Each round has other moments.
func TestKilledWhileConnecting(t *testing.T) {
	installed(t)
	s, err := newSource(bytesOfTest)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tries := 6
	if goldens.Few(t) {
		tries = 2
	}
	for range tries {
		for _, far := range []bool{false, true} {
			l, _ := start(t, bytesOfTest, "KRAIT_TEST_MORTAL=1")
			l.Far = far
			r := l.reads()
			pieces, _ := all(memory(bytesOfTest), false)
			if err := r.Read(t.Context(), l.Ticket, pieces).Wait(); err == nil {
				t.Error("a source that was killed sends all")
			}
			r.Close()

			s.Far = far
			to, _ := json.Marshal(s.lent)
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "KRAIT_TEST_READER="+string(to))
			c.Run()
			if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
				t.Errorf("a reader ended by itself: %v", c.ProcessState)
			}
		}
	}
	pieces, good := all(memory(bytesOfTest), false)
	if err := s.reader(t).Read(t.Context(), s.Ticket, pieces).Wait(); err != nil || !good() {
		t.Error(err)
	}
}

// TestSignals: faults are still panics once UCX is there.
func TestSignals(t *testing.T) {
	installed(t)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var p *int
	*p = 1
}

// BenchmarkRead reads states from another process, by UCX and over TCP.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{64 << 20, 256 << 20} {
		l, _ := start(b, n)
		for name, r := range map[string]transport.Reader{"ucx": l.reader(b), "tcp": l.overTCP(b)} {
			b.Run(fmt.Sprintf("%dMB/%s", n>>20, name), func(b *testing.B) {
				installed(b)
				pieces, _ := all([]transport.Host{{}, {}, make(transport.Host, n)}, false)
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := r.Read(b.Context(), l.Ticket, pieces).Wait(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/ping"
	"github.com/krait-ml/krait/transfer/prefill"
)

// freezer leads to a server that can be stopped: then connections are made, but nothing comes
// through, as when the process gets SIGSTOP.
type freezer struct {
	address string
	asked   any // a key of contexts: those of requests have it

	mu     sync.Mutex
	frozen chan struct{} // closed when it goes on; nil: it is not stopped
	waited atomic.Int64  // connections that a request made while it was stopped
}

func (f *freezer) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = make(chan struct{})
}

func (f *freezer) goOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.frozen)
	f.frozen = nil
}

// wait waits while it is stopped.
func (f *freezer) wait() {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (f *freezer) dial(ctx context.Context) (net.Conn, error) {
	f.mu.Lock()
	if f.frozen != nil && ctx.Value(f.asked) != nil {
		f.waited.Add(1)
	}
	f.mu.Unlock()
	there, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return nil, err
	}
	here, back := net.Pipe()
	pass := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			f.wait()
			if err != nil {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go pass(back, there)
	go pass(there, back)
	return here, nil
}

// TestPrefillHung: a prefill machine that hangs costs an active request a fraction of the stall,
// and those that follow nothing: they do not even connect. When it goes on it is asked again.
func TestPrefillHung(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{})
	_, address := serveModel(t, m, transfer.ServerOptions{})
	to := openModel(t, "../testdata/golden/bamba", krait.Options{})
	type key struct{}
	f := &freezer{address: address, asked: key{}}
	p := prefillBy(t, to, prefill.Options{Dial: f.dial, Stall: time.Hour, Silence: 500 * time.Millisecond})
	ctx := context.WithValue(t.Context(), key{}, true)
	prompt := randomIDs(9, m.Vocab())
	generate := func() *krait.Generation {
		t.Helper()
		g, err := to.GenerateIDs(ctx, prompt, krait.Generate{MaxTokens: 2, IgnoreEOS: true, Prefill: p})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	read := func() bool { return generate().Remote != nil }
	soon(t, "read elsewhere", read)
	f.stop()
	if g := generate(); g.Fallback == nil || !strings.Contains(g.Fallback.Error(), "is silent for 500ms") {
		t.Errorf("the machine hangs: %v", g.Fallback)
	}
	f.waited.Store(0)
	if !p.Down() {
		t.Error("a machine that hangs is not known as such")
	}
	for range 5 {
		if g := generate(); g.Fallback == nil {
			t.Error("a machine that hangs has read a prompt")
		}
	}
	if n := f.waited.Load(); n > 0 {
		t.Errorf("%d requests wait for a machine that is known to hang", n)
	}
	f.goOn()
	soon(t, "read elsewhere", read)
	f.stop()
	soon(t, "known as hung, though nobody asks", p.Down)
	f.waited.Store(0)
	if g := generate(); g.Fallback == nil || f.waited.Load() > 0 {
		t.Errorf("the first request after it hung: %v, %d connections", g.Fallback, f.waited.Load())
	}
	f.goOn()
	nothingHeld(t, "the decode side", to)
}

// soon waits for a condition.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s", what)
		}
	}
}

// TestPrefillStrangers: whatever strangers send to a prefill server, and however many connections
// of theirs say nothing, a client with the token gets in at once, and a ping is answered without
// one.
func TestPrefillStrangers(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{})
	s, address := serveModel(t, m, transfer.ServerOptions{Token: "sesame", MaxConnections: 3, Greet: time.Hour})
	call := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
	closed := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	var silent []net.Conn
	for range 100 {
		silent = append(silent, call())
	}
	to := openModel(t, "../testdata/golden/mamba-a", krait.Options{})
	for range 2 {
		p := prefillBy(t, to, prefill.Options{Address: address, Token: "sesame", Strict: true, Silence: time.Minute})
		if g := greedy(t, to, []int{1, 2, 3}, p); g.Remote == nil {
			t.Errorf("while strangers are silent: %v", g.Fallback)
		}
		p.Close()
	}
	if err := ping.Ask(call()); err != nil {
		t.Error(err)
	}
	if !closed(silent[0]) {
		t.Error("the oldest of 100 silent connections is open")
	}
	large, head := call(), make([]byte, 16) // the header of a message of 5,000 bytes
	head[0] = 13
	binary.LittleEndian.PutUint32(head[4:], 5000)
	binary.LittleEndian.PutUint32(head[12:], crc32.Checksum(head[:12], crc32.MakeTable(crc32.Castagnoli)))
	large.Write(head)
	if !closed(large) {
		t.Error("a stranger may send 5,000 bytes")
	}
	wrong := prefillBy(t, to, prefill.Options{Address: address, Token: "open"})
	if err := wrong.Connect(t.Context()); !errors.Is(err, transfer.ErrDiffers) || !strings.Contains(err.Error(), "the token is not the server's") {
		t.Error(err)
	}
	// The server learns of a client's end after it.
	for end := time.Now().Add(20 * time.Second); s.Stats().Sessions > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", s.Stats())
		}
	}
}

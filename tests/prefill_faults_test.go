package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/faults"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/ping"
	"github.com/krait-ml/krait/transfer/prefill"
)

// faultyLink makes a fault happen to what is read on one of the connections, counted as they are
// made: the first is for control.
type faultyLink struct {
	number int64
	faults.Fault
	after int64
	count atomic.Int64
	read  atomic.Pointer[faults.Conn]
}

func (f *faultyLink) broken(c net.Conn) net.Conn {
	if f.count.Add(1)-1 != f.number {
		return c
	}
	b := faults.New(c, f.Fault, f.after)
	f.read.Store(b)
	return b
}

// dial is a dialer whose connections are faultyLink.
func (f *faultyLink) dial(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			c = f.broken(c)
		}
		return c, err
	}
}

// faultyListener is a listener whose connections are faultyLink.
type faultyListener struct {
	net.Listener
	f *faultyLink
}

func (l faultyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c = l.f.broken(c)
	}
	return c, err
}

// TestPrefillFaults: whatever happens to any connection at any byte that either side reads, the
// text is the one that it is to be, no fault goes unnoticed, and all memory comes back on both
// sides; the next request is read there again.
func TestPrefillFaults(t *testing.T) {
	dir := "../testdata/golden/bamba"
	alone := openModel(t, dir, krait.Options{})
	from := openModel(t, dir, krait.Options{PageTokens: 3, Sharding: krait.Sharding{Ranks: 2}})
	to := openModel(t, dir, krait.Options{PageTokens: 4})
	prompt := randomIDs(9, alone.Vocab())
	want := greedy(t, alone, prompt, nil).IDs
	const stall = 300 * time.Millisecond

	// run runs a request with a fault, and says how many bytes were read where it was to happen.
	run := func(t *testing.T, atServer bool, number int64, fault faults.Fault, after int64) (read int64) {
		f := &faultyLink{number: number, Fault: fault, after: after}
		s, err := prefill.NewServer(from.Session(), transfer.ServerOptions{Stall: stall, Lease: 2 * stall})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		by := prefill.Options{Address: address, Connections: 1, Stall: stall, Silence: stall}
		if atServer {
			l = faultyListener{l, f}
		} else {
			by.Dial = f.dial(address)
		}
		go s.Serve(l)
		p := prefillBy(t, to, by)
		defer p.Close()
		what := fmt.Sprintf("fault %d after byte %d of connection %d, at the server %v", fault, after, number, atServer)
		g := greedy(t, to, prompt, p)
		if !slices.Equal(g.IDs, want) {
			t.Errorf("%s: %v, want %v", what, g.IDs, want)
		}
		happened := false
		if b := f.read.Load(); b != nil {
			read, happened = b.Bytes(), b.Happened()
		}
		if (g.Fallback != nil) != (g.Remote == nil) || happened != (g.Fallback != nil) {
			t.Errorf("%s: %+v, %v", what, g.Remote, g.Fallback)
		}
		if st := p.Stats(); (st.Fallbacks == 1) != (g.Fallback != nil) {
			t.Errorf("%s: %+v, %v", what, st, g.Fallback)
		}
		nothingHeld(t, what, to)
		nothingHeld(t, what, from)
		if fault != faults.None { // and then all is well again
			time.Sleep(time.Millisecond)
			p2 := prefillBy(t, to, prefill.Options{Address: address, Strict: true})
			defer p2.Close()
			if g := greedy(t, to, prompt, p2); !slices.Equal(g.IDs, want) {
				t.Errorf("after %s: %v, want %v", what, g.IDs, want)
			}
		}
		return read
	}
	cuts, stalls := int64(20), int64(4)
	if goldens.Few(t) {
		cuts, stalls = 6, 2
	}
	for _, atServer := range []bool{false, true} {
		for number := range int64(2) {
			all := run(t, atServer, number, faults.None, 0)
			if all == 0 {
				t.Fatal("nothing was read")
			}
			t.Logf("connection %d, at the server %v: %d bytes", number, atServer, all)
			for _, fault := range []faults.Fault{faults.Cut, faults.Flip, faults.Stall} {
				points := cuts
				if fault == faults.Stall {
					points = stalls
				}
				for i := range points {
					run(t, atServer, number, fault, i*(all-1)/(points-1))
				}
			}
		}
	}
}

// TestPrefillDiffers: sides that do not fit say what differs, and do not fall back.
func TestPrefillDiffers(t *testing.T) {
	dir := "../testdata/golden/"
	m := openModel(t, dir+"mamba-a", krait.Options{})
	_, address := serveModel(t, m, transfer.ServerOptions{Token: "sesame"})
	for _, c := range []struct {
		name  string
		dir   string
		o     krait.Options
		token string
		want  string
	}{
		{"token", "mamba-a", krait.Options{}, "open", "the token is not the server's"},
		{"no token", "mamba-a", krait.Options{}, "", "the token is not the server's"},
		{"model", "mamba-b", krait.Options{}, "sesame", `the model is "mamba-a"`},
		{"weights", "mamba-a-bf16", krait.Options{}, "sesame", "the model is"},
		{"formats", "mamba-a", krait.Options{Sharding: krait.Sharding{States: "ssm=bf16"}}, "sesame", "in f32, and the receiver in bf16"},
	} {
		to := openModel(t, dir+c.dir, c.o)
		p := prefillBy(t, to, prefill.Options{Address: address, Token: c.token})
		for range 2 {
			_, err := to.GenerateIDs(t.Context(), []int{1, 2, 3}, krait.Generate{Prefill: p})
			if !errors.Is(err, transfer.ErrDiffers) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if err := p.Connect(t.Context()); !errors.Is(err, transfer.ErrDiffers) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	hoisted := openModel(t, dir+"mamba-a", krait.Options{Sharding: krait.Sharding{Ranks: 2, Strategy: "hoisted"}})
	p := prefillBy(t, hoisted, prefill.Options{Address: address, Token: "sesame", Strict: true})
	if g := greedy(t, hoisted, []int{1, 2, 3}, p); g.Remote == nil {
		t.Error("the right token is refused")
	}
	other := openModel(t, dir+"mamba-b", krait.Options{})
	if _, err := other.GenerateIDs(t.Context(), []int{1, 2}, krait.Generate{Prefill: p}); err == nil || !strings.Contains(err.Error(), "belongs to another model") {
		t.Error(err)
	}
}

// TestPrefillUnreached: if no server is at the address, or it says nothing, prompts
// are prefilled here, unless that is forbidden.
func TestPrefillUnreached(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, address := range []string{l.Addr().String(), closed.Addr().String()} {
		p := prefillBy(t, m, prefill.Options{Address: address, Stall: 50 * time.Millisecond})
		for i := range 2 {
			if g := greedy(t, m, []int{1, 2, 3}, p); g.Fallback == nil || p.Stats().Fallbacks != i+1 {
				t.Errorf("%v, %+v", g.Fallback, p.Stats())
			}
		}
		p = prefillBy(t, m, prefill.Options{Address: address, Stall: 50 * time.Millisecond, Strict: true})
		if _, err := m.GenerateIDs(t.Context(), []int{1, 2, 3}, krait.Generate{Prefill: p}); err == nil || !strings.HasPrefix(err.Error(), "prefill: ") {
			t.Error(err)
		}
		if g := greedy(t, m, []int{1}, p); g.Remote != nil || g.Fallback != nil {
			t.Error("of one token there is nothing to read elsewhere")
		}
	}
}

// TestPrefillLease: a state that no client fetches is freed when its lease ends; a client that
// comes later, or is another one, gets an error and no state.
func TestPrefillLease(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{})
	s, address := serveModel(t, m, transfer.ServerOptions{Lease: 20 * time.Millisecond})
	to := openModel(t, "../testdata/golden/bamba", krait.Options{})
	number := 0
	p := prefillBy(t, to, prefill.Options{Connections: 1, Dial: func(ctx context.Context) (net.Conn, error) {
		if number++; number == 2 { // that for data
			time.Sleep(60 * time.Millisecond)
		}
		return net.Dial("tcp", address)
	}})
	prompt := randomIDs(9, m.Vocab())
	want := greedy(t, to, prompt, nil).IDs
	g := greedy(t, to, prompt, p)
	if !slices.Equal(g.IDs, want) || g.Fallback == nil || !strings.Contains(g.Fallback.Error(), "lease has ended") {
		t.Errorf("%v, %v", g.IDs, g.Fallback)
	}
	nothingHeld(t, "the prefill side", m)
	nothingHeld(t, "the decode side", to)
	if st := s.Stats(); st.Expired != 1 || st.Lent != 0 || st.Released != 0 {
		t.Errorf("%+v", st)
	}
	if g := greedy(t, to, prompt, p); g.Fallback != nil { // in time
		t.Error(g.Fallback)
	}
}

// lateConn takes what it asked for only after a while.
type lateConn struct {
	net.Conn
	writes int
	once   sync.Once
}

func (c *lateConn) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

func (c *lateConn) Read(b []byte) (int, error) {
	if c.writes > 4 { // why it may ask, and how, in two parts each, and then what for
		c.once.Do(func() { time.Sleep(100 * time.Millisecond) })
	}
	return c.Conn.Read(b)
}

// TestPrefillLeaseDuringRead: what was read after the lease had ended does not count, though all
// of it came.
func TestPrefillLeaseDuringRead(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{})
	s, address := serveModel(t, m, transfer.ServerOptions{Lease: 50 * time.Millisecond})
	to := openModel(t, "../testdata/golden/bamba", krait.Options{})
	number := 0
	p := prefillBy(t, to, prefill.Options{Connections: 1, Dial: func(context.Context) (net.Conn, error) {
		c, err := net.Dial("tcp", address)
		if number++; number == 2 && err == nil {
			return &lateConn{Conn: c}, nil
		}
		return c, err
	}})
	prompt := randomIDs(9, m.Vocab())
	want := greedy(t, to, prompt, nil).IDs
	g := greedy(t, to, prompt, p)
	if !slices.Equal(g.IDs, want) || g.Fallback == nil || !strings.Contains(g.Fallback.Error(), "lease has ended before all of it was transferred") {
		t.Errorf("%v, %v", g.IDs, g.Fallback)
	}
	nothingHeld(t, "the prefill side", m)
	nothingHeld(t, "the decode side", to)
	if st := s.Stats(); st.Expired != 1 || st.Lent != 0 {
		t.Errorf("%+v", st)
	}
}

// TestPrefillGreetedLate: who gives up while the server's greeting arrives has no connection, which
// is closed soon, and the next one makes its own.
func TestPrefillGreetedLate(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{})
	_, address := serveModel(t, m, transfer.ServerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	p := prefillBy(t, m, prefill.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return heardConn{c, cancel}, err
	}})
	if err := p.Connect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("greeted while it was cancelled: %v", err)
	}
	if err := p.Connect(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPrefillLooked: who looks whether a prefill server is there, and says nothing, is in no log;
// a client that sends garbage is.
func TestPrefillLooked(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{})
	said := make(lines, 10)
	_, address := serveModel(t, m, transfer.ServerOptions{Log: slog.New(slog.NewTextHandler(said, nil))})
	for _, text := range []string{"", "", "GET / HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(text)); err != nil {
			t.Error(err)
		}
		if text != "" {
			_, _ = io.ReadAll(c) // until the server ends it
		}
		c.Close()
	}
	if first := <-said; strings.HasSuffix(first, "error=EOF\n") || !strings.Contains(first, "connection failed") {
		t.Errorf("the log has %q", first)
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// heardConn tells when it has read.
type heardConn struct {
	net.Conn
	heard func()
}

func (c heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.heard()
	return n, err
}

// TestPrefillCancelled: a request that is cancelled during prefill leaves nothing on either side.
func TestPrefillCancelled(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{MaxTokensPerStep: 71})
	s, address := serveModel(t, m, transfer.ServerOptions{})
	to := openModel(t, "../testdata/golden/bamba", krait.Options{})
	p := prefillBy(t, to, prefill.Options{Address: address})
	prompt := randomIDs(700, m.Vocab())
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*time.Millisecond)
		g, err := to.GenerateIDs(ctx, prompt, krait.Generate{MaxTokens: 2, IgnoreEOS: true, Prefill: p})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) || g.Fallback != nil {
			t.Error(err, g.Fallback)
		}
		cancel()
		nothingHeld(t, "the prefill side", m)
		nothingHeld(t, "the decode side", to)
	}
	if st := s.Stats(); st.Lent != 0 {
		t.Errorf("%+v", st)
	}
}

// TestPrefillClosed: a server that closes while requests are active takes no text from anyone.
func TestPrefillClosed(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{})
	to := openModel(t, "../testdata/golden/bamba", krait.Options{Slots: 4})
	prompt := randomIDs(60, m.Vocab())
	want := greedy(t, to, prompt, nil).IDs
	for i := range 8 {
		s, address := serveModel(t, m, transfer.ServerOptions{})
		p := prefillBy(t, to, prefill.Options{Address: address, Stall: time.Second})
		done := make(chan *krait.Generation)
		for range 3 {
			go func() { done <- greedy(t, to, prompt, p) }()
		}
		time.Sleep(time.Duration(i*i) * time.Millisecond)
		s.Close()
		for range 3 {
			if g := <-done; !slices.Equal(g.IDs, want) {
				t.Errorf("%v, want %v", g.IDs, want)
			}
		}
		p.Close()
		nothingHeld(t, "the prefill side", m)
		nothingHeld(t, "the decode side", to)
	}
}

// holdSteps keeps a model's steps from running until release is called, or the test ends.
func holdSteps(t *testing.T, m *krait.Model) (release func()) {
	seq := sequence(t, m)
	held, free, done := make(chan bool), make(chan bool), make(chan error)
	read := func(*exec.Results) error {
		close(held)
		<-free
		return nil
	}
	go func() {
		done <- m.Session().Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: seq.slot, Tokens: []int{1}}}}, read)
	}()
	<-held
	release = sync.OnceFunc(func() {
		close(free)
		if err := <-done; err != nil {
			t.Error(err)
		}
		seq.Reset()
	})
	t.Cleanup(release)
	return release
}

// TestPrefillDrains: a server that drains ends the prompt that it has and refuses new ones, so that
// clients and pings see it down at once, and texts go on elsewhere; another at its address is used
// again.
func TestPrefillDrains(t *testing.T) {
	m := openModel(t, "../testdata/golden/bamba", krait.Options{MaxTokensPerStep: 71})
	to := openModel(t, "../testdata/golden/bamba", krait.Options{Slots: 4})
	s, address := serveModel(t, m, transfer.ServerOptions{})
	p := prefillBy(t, to, prefill.Options{Address: address})
	prompt := randomIDs(700, m.Vocab())
	want := greedy(t, to, prompt, nil).IDs
	ask := func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		return ping.Ask(c)
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	release := holdSteps(t, m)
	done := make(chan *krait.Generation)
	go func() { done <- greedy(t, to, prompt, p) }()
	for s.Stats().Requests == 0 {
		time.Sleep(time.Millisecond)
	}
	drained := make(chan error)
	go func() { drained <- s.Drain(t.Context()) }()
	for end := time.Now().Add(5 * time.Second); !p.Down(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client does not see that its server drains")
		}
	}
	select {
	case err := <-drained:
		t.Fatalf("the drain ends before the prompt under way: %v", err)
	default:
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("a ping: %v", err)
	}
	if g := greedy(t, to, prompt, p); !slices.Equal(g.IDs, want) || g.Fallback == nil || !strings.Contains(g.Fallback.Error(), "draining") {
		t.Errorf("a prompt during the drain: %v, by %v", g.IDs, g.Fallback)
	}
	late := prefillBy(t, to, prefill.Options{Address: address})
	if err := late.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("a new client: %v", err)
	}
	release()
	if g := <-done; !slices.Equal(g.IDs, want) || g.Fallback != nil {
		t.Errorf("the prompt under way: %v, by %v", g.IDs, g.Fallback)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Released != 1 || st.Lent != 0 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
	s.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again, err := prefill.NewServer(m.Session(), transfer.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go again.Serve(l)
	defer again.Close()
	for end := time.Now().Add(20 * time.Second); p.Down(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client does not come back")
		}
	}
	if g := greedy(t, to, prompt, p); !slices.Equal(g.IDs, want) || g.Fallback != nil {
		t.Errorf("after the drain: %v, by %v", g.IDs, g.Fallback)
	}
}

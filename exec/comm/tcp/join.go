package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/exec/comm"
)

// Options say how processes find each other.
type Options struct {
	Rank, World int
	// ID is where rank 0 is found: tcp:HOST:PORT, at which it listens, or file:PATH, of a
	// file in which it writes where it listens, that the others can read.
	ID string
	// Timeout is how long processes wait for each other; 0: comm.DefaultTimeout.
	Timeout time.Duration
}

// hello is what a process says when it has connected.
type hello struct {
	Krait   int    // the version of what is said here
	Session string // that rank 0 has drawn; empty where it is not known yet
	Rank    int
	World   int
	Port    int `json:",omitempty"` // where the process listens
}

// answer is what rank 0 says, when all are there.
type answer struct {
	Error   string   `json:",omitempty"`
	Session string   `json:",omitempty"`
	Places  []string `json:",omitempty"` // where processes listen, by rank
}

// speaks is the version of hello and answer.
const speaks = 1

// A process reads so much, for so long, before it knows who is there.
const (
	longestHello    = 1 << 20
	longestGreeting = 2 * time.Second
)

// Join finds the other processes and connects to them. All return when all are there.
func Join(ctx context.Context, o Options) (*Link, error) {
	if o.World < 1 || o.Rank < 0 || o.Rank >= o.World {
		return nil, fmt.Errorf("rank %d of %d processes: ranks go from 0 to one less than there are", o.Rank, o.World)
	}
	kind, where, ok := strings.Cut(o.ID, ":")
	if !ok || where == "" || kind != "tcp" && kind != "file" {
		return nil, fmt.Errorf("%q does not say where rank 0 is found: tcp:HOST:PORT and file:PATH do", o.ID)
	}
	o.Timeout = cmp.Or(o.Timeout, comm.DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	m := meeting{Options: o, where: where, file: kind == "file", conns: make([]*net.TCPConn, o.World)}
	err := m.meet(ctx)
	for _, stop := range m.bounds {
		stop()
	}
	if m.listener != nil {
		m.listener.Close()
	}
	if err != nil {
		for _, c := range m.conns {
			if c != nil {
				c.Close()
			}
		}
		if ctx.Err() == context.Canceled {
			return nil, fmt.Errorf("rank %d: %s: %w", o.Rank, m.missing(), context.Cause(ctx))
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("rank %d: %s after %v", o.Rank, m.missing(), o.Timeout)
		}
		return nil, err
	}
	for _, c := range m.conns {
		if c != nil {
			_ = c.SetDeadline(time.Time{})
		}
	}
	return newLink(o.Rank, m.conns), nil
}

// meeting is processes that find each other.
type meeting struct {
	Options
	where    string
	file     bool
	session  string
	listener *net.TCPListener
	conns    []*net.TCPConn // by rank
	ports    []int          // of those who came to rank 0
	last     error          // why rank 0 was not reached
	bounds   []func() bool  // end what ends waits with the context
}

// bound lets waits end with the context.
func (m *meeting) bound(ctx context.Context, c interface{ SetDeadline(time.Time) error }) {
	m.bounds = append(m.bounds, context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }))
}

func (m *meeting) meet(ctx context.Context) error {
	if m.World == 1 {
		return nil
	}
	if m.Rank == 0 {
		return m.lead(ctx)
	}
	return m.follow(ctx)
}

// missing says who is waited for.
func (m *meeting) missing() string {
	if m.Rank > 0 && m.conns[0] == nil {
		text := fmt.Sprintf("rank 0 is not to be found at %s", m.ID)
		if m.last != nil {
			text += fmt.Sprintf(" (%v)", m.last)
		}
		return text
	}
	var list []string
	for r, c := range m.conns {
		if c == nil && r != m.Rank {
			list = append(list, fmt.Sprint(r))
		}
	}
	if len(list) == 0 {
		return "not all ranks have come"
	}
	return fmt.Sprintf("of %d ranks %s did not come", m.World, strings.Join(list, ", "))
}

// listen listens at an address until the context ends.
func (m *meeting) listen(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	m.listener = l.(*net.TCPListener)
	m.bound(ctx, m.listener)
	return nil
}

// lead is what rank 0 does: it waits for all, and tells each where the others are.
func (m *meeting) lead(ctx context.Context) error {
	m.session = rand.Text()
	m.ports = make([]int, m.World)
	address := m.where
	if m.file {
		address = ":0"
	}
	if err := m.listen(ctx, address); err != nil {
		return fmt.Errorf("rank 0 cannot listen: %w", err)
	}
	if m.file {
		if err := m.write(); err != nil {
			return err
		}
		defer os.Remove(m.where)
	}
	places := make([]string, m.World)
	for n := 1; n < m.World; n++ {
		if err := m.accept(ctx, func(h *hello, c *net.TCPConn) error {
			host, _, err := net.SplitHostPort(c.RemoteAddr().String())
			places[h.Rank] = net.JoinHostPort(host, fmt.Sprint(h.Port))
			return err
		}); err != nil {
			return err
		}
	}
	for _, c := range m.conns[1:] {
		if err := say(c, answer{Session: m.session, Places: places}); err != nil {
			return err
		}
	}
	return nil
}

// write writes where rank 0 listens: all its addresses, those by which others reach it among
// them.
func (m *meeting) write() error {
	port := fmt.Sprint(m.listener.Addr().(*net.TCPAddr).Port)
	a := answer{Session: m.session}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, x := range addresses {
		if ip, ok := x.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			a.Places = append(a.Places, net.JoinHostPort(ip.IP.String(), port))
		}
	}
	slices.SortStableFunc(a.Places, func(a, b string) int { return cmp.Compare(loops(a), loops(b)) })
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(m.where), ".krait-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), m.where)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// loops is 1 for an address of this host alone, else 0.
func loops(place string) int {
	if host, _, _ := net.SplitHostPort(place); net.ParseIP(host).IsLoopback() {
		return 1
	}
	return 0
}

// accept waits for a process that belongs here; others are sent away.
func (m *meeting) accept(ctx context.Context, take func(*hello, *net.TCPConn) error) error {
	for {
		c, err := m.listener.AcceptTCP()
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		h, err := m.greet(ctx, c)
		if err != nil {
			if h != nil { // a process of Krait, which is told
				_ = say(c, answer{Error: err.Error()})
			}
			c.Close()
			if h != nil && (h.Session == m.session || h.Session == "") {
				return err
			}
			continue
		}
		m.conns[h.Rank] = c
		if take != nil {
			if err := take(h, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// greet hears who has come. Who says nothing that is understood is a stranger.
func (m *meeting) greet(ctx context.Context, c *net.TCPConn) (*hello, error) {
	_ = c.SetDeadline(time.Now().Add(longestGreeting))
	m.bound(ctx, c)
	var h hello
	if err := hear(c, &h); err != nil || h.Krait == 0 {
		return nil, errors.Join(err, errors.New("a stranger"))
	}
	_ = c.SetDeadline(time.Time{})
	switch {
	case h.Krait != speaks:
		return &h, fmt.Errorf("rank %d joins by version %d, rank %d by %d: they are different versions of Krait", h.Rank, h.Krait, m.Rank, speaks)
	case h.World != m.World:
		return &h, fmt.Errorf("rank %d is one of %d, rank %d one of %d", h.Rank, h.World, m.Rank, m.World)
	case h.Session != m.session && (h.Session != "" || m.Rank > 0 || m.file):
		return &h, fmt.Errorf("rank %d belongs to another run", h.Rank)
	case h.Rank <= m.Rank || h.Rank >= m.World:
		return &h, fmt.Errorf("rank %d of %d came to rank %d", h.Rank, m.World, m.Rank)
	case m.conns[h.Rank] != nil:
		return &h, fmt.Errorf("two processes are rank %d of %d", h.Rank, m.World)
	}
	return &h, nil
}

// follow is what the others do: they find rank 0, and are told where the rest is.
func (m *meeting) follow(ctx context.Context) error {
	for {
		c, session := m.find(ctx)
		if c == nil {
			return ctx.Err()
		}
		host, _, err := net.SplitHostPort(c.LocalAddr().String())
		if err != nil {
			return err
		}
		if m.listener == nil {
			if err := m.listen(ctx, net.JoinHostPort(host, "0")); err != nil {
				c.Close()
				return err
			}
		}
		a, err := m.ask(ctx, c, session)
		if err == nil {
			m.conns[0] = c
			return m.rest(ctx, a)
		}
		c.Close()
		var refused refusal
		if errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		m.last = err // somebody else listened there, or one that was about to end
		if !pause(ctx) {
			return ctx.Err()
		}
	}
}

// refusal is why rank 0 does not take a process.
type refusal struct{ error }

// ask says hello to rank 0 and waits for its answer.
func (m *meeting) ask(ctx context.Context, c *net.TCPConn, session string) (*answer, error) {
	m.bound(ctx, c)
	h := hello{Krait: speaks, Session: session, Rank: m.Rank, World: m.World, Port: m.listener.Addr().(*net.TCPAddr).Port}
	if err := say(c, h); err != nil {
		return nil, err
	}
	var a answer
	if err := hear(c, &a); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, refusal{fmt.Errorf("rank %d is not taken: %s", m.Rank, a.Error)}
	}
	if len(a.Places) != m.World || session != "" && a.Session != session {
		return nil, errors.New("what listens there is no rank 0 of this run")
	}
	return &a, nil
}

// find connects to rank 0, as soon as it is there.
func (m *meeting) find(ctx context.Context) (*net.TCPConn, string) {
	for {
		a := answer{Places: []string{m.where}}
		if m.file {
			text, err := os.ReadFile(m.where)
			if a = (answer{}); err == nil {
				err = json.Unmarshal(text, &a)
			}
			if err != nil {
				m.last = err
			}
		}
		for _, place := range a.Places {
			d := net.Dialer{Timeout: 2 * time.Second}
			c, err := d.DialContext(ctx, "tcp", place)
			if err == nil {
				return c.(*net.TCPConn), a.Session
			}
			if ctx.Err() == nil {
				m.last = err
			}
		}
		if !pause(ctx) {
			return nil, ""
		}
	}
}

// pause waits a little, unless the context has ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// rest connects a process to those below it, and waits for those above.
func (m *meeting) rest(ctx context.Context, a *answer) error {
	m.session = a.Session
	for r := 1; r < m.Rank; r++ {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.Places[r])
		if err != nil {
			return fmt.Errorf("rank %d cannot reach rank %d: %w", m.Rank, r, err)
		}
		m.conns[r] = c.(*net.TCPConn)
		m.bound(ctx, m.conns[r])
		if err := say(m.conns[r], hello{Krait: speaks, Session: m.session, Rank: m.Rank, World: m.World}); err != nil {
			return err
		}
	}
	for r := m.Rank + 1; r < m.World; r++ {
		if err := m.accept(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// say writes a line.
func say(c *net.TCPConn, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = c.Write(append(text, '\n'))
	}
	return err
}

// hear reads a line, byte by byte: what follows is for others.
func hear(c *net.TCPConn, v any) error {
	var text []byte
	var b [1]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return err
		}
		if b[0] == '\n' {
			return json.Unmarshal(text, v)
		}
		if text = append(text, b[0]); len(text) > longestHello {
			return errors.New("what it says does not end")
		}
	}
}

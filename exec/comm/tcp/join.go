package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/internal/files"
)

// Options configure how processes find and authenticate each other.
type Options struct {
	Rank, World int
	// ID is where rank 0 is found: tcp:HOST:PORT, at which it listens, or file:PATH, a file that
	// only its user can read, in which rank 0 writes where it listens and a random secret.
	ID string
	// Token is a secret that all processes must know. It may be empty with file:PATH, and at a
	// loopback address, where every local process that speaks the protocol is taken then.
	Token string
	// Insecure allows an empty token at other addresses, too.
	Insecure bool
	// Timeout is how long processes wait for each other; 0: comm.DefaultTimeout.
	Timeout time.Duration
	// Warn is called about rejected connections, at most once in 10 s; nil: not called.
	Warn func(format string, args ...any)
}

// hello is what a process sends after both sides have proved that they know the secret.
type hello struct {
	Rank  int
	World int
	Port  int `json:",omitempty"` // where the process listens
}

// answer is what rank 0 sends when all have joined.
type answer struct {
	Error   string   `json:",omitempty"`
	Session string   `json:",omitempty"` // random; ranks prove to each other that they know it, too
	Places  []string `json:",omitempty"` // where processes listen, by rank
}

// rendezvous is what rank 0 writes to the file of file:PATH.
type rendezvous struct {
	Secret string
	Places []string // at which rank 0 listens
}

const mostAnswer = 1 << 20 // bytes

// Join finds the other processes and connects to them. All return when all are there.
func Join(ctx context.Context, o Options) (*Link, error) {
	if o.World < 1 || o.Rank < 0 || o.Rank >= o.World {
		return nil, fmt.Errorf("rank %d of %d processes: ranks are 0 to one below that", o.Rank, o.World)
	}
	kind, where, ok := strings.Cut(o.ID, ":")
	if !ok || where == "" || kind != "tcp" && kind != "file" {
		return nil, fmt.Errorf("%q does not name rank 0; give tcp:HOST:PORT or file:PATH", o.ID)
	}
	if kind == "tcp" && o.Token == "" && !o.Insecure && !isLoopback(where) {
		return nil, fmt.Errorf("%s may be reached from other machines: give all ranks the same secret by --comm-token-file, or let any process join by --comm-insecure", o.ID)
	}
	o.Timeout = cmp.Or(o.Timeout, comm.DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	m := meeting{Options: o, where: where, file: kind == "file", conns: make([]*net.TCPConn, o.World)}
	err := m.meet(ctx)
	over := ctx.Err()
	for _, stop := range m.bounds {
		stop()
	}
	cancel() // the door closes
	if m.listener != nil {
		m.listener.Close()
	}
	if m.door != nil {
		m.door.live.Wait()
	}
	if err != nil {
		for _, c := range m.conns {
			if c != nil {
				c.Close()
			}
		}
		if over == context.Canceled {
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

// isLoopback reports whether host:port is only reached from this machine. A name other than
// localhost may mean any machine.
func isLoopback(place string) bool {
	host, _, err := net.SplitHostPort(place)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// meeting is processes that find each other.
type meeting struct {
	Options
	where    string
	file     bool
	listener *net.TCPListener
	door     *door          // nil: this process accepts no connection yet
	conns    []*net.TCPConn // by rank
	last     error          // why rank 0 was not reached, or a process not taken
	bounds   []func() bool  // end what ends waits with the context
}

// key is the secret of all processes, to which a run adds what only its own know.
func (m *meeting) key(run string) []byte { return []byte(m.Token + "\x00" + run) }

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
	text := "not all ranks have come"
	var list []string
	for r, c := range m.conns {
		if c == nil && r != m.Rank {
			list = append(list, fmt.Sprint(r))
		}
	}
	switch {
	case m.Rank > 0 && m.conns[0] == nil:
		text = fmt.Sprintf("rank 0 is not to be found at %s", m.ID)
	case len(list) > 0:
		text = fmt.Sprintf("of %d ranks %s did not come", m.World, strings.Join(list, ", "))
	}
	if m.last != nil {
		text += fmt.Sprintf(" (%v)", m.last)
	}
	return text
}

// listen listens at an address.
func (m *meeting) listen(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	m.listener = l.(*net.TCPListener)
	return nil
}

// lead is what rank 0 does: it waits for all, and tells each where the others are.
func (m *meeting) lead(ctx context.Context) error {
	address, secret := m.where, ""
	if m.file {
		address, secret = ":0", rand.Text()
	}
	if err := m.listen(ctx, address); err != nil {
		return fmt.Errorf("rank 0 cannot listen: %w", err)
	}
	if m.file {
		if err := m.write(secret); err != nil {
			return err
		}
		defer os.Remove(m.where)
	}
	m.door = open(ctx, m.listener, m.key(secret), m.Warn)
	all := answer{Session: rand.Text(), Places: make([]string, m.World)}
	for n := 1; n < m.World; n++ {
		who, err := m.await(ctx)
		if err != nil {
			return err
		}
		host, _, err := net.SplitHostPort(who.conn.RemoteAddr().String())
		if err != nil {
			return err
		}
		all.Places[who.Rank] = net.JoinHostPort(host, fmt.Sprint(who.Port))
	}
	for _, c := range m.conns[1:] {
		if err := say(c, all); err != nil {
			return err
		}
	}
	return nil
}

// write writes where rank 0 listens, all its addresses, and a secret, for its user only.
func (m *meeting) write(secret string) error {
	port := fmt.Sprint(m.listener.Addr().(*net.TCPAddr).Port)
	r := rendezvous{Secret: secret}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, x := range addresses {
		if ip, ok := x.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			r.Places = append(r.Places, net.JoinHostPort(ip.IP.String(), port))
		}
	}
	slices.SortStableFunc(r.Places, func(a, b string) int { // loopback last
		return cmp.Compare(truth[isLoopback(a)], truth[isLoopback(b)])
	})
	text, err := json.Marshal(r)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	f, err := os.CreateTemp(filepath.Dir(m.where), ".krait-*") // mode 0600
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

var truth = map[bool]int{true: 1}

// read reads what rank 0 has written. A file that others may write or read is another user's, or
// no secret.
func (m *meeting) read() (r rendezvous, err error) {
	f, err := os.Open(m.where)
	if err != nil {
		return r, err
	}
	defer f.Close()
	info, err := f.Stat() // of the file that is read, which another may replace
	if err != nil {
		return r, err
	}
	if files.Exposed(info) {
		return r, fmt.Errorf("%s has mode %v: only its user may read and write it (0600)", m.where, info.Mode().Perm())
	}
	if !files.Owned(info) {
		return r, fmt.Errorf("%s belongs to another user: give a file in a folder of your own", m.where)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Secret == "" {
		return r, fmt.Errorf("%s was not written by rank 0 of this version", m.where)
	}
	return r, nil
}

// await waits for a process that belongs here. One that knows the secret and does not fit, such as
// a second one of a rank, is told so. It ends this process as well where it is a mistake of the
// launch; without a secret anybody can say such things.
func (m *meeting) await(ctx context.Context) (who caller, err error) {
	for {
		select {
		case who = <-m.door.come:
		case <-ctx.Done():
			return who, ctx.Err()
		}
		err = m.fits(&who.hello)
		if err == nil {
			m.conns[who.Rank] = who.conn
			m.bound(ctx, who.conn)
			return who, nil
		}
		_ = say(who.conn, answer{Error: err.Error()})
		who.conn.Close()
		if m.file || m.Token != "" {
			return who, err
		}
		m.last = err
	}
}

// fits reports why a process is not one of the run's that this one waits for.
func (m *meeting) fits(h *hello) error {
	switch {
	case h.World != m.World:
		return fmt.Errorf("rank %d is one of %d, rank %d one of %d", h.Rank, h.World, m.Rank, m.World)
	case h.Rank <= m.Rank || h.Rank >= m.World:
		return fmt.Errorf("rank %d of %d came to rank %d", h.Rank, m.World, m.Rank)
	case m.conns[h.Rank] != nil:
		return fmt.Errorf("two processes are rank %d of %d", h.Rank, m.World)
	}
	return nil
}

// follow is what the others do: they find rank 0, and are told where the rest is.
func (m *meeting) follow(ctx context.Context) error {
	for {
		c, err := m.find(ctx)
		if err != nil {
			return err
		}
		a, err := m.ask(ctx, c)
		if err == nil {
			m.conns[0], m.last = c, nil
			return m.rest(ctx, a)
		}
		c.Close()
		var refused refusal
		if errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		m.last = err // it was about to end
		if !pause(ctx) {
			return ctx.Err()
		}
	}
}

// refusal is why rank 0 does not take a process.
type refusal struct{ error }

// ask says hello to rank 0 and waits for its answer.
func (m *meeting) ask(ctx context.Context, c *net.TCPConn) (*answer, error) {
	m.bound(ctx, c)
	if m.listener == nil {
		host, _, err := net.SplitHostPort(c.LocalAddr().String())
		if err == nil {
			err = m.listen(ctx, net.JoinHostPort(host, "0"))
		}
		if err != nil {
			return nil, refusal{err}
		}
	}
	if err := say(c, hello{m.Rank, m.World, m.listener.Addr().(*net.TCPAddr).Port}); err != nil {
		return nil, err
	}
	var a answer
	if err := hear(c, &a, mostAnswer); err != nil {
		return nil, err
	}
	if a.Error != "" {
		return nil, refusal{fmt.Errorf("rank %d is not taken: %s", m.Rank, a.Error)}
	}
	if len(a.Places) != m.World {
		return nil, fmt.Errorf("rank 0 names %d places of %d ranks", len(a.Places), m.World)
	}
	return &a, nil
}

// find connects to rank 0, as soon as it is there and has proved that it is.
func (m *meeting) find(ctx context.Context) (*net.TCPConn, error) {
	for {
		r, err := rendezvous{Places: []string{m.where}}, error(nil)
		if m.file {
			r, err = m.read()
		}
		for _, place := range r.Places {
			var c *net.TCPConn
			if c, err = m.call(ctx, place, m.key(r.Secret), longestGreeting); err == nil {
				return c, nil
			}
		}
		if ctx.Err() == nil && err != nil {
			m.last = err
		}
		if !pause(ctx) {
			return nil, ctx.Err()
		}
	}
}

// call connects to a process and proves the secret to it, within a time.
func (m *meeting) call(ctx context.Context, place string, key []byte, within time.Duration) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", place)
	if err != nil {
		return nil, err
	}
	c := conn.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	err = knock(c, key)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("at %s: %w", place, err)
	}
	return c, nil
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
	key := m.key(a.Session)
	m.door = open(ctx, m.listener, key, m.Warn)
	for r := 1; r < m.Rank; r++ {
		c, err := m.call(ctx, a.Places[r], key, m.Timeout)
		if err != nil {
			return fmt.Errorf("rank %d cannot reach rank %d: %w", m.Rank, r, err)
		}
		m.conns[r] = c
		if err := say(c, hello{Rank: m.Rank, World: m.World}); err != nil {
			return err
		}
	}
	for r := m.Rank + 1; r < m.World; r++ {
		if _, err := m.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

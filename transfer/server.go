package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/lobby"
	"github.com/krait-ml/krait/transfer/ping"
	"github.com/krait-ml/krait/transfer/transport"
)

// Source reads prompts.
type Source interface {
	// Prefill reads tokens, which go on from those of the same salt only, and keeps what came of
	// them. Tell is told how many were read.
	Prefill(ctx context.Context, salt string, tokens []int, tell func(read int)) (*State, error)
	// Packing reads codecs that a client asks for: [exec.Engine.Packing].
	Packing(text string) (*exec.Packing, error)
}

// State is the state of a prefilled prompt.
type State struct {
	View *exec.View
	Free func() // called once
}

// ServerOptions say how a server serves.
type ServerOptions struct {
	// Token is what clients must know; empty: anything will do.
	Token string
	// Lease is for how long what was kept waits to be read; 0: 30 s.
	Lease time.Duration
	// Stall is how long the other side may take for the next of what it has to do; 0: 10 s.
	Stall time.Duration
	// Greet is how long a connection may take until its knock; 0: 5 s.
	Greet time.Duration
	// MaxRequests is how many prompts of a client are read or lent at the same time; 0: 64.
	MaxRequests int
	// MaxConnections is how many connections of clients there are; 0: 256. Others, up to 64, are
	// about to show that they are clients.
	MaxConnections int
	// Log is told what happens, a line at a time; nil: nobody asks.
	Log func(format string, args ...any)
}

// Server lets clients have prompts read. Its methods may be called from several goroutines.
type Server struct {
	meta    Meta
	source  Source
	o       ServerOptions
	grants  *transport.Grants
	ctx     context.Context
	stop    context.CancelFunc
	live    sync.WaitGroup
	lobby   *lobby.Lobby // connections that have not shown that they are clients'
	known   atomic.Int64 // connections that have
	notices lobby.Notices

	mu        sync.Mutex
	closed    bool
	conns     map[net.Conn]bool
	listeners map[net.Listener]bool
	sessions  map[transport.Session]string // who they are
	stats     ServerStats
}

// ServerStats count since the server was made, but for Sessions and Lent, which are there now.
type ServerStats struct {
	Sessions, Lent              int
	Requests                    int   // that were asked for
	Tokens                      int64 // that they had
	Released, Expired, Failures int   // how they ended
}

const (
	mostStrangers = 64               // connections; more evict the oldest of the address that has most
	quiet         = 10 * time.Second // between two lines of the log about strangers
)

// NewServer makes a server of a model.
func NewServer(meta Meta, source Source, o ServerOptions) *Server {
	o.Lease, o.Stall = cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.Stall, 10*time.Second)
	o.MaxRequests, o.MaxConnections = cmp.Or(o.MaxRequests, 64), cmp.Or(o.MaxConnections, 256)
	o.Greet = cmp.Or(o.Greet, 5*time.Second)
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	meta.Protocol = Protocol
	s := &Server{meta: meta, source: source, o: o, grants: transport.NewGrants(), lobby: lobby.New(mostStrangers), conns: map[net.Conn]bool{},
		listeners: map[net.Listener]bool{}, sessions: map[transport.Session]string{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Serve takes connections until the server is closed, which closes the listener and is no error,
// or the listener is.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.listeners[l] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	for {
		c, err := l.Accept()
		var some net.Error
		switch {
		case s.ctx.Err() != nil:
			return nil
		case errors.As(err, &some) && some.Timeout():
			continue
		case err != nil:
			return err
		}
		s.take(c)
	}
}

// take lets a connection be served.
func (s *Server) take(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return
	}
	s.conns[c] = true
	s.live.Go(func() {
		defer func() {
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		}()
		// A client that closes and said nothing looks whether the server is there, as Kubernetes
		// does.
		if err := s.handle(c); err != nil && err != io.EOF && s.ctx.Err() == nil {
			s.o.Log("%s: %v", c.RemoteAddr(), err)
		}
	})
}

// Pipe is a connection to the server of the same process.
func (s *Server) Pipe(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	s.take(there)
	return here, nil
}

// Close ends all connections and what is lent, and waits for that.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.stop()
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.live.Wait()
}

// Stats counts.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Sessions, out.Lent = len(s.sessions), s.grants.Len()
	return out
}

func (s *Server) count(change func(*ServerStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// handle serves a connection, for control or for data.
func (s *Server) handle(conn net.Conn) error {
	below := conn
	if t, ok := conn.(*tls.Conn); ok {
		below = t.NetConn()
	}
	place := s.lobby.Enter(lobby.Who(conn.RemoteAddr().String()), 1, func() { below.Close() })
	if place == nil {
		return nil
	}
	defer place.Leave()
	c, k, err := s.greet(conn)
	if err != nil || k == nil {
		return s.sentAway(err)
	}
	kind, text, err := c.hearFor(s.o.Stall)
	if err != nil {
		return s.sentAway(err)
	}
	if n := s.known.Add(1); n > int64(s.o.MaxConnections) {
		s.known.Add(-1)
		return refused(c, fmt.Errorf("there are %d connections already", n-1), false)
	}
	defer s.known.Add(-1)
	switch control := k.Session == (transport.Session{}); {
	case kind == kindHello && control:
		return s.begin(c, text, place)
	case kind == kindData && !control:
		return s.answer(c, text, k.Session, place)
	}
	return fmt.Errorf("after its knock it sends a message of kind %d", kind)
}

// sentAway is an error of a stranger, now and then: a flood is not to fill the log.
func (s *Server) sentAway(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	n, due := s.notices.Due(quiet)
	if !due {
		return nil
	}
	return fmt.Errorf("%w (strangers since the last such line: %d)", err, n)
}

// greet lets a stranger show that it may ask, which must be soon. The knock is nil where it only
// asked whether the server lives.
func (s *Server) greet(conn net.Conn) (*channel, *knock, error) {
	conn.SetDeadline(time.Now().Add(s.o.Greet))
	if t, ok := conn.(*tls.Conn); ok {
		if err := s.shake(t); err != nil {
			return nil, nil, err
		}
	}
	c := newChannel(conn, s.o.Stall)
	kind, text, err := c.hear()
	switch {
	case err != nil:
		return nil, nil, err
	case kind == ping.Question:
		return c, nil, c.send(ping.Answer)
	case kind != kindKnock:
		return nil, nil, fmt.Errorf("it begins with a message of kind %d", kind)
	}
	k, err := parse[knock](text)
	if err != nil {
		return nil, nil, refused(c, err, false)
	}
	if err := speaks(Protocol, k.Protocol); err != nil {
		return nil, nil, refused(c, err, true)
	}
	if err := s.may(&k); err != nil {
		return nil, nil, refused(c, err, err == errToken)
	}
	conn.SetDeadline(time.Time{})
	c.trust(mostHello)
	return c, &k, c.say(kindAdmitted, struct{}{})
}

// may reports why a client may not ask.
func (s *Server) may(k *knock) error {
	if k.Session == (transport.Session{}) {
		if s.o.Token != "" && subtle.ConstantTimeCompare([]byte(k.Token), []byte(tokenSum(s.o.Token))) == 0 {
			return errToken
		}
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.sessions[k.Session]; !known {
		return errors.New("there is no such session")
	}
	return nil
}

// shake makes a connection secure. Where that fails, what the other side has sent already is
// taken, or else the system would end the connection before why is read there.
func (s *Server) shake(t *tls.Conn) error {
	err := t.HandshakeContext(s.ctx)
	if err != nil {
		below := t.NetConn()
		below.SetReadDeadline(time.Now().Add(time.Second))
		io.CopyN(io.Discard, below, mostHello)
	}
	return err
}

// begin begins a session, unless the sides do not fit.
func (s *Server) begin(c *channel, text []byte, place *lobby.Guest) error {
	h, err := parse[hello](text)
	if err != nil {
		return refused(c, err, false)
	}
	x, err := moves(&s.meta, &h.Meta)
	if err != nil {
		return refused(c, err, true)
	}
	packing, err := s.source.Packing(h.Meta.Codecs)
	if err != nil {
		return refused(c, fmt.Errorf("%w: %w", ErrDiffers, err), true)
	}
	if h.By != "tcp" && h.By != "local" {
		if _, err := transport.CarriageOf(h.By); err != nil {
			return refused(c, fmt.Errorf("the prefill side: %w", err), true)
		}
	}
	id := transport.NewSession()
	s.mu.Lock()
	s.sessions[id] = c.RemoteAddr().String()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.sessions, id)
		s.mu.Unlock()
	}()
	place.Leave()
	meta := s.meta
	meta.Codecs = h.Meta.Codecs
	if err := c.say(kindWelcome, welcome{meta, id}); err != nil {
		return err
	}
	s.o.Log("%s: decodes %s on %s, by %s", c.RemoteAddr(), printable(h.Meta.Name), printable(h.Meta.Ranks), printable(h.By))
	c.trust(mostControl)
	return (&session{Server: s, channel: c, id: id, end: x.From, packing: packing, running: map[uint64]context.CancelFunc{}}).serve()
}

var errToken = errors.New("the token is not the server's: give the same --token-file to both sides")

// tokenSum is what a client shows of a token: as long for each, so that a stranger's message is
// short.
func tokenSum(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func refused(c *channel, why error, differs bool) error {
	c.say(kindRefuse, refuse{why.Error(), differs})
	return why
}

func printable(text string) string { return fmt.Sprintf("%.60q", text) }

// answer lets a session read on another connection.
func (s *Server) answer(c *channel, text []byte, by transport.Session, place *lobby.Guest) error {
	d, err := parse[data](text)
	if err != nil {
		return refused(c, err, false)
	}
	place.Leave()
	var sender transport.Sender
	if d.By != "tcp" {
		x, err := transport.CarriageOf(d.By)
		if err == nil {
			sender, err = x.Sender(d.Address, s.o.Stall)
		}
		if err != nil {
			return refused(c, err, false)
		}
	}
	if err := c.say(kindAccepted, struct{}{}); err != nil {
		if sender != nil {
			sender.Close()
		}
		return err
	}
	if sender != nil {
		err = transport.AnswerBy(c.Conn, s.grants, by, s.o.Stall, sender)
	} else {
		err = transport.Answer(c.Conn, s.grants, by, s.o.Stall)
	}
	return ended(err)
}

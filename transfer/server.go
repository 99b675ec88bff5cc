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
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/lobby"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/transfer/ping"
	"github.com/krait-ml/krait/transfer/transport"
)

// Source prefills prompts.
type Source interface {
	// Prefill prefills tokens, with a salt of the prefix cache, and returns their state. Progress
	// gets the number of tokens so far.
	Prefill(ctx context.Context, salt string, tokens []int, progress func(tokens int)) (*State, error)
	// Packing parses codecs that a client requests: [exec.Engine.Packing].
	Packing(text string) (*state.Codecs, error)
}

// State is the state of a prefilled prompt.
type State struct {
	View *state.View
	Free func() // called once
}

// ServerOptions configure a server.
type ServerOptions struct {
	// Token is required of clients; empty: none is.
	Token string
	// Lease is how long a state is held until the client has read it; 0: 30 s.
	Lease time.Duration
	// Stall is how long the other side may take for its next message or read; 0: 10 s.
	Stall time.Duration
	// Greet is how long a connection may take to authenticate; 0: 5 s.
	Greet time.Duration
	// MaxRequests bounds the prompts of a client that are prefilled or lent at the same time; 0:
	// 64.
	MaxRequests int
	// MaxConnections bounds the authenticated connections; 0: 256. Up to 64 others may be
	// authenticating.
	MaxConnections int
	// Log gets a line per event; nil: no log.
	Log *slog.Logger
	// Trace gets a span of each prompt whose client traces it; nil: none.
	Trace *trace.Exporter
}

// Server prefills prompts for clients. Its methods may be called from several goroutines.
type Server struct {
	meta    Meta
	source  Source
	o       ServerOptions
	grants  *transport.Grants
	ctx     context.Context
	stop    context.CancelFunc
	prompts sync.WaitGroup // being prefilled or lent

	draining context.Context // ends by drain
	drain    context.CancelFunc

	live    sync.WaitGroup
	lobby   *lobby.Lobby // connections before authentication
	known   atomic.Int64 // connections after it
	notices lobby.Notices

	mu        sync.Mutex
	closed    bool
	conns     map[net.Conn]bool
	listeners map[net.Listener]bool
	sessions  map[transport.Session]string // remote addresses
	stats     ServerStats
}

// ServerStats count since the server was made; Sessions and Lent are current.
type ServerStats struct {
	Sessions, Lent              int
	Requests                    int   // received
	Tokens                      int64 // of them
	Released, Expired, Failures int   // ends of requests
}

const (
	mostStrangers = 64               // connections before authentication; more evict the oldest of the address that has most
	quiet         = 10 * time.Second // between two log lines about them
)

// NewServer makes a server for a model.
func NewServer(meta Meta, source Source, o ServerOptions) *Server {
	o.Lease, o.Stall = cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.Stall, 10*time.Second)
	o.MaxRequests, o.MaxConnections = cmp.Or(o.MaxRequests, 64), cmp.Or(o.MaxConnections, 256)
	o.Greet = cmp.Or(o.Greet, 5*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	meta.Protocol = Protocol
	s := &Server{meta: meta, source: source, o: o, grants: transport.NewGrants(), lobby: lobby.New(mostStrangers), conns: map[net.Conn]bool{},
		listeners: map[net.Listener]bool{}, sessions: map[transport.Session]string{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.draining, s.drain = context.WithCancel(s.ctx)
	return s
}

// Serve accepts connections until the server is closed, which closes the listener and is not an
// error, or the listener fails.
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

// take serves a connection.
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
		// A connection closed without a message is a liveness probe, as of Kubernetes.
		if err := s.handle(c); err != nil && err != io.EOF && s.ctx.Err() == nil {
			s.o.Log.Warn("connection failed", "client", c.RemoteAddr().String(), "error", err)
		}
	})
}

// Pipe returns a connection to a server of the same process.
func (s *Server) Pipe(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	s.take(there)
	return here, nil
}

// Close closes all connections, releases lent states, and waits for that.
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

// Stats returns the counts.
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
	place := s.lobby.Enter(lobby.Host(conn.RemoteAddr().String()), 1, func() { below.Close() })
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
		return refused(c, fmt.Errorf("there are %d authenticated connections already", n-1), false)
	}
	defer s.known.Add(-1)
	switch control := k.Session == (transport.Session{}); {
	case kind == kindHello && control:
		return s.begin(c, text, place)
	case kind == kindData && !control:
		return s.answer(c, text, k.Session, place)
	}
	return fmt.Errorf("its message after authentication is of kind %d", kind)
}

// sentAway limits the rate of errors before authentication: a flood must not fill the log.
func (s *Server) sentAway(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	n, due := s.notices.Due(quiet)
	if !due {
		return nil
	}
	return fmt.Errorf("%w (unauthenticated connections since the last such line: %d)", err, n)
}

// greet authenticates a connection within a time limit. The knock is nil if it was only a ping.
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
	case kind == ping.Question && s.draining.Err() != nil:
		return c, nil, c.send(ping.Draining)
	case kind == ping.Question:
		return c, nil, c.send(ping.Answer)
	case kind != kindKnock:
		return nil, nil, fmt.Errorf("its first message is of kind %d", kind)
	}
	k, err := parse[knock](text)
	if err != nil {
		return nil, nil, refused(c, err, false)
	}
	if err := checkProtocol(Protocol, k.Protocol); err != nil {
		return nil, nil, refused(c, err, true)
	}
	if err := s.may(&k); err != nil {
		return nil, nil, refused(c, err, err == errToken)
	}
	conn.SetDeadline(time.Time{})
	c.trust(mostHello)
	return c, &k, c.say(kindAdmitted, struct{}{})
}

// may returns an error if the credentials are not valid.
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

// shake does the TLS handshake. If it fails, data already sent by the other side is read, since
// otherwise the system would reset the connection before the alert is read there.
func (s *Server) shake(t *tls.Conn) error {
	err := t.HandshakeContext(s.ctx)
	if err != nil {
		below := t.NetConn()
		below.SetReadDeadline(time.Now().Add(time.Second))
		io.CopyN(io.Discard, below, mostHello)
	}
	return err
}

// begin starts a session, unless the sides do not fit.
func (s *Server) begin(c *channel, text []byte, place *lobby.Guest) error {
	h, err := parse[hello](text)
	if err == nil && s.draining.Err() != nil {
		err = errDrains
	}
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
	s.o.Log.Info("decode server connected", "client", c.RemoteAddr().String(), "model", short60(h.Meta.Name), "ranks", short60(h.Meta.Ranks), "transport", short60(h.By))
	c.trust(mostControl)
	return (&session{Server: s, channel: c, id: id, end: x.From, packing: packing, running: map[uint64]context.CancelFunc{}}).serve()
}

var errToken = errors.New("the token is not the server's: give both sides the same token file")

// tokenSum is the hash of a token that a client sends: it has a fixed length, so that messages
// before authentication are short.
func tokenSum(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func refused(c *channel, why error, differs bool) error {
	c.say(kindRefuse, refuse{why.Error(), differs})
	return why
}

// short60 bounds what a client says of itself in the log, whose handler escapes it.
func short60(text string) string { return fmt.Sprintf("%.60s", text) }

// answer serves reads of a session on a connection for data.
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

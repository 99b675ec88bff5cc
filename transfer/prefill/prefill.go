// Package prefill lets one machine prefill prompts for another one that decodes: a [NewServer] of a
// model prefills and lends states, and a [Client] is a session.Prefiller that fetches them. See
// docs/disaggregation.md.
package prefill

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/session/schedule"
	"github.com/krait-ml/krait/transfer"
)

// NewServer makes a server that prefills prompts on a session's engine. [transfer.Server.Serve]
// takes connections from a listener, with TLS or without. Close the server before the model. The
// model's weights are read once, for a fingerprint.
func NewServer(s *session.Session, o transfer.ServerOptions) (*transfer.Server, error) {
	meta, err := metaOf(s)
	if err != nil {
		return nil, err
	}
	return transfer.NewServer(meta, source{s}, o), nil
}

// metaOf describes a model to the other side.
func metaOf(s *session.Session) (transfer.Meta, error) {
	o, err := s.Origin()
	if err != nil {
		return transfer.Meta{}, err
	}
	end, err := s.Engine().TransferEnd()
	if err != nil {
		return transfer.Meta{}, err
	}
	return transfer.Meta{Model: o.Model, Name: o.Name, Ranks: o.Ranks, States: o.States, Layout: end.States.String(), PageTokens: end.PageTokens}, nil
}

// source prefills prompts in steps shared by all requests.
type source struct{ *session.Session }

// Prefill prefills tokens and copies their state. The request also chooses one token, which is
// dropped: a request ends with a token.
func (s source) Prefill(ctx context.Context, salt string, tokens []int, progress func(tokens int)) (state *transfer.State, err error) {
	if err := s.CheckTokens(tokens); err != nil {
		return nil, err
	}
	r := schedule.Request{
		Prompt:    tokens,
		Salt:      salt,
		MaxTokens: 1,
		Choose:    func([]int) exec.Choice { return exec.Choice{} },
		Accept:    func(int) bool { return true },
		OnEnd:     func(slot int) (err error) { state, err = s.copyState(slot, len(tokens)); return err },
		OnPrompt:  progress,
	}
	for _, e := range s.Scheduler().Stream(ctx, r) {
		err = cmp.Or(err, e)
	}
	if err != nil && state != nil {
		state.Free()
		state = nil
	}
	return state, err
}

// Packing parses codecs that a client requests.
func (s source) Packing(text string) (*state.Codecs, error) { return s.Engine().Codecs(text) }

// copyState copies a slot's recurrent states and shares its KV pages.
func (s source) copyState(slot, tokens int) (*transfer.State, error) {
	e := s.Engine()
	states, err := e.CopyState(slot)
	if err != nil {
		return nil, err
	}
	rows, err := e.ShareKV(slot, 0, tokens)
	if err != nil {
		states.Free()
		return nil, err
	}
	free := func() {
		states.Free()
		rows.Free()
	}
	v, err := e.View(states, rows)
	if err != nil {
		free()
		return nil, err
	}
	return &transfer.State{View: v, Free: free}, nil
}

// Options set how a client reaches its server.
type Options struct {
	// Address is the server's, host:port.
	Address string
	// TLS is the client's TLS configuration; nil: no TLS.
	TLS *tls.Config
	// Token authenticates the client.
	Token string
	// Transport carries states: tcp (default), or ucx in programs that import transfer/ucx.
	Transport string
	// Connections is the number of parallel connections per state; 0: 2.
	Connections int
	// Stall is how long a connection may carry nothing while data is expected; 0: 10 s.
	Stall time.Duration
	// Silence is how long the server may leave a handshake or a ping unanswered. After that this
	// machine prefills prompts until the server answers again. 0: a quarter of Stall.
	Silence time.Duration
	// Server is a server of the same process, in place of an address.
	Server *transfer.Server
	// Dial makes connections, in place of Address.
	Dial func(context.Context) (net.Conn, error)
	// Strict makes requests fail where this machine would prefill the prompt instead.
	Strict bool
}

// Client prefills a session's prompts on a server of the same model. It is a [session.Prefiller]; a
// nil one prefills nothing.
type Client struct {
	s      *session.Session
	client *transfer.Client
	strict bool

	mu        sync.Mutex
	fallbacks int
}

// Stats count the work of a [Client].
type Stats struct {
	transfer.ClientStats
	Fallbacks int // prompts that this machine prefilled since the server could not
}

// New makes a client of a server that runs the same model, on any number of ranks and by any
// strategy. Close it before the model. It connects when it is first used, or by [Client.Connect].
func New(s *session.Session, o Options) (*Client, error) {
	meta, err := metaOf(s)
	if err != nil {
		return nil, err
	}
	by := cmp.Or(o.Transport, "tcp")
	switch {
	case o.Server != nil && o.Transport == "":
		by = "local"
	case o.Server != nil, o.Dial != nil:
	case o.Address == "":
		return nil, errors.New("prefill: the server's address is missing")
	}
	c, err := transfer.NewClient(meta, s.Engine(), transfer.ClientOptions{Dial: o.dial(), By: by, Local: o.Server,
		Token: o.Token, Packing: s.Codecs(), Connections: o.Connections, Stall: o.Stall, Silence: o.Silence})
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	return &Client{s: s, client: c, strict: o.Strict}, nil
}

// dial returns the function that makes connections.
func (o *Options) dial() func(context.Context) (net.Conn, error) {
	switch {
	case o.Dial != nil:
		return o.Dial
	case o.Server != nil:
		return o.Server.Pipe
	case o.TLS != nil:
		return func(ctx context.Context) (net.Conn, error) {
			return (&tls.Dialer{Config: o.TLS}).DialContext(ctx, "tcp", o.Address)
		}
	}
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", o.Address)
	}
}

// Connect connects to the server, and returns [transfer.ErrDiffers] if it does not fit.
func (c *Client) Connect(ctx context.Context) error { return c.client.Connect(ctx) }

// Down reports whether the server cannot be reached or does not answer. The client retries in the
// background.
func (c *Client) Down() bool { return c == nil || c.client.Down() }

// Strict is [Options.Strict].
func (c *Client) Strict() bool { return c != nil && c.strict }

// Close closes the connections and fails active requests.
func (c *Client) Close() { c.client.Close() }

// Stats returns the counts.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.client.Stats(), c.fallbacks}
}

// fetched is the state of a prompt's prefix from the server, and the KV pages before it that the
// local prefix cache had.
type fetched struct {
	*transfer.Fetched
	s      *session.Session
	local  []*state.DeviceKV
	tokens int
	once   sync.Once
}

// Free releases all of it. A sequence that resumed from it has copies.
func (f *fetched) Free() {
	f.once.Do(func() {
		f.Fetched.Free()
		freeKV(f.local)
	})
}

func freeKV(list []*state.DeviceKV) {
	for _, r := range list {
		r.Free()
	}
}

// Begin resumes a slot's new sequence from the state.
func (f *fetched) Begin(slot int) (int, error) {
	defer f.Free()
	states := f.States
	if f.s.Engine().StateBytes() == 0 {
		states = nil
	}
	f.s.FreePages(0)
	return f.tokens, f.s.Engine().Resume(slot, states, append(f.local, f.Rows)...)
}

// Prefill fetches the state of all tokens of a prompt but the last; see [session.Prefiller].
func (c *Client) Prefill(ctx context.Context, s *session.Session, salt string, prompt []int, progress func(tokens int)) (schedule.Beginning, session.RemotePrefill, error) {
	var r session.RemotePrefill
	if c == nil {
		return nil, r, nil
	}
	if s != c.s {
		return nil, r, errors.New("Prefill belongs to another model: make it by prefill.New with this model's session")
	}
	n := len(prompt) - 1
	if n < 1 {
		return nil, r, nil
	}
	f := &fetched{s: s, tokens: n, local: s.CachedKV(salt, prompt)}
	have := 0
	if k := len(f.local); k > 0 {
		have = f.local[k-1].To
	}
	s.FreePages(len(prompt) - have)
	var err error
	if f.Fetched, err = c.client.Fetch(ctx, salt, prompt[:n], have, progress); err == nil {
		return f, session.RemotePrefill{Tokens: n, Local: f.Rows.From, Bytes: f.Bytes, Pieces: f.Pieces, Begun: f.Begun, Prefill: f.Prefill, Transfer: f.Transfer}, nil
	}
	freeKV(f.local)
	switch {
	case ctx.Err() != nil:
		return nil, r, ctx.Err()
	case s.Closed():
		return nil, r, exec.ErrClosed
	case c.strict || errors.Is(err, transfer.ErrDiffers):
		return nil, r, fmt.Errorf("prefill: %w", err)
	}
	c.mu.Lock()
	c.fallbacks++
	c.mu.Unlock()
	r.Fallback = err
	return nil, r, nil
}

package krait

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
	"github.com/krait-ml/krait/session/schedule"
	"github.com/krait-ml/krait/transfer"
)

// PrefillServer lets other processes have prompts read by a model, and lends them what came
// of it. See docs/disaggregation.md.
type PrefillServer = transfer.Server

// PrefillServerOptions say how a [PrefillServer] serves.
type PrefillServerOptions = transfer.ServerOptions

// NewPrefillServer makes a server of the model: [PrefillServer.Serve] takes connections from a
// listener, which may be one of TLS. Close it before the model. The model's weights are read
// once, for a fingerprint.
func (m *Model) NewPrefillServer(o PrefillServerOptions) (*PrefillServer, error) {
	meta, err := m.meta()
	if err != nil {
		return nil, err
	}
	return transfer.NewServer(meta, prefillSource{m}, o), nil
}

// meta is what the model says of itself at either side of a transfer.
func (m *Model) meta() (transfer.Meta, error) {
	o, err := m.origin()
	if err != nil {
		return transfer.Meta{}, err
	}
	end, err := m.engine.TransferEnd()
	return transfer.Meta{Model: o.Model, Name: m.Name, Ranks: o.Ranks, States: o.States, Keeps: end.Keeps.String(), PageTokens: end.PageTokens}, err
}

// prefillSource reads prompts for others, in steps that all share.
type prefillSource struct{ *Model }

// Prefill reads tokens and keeps what came of them. A token is chosen after them, too, which
// nobody wants: it is what ends a request.
func (m prefillSource) Prefill(ctx context.Context, salt string, tokens []int, tell func(read int)) (k *transfer.Kept, err error) {
	if err := m.check(tokens); err != nil {
		return nil, err
	}
	r := schedule.Request{
		Prompt:    tokens,
		Salt:      salt,
		MaxTokens: 1,
		Choose:    func() exec.Choice { return exec.Choice{} },
		Accept:    func(int) bool { return true },
		OnRead:    func(slot int) (err error) { k, err = m.keep(slot, len(tokens)); return err },
		OnPrompt:  tell,
	}
	for _, failed := range m.requests.Stream(ctx, r) {
		err = cmp.Or(err, failed)
	}
	if err != nil && k != nil {
		k.Free()
		k = nil
	}
	return k, err
}

// Packing reads codecs that a client asks for.
func (m prefillSource) Packing(text string) (*state.Codecs, error) { return m.engine.Codecs(text) }

// keep keeps all that a sequence has, to be lent.
func (m *Model) keep(slot, tokens int) (*transfer.Kept, error) {
	states, err := m.engine.CopyState(slot)
	if err != nil {
		return nil, err
	}
	rows, err := m.engine.ShareKV(slot, 0, tokens)
	if err != nil {
		states.Free()
		return nil, err
	}
	free := func() {
		states.Free()
		rows.Free()
	}
	v, err := m.engine.View(states, rows)
	if err != nil {
		free()
		return nil, err
	}
	return &transfer.Kept{View: v, Free: free}, nil
}

// PrefillFrom says who reads prompts for a model.
type PrefillFrom struct {
	// Address is that of a server, host:port.
	Address string
	// TLS is how it is reached; nil: without TLS.
	TLS *tls.Config
	// Token is what the server wants to know.
	Token string
	// Transport brings what the server lends: tcp, which is the default, or ucx in programs
	// that import transfer/ucx.
	Transport string
	// Connections is over how many connections a state comes at the same time; 0: 2.
	Connections int
	// Stall is how long a connection to the server may carry nothing while something is to come on
	// it; 0: 10 s.
	Stall time.Duration
	// Silence is how long the server may leave a greeting or a ping without an answer. Prompts are
	// read here then, until it answers again. 0: a quarter of Stall.
	Silence time.Duration
	// Server is a server of the same process, in place of an address.
	Server *PrefillServer
	// Dial makes connections, in place of the address; nil: by that.
	Dial func(context.Context) (net.Conn, error)
	// Strict makes requests fail where the prompt would be read here in place of there.
	Strict bool
}

// Prefill has prompts read elsewhere: [Generate.Prefill].
type Prefill struct {
	m      *Model
	client *transfer.Client
	strict bool

	mu        sync.Mutex
	fallbacks int
}

// PrefillStats count what a [Prefill] has done.
type PrefillStats struct {
	transfer.ClientStats
	Fallbacks int // prompts that were read here, since they could not be read there
}

// NewPrefill makes what has prompts read by a server of the same model, on any number of
// ranks, by any strategy. Close it before the model. It connects when it is first used, or by
// [Prefill.Connect].
func (m *Model) NewPrefill(o PrefillFrom) (*Prefill, error) {
	meta, err := m.meta()
	if err != nil {
		return nil, err
	}
	by := cmp.Or(o.Transport, "tcp")
	switch {
	case o.Server != nil && o.Transport == "":
		by = "local"
	case o.Server != nil, o.Dial != nil:
	case o.Address == "":
		return nil, errors.New("prefill: no address of a server")
	}
	c, err := transfer.NewClient(meta, m.engine, transfer.ClientOptions{Dial: o.dial(), By: by, Local: o.Server,
		Token: o.Token, Packing: m.packing, Connections: o.Connections, Stall: o.Stall, Silence: o.Silence})
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	return &Prefill{m: m, client: c, strict: o.Strict}, nil
}

// dial makes connections to the server.
func (o *PrefillFrom) dial() func(context.Context) (net.Conn, error) {
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

// ErrPrefillDiffers is the error of a server with which it is of no use to try again: it has
// another model, version or format of states, or wants another token.
var ErrPrefillDiffers = transfer.ErrDiffers

// Connect greets the server, and says what does not fit.
func (p *Prefill) Connect(ctx context.Context) error { return p.client.Connect(ctx) }

// Down reports whether the server could not be reached or does not answer, which is tried again
// in the background: to ask another is better.
func (p *Prefill) Down() bool { return p.client.Down() }

// Strict reports whether no prompt may be read here in place of there: [PrefillFrom].
func (p *Prefill) Strict() bool { return p.strict }

// Close ends what is under way.
func (p *Prefill) Close() { p.client.Close() }

// Stats counts.
func (p *Prefill) Stats() PrefillStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PrefillStats{p.client.Stats(), p.fallbacks}
}

// arrived is what came of the beginning of a prompt, and the rows before it that were here.
type arrived struct {
	*transfer.Arrived
	m      *Model
	held   []*state.DeviceKV
	tokens int
	once   sync.Once
}

// Free gives back all of it. A sequence that was begun with it has its own.
func (a *arrived) Free() {
	a.once.Do(func() {
		a.Arrived.Free()
		for _, r := range a.held {
			r.Free()
		}
	})
}

// Begin lets a sequence go on from it.
func (a *arrived) Begin(slot int) (int, error) {
	defer a.Free()
	states := a.States
	if a.m.engine.StateBytes() == 0 {
		states = nil
	}
	a.m.makeRoom(0)
	return a.tokens, a.m.engine.Resume(slot, states, append(a.held, a.Rows)...)
}

// fetch has all tokens of a prompt but the last read elsewhere. It is nil where they are to be
// read here, and then why may say why that is.
func (p *Prefill) fetch(ctx context.Context, salt string, prompt []int, tell func(read int)) (a *arrived, why, err error) {
	n := len(prompt) - 1
	if n < 1 {
		return nil, nil, nil
	}
	x := &arrived{m: p.m, tokens: n}
	have := 0
	if p.m.cache != nil {
		x.held = p.m.cache.Rows(salt, prompt)
	}
	if k := len(x.held); k > 0 {
		have = x.held[k-1].To
	}
	p.m.makeRoom(len(prompt) - have)
	if x.Arrived, err = p.client.Fetch(ctx, salt, prompt[:n], have, tell); err == nil {
		return x, nil, nil
	}
	for _, r := range x.held {
		r.Free()
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case p.m.closed.Load():
		return nil, nil, ErrClosed
	case p.strict || errors.Is(err, ErrPrefillDiffers):
		return nil, nil, fmt.Errorf("prefill: %w", err)
	}
	p.mu.Lock()
	p.fallbacks++
	p.mu.Unlock()
	return nil, err, nil
}

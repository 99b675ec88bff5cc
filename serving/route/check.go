package route

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/krait-ml/krait/transfer/ping"
)

// checks asks a machine again and again whether it is ready, at first at once.
func (r *Router) checks(p *pool, m *machine, first *sync.WaitGroup) {
	t := time.NewTicker(r.o.Check)
	defer t.Stop()
	for {
		ctx, end := context.WithTimeout(r.ctx, r.o.CheckTimeout)
		err := m.check(ctx)
		end()
		if r.ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		news, gone := m.checked(err), m.gone()
		p.mu.Unlock()
		p.giveUp(m, time.Now(), r.o.Stall)
		switch {
		case news && err != nil:
			r.o.Log.Warn("a machine takes nothing", "machine", m.name, "gone", gone, "error", err)
		case news:
			r.o.Log.Info("a machine is ready", "machine", m.name)
		}
		if first != nil {
			first.Done()
			first = nil
		}
		select {
		case <-t.C:
		case <-m.kick:
		case <-r.ctx.Done():
			return
		}
	}
}

// soon has a machine checked now.
func (m *machine) soon() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// askReady is the check of a server: GET /ready.
func askReady(client *http.Client, base string) func(context.Context) error {
	return func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ready", nil)
		if err != nil {
			return err
		}
		a, err := client.Do(q)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		io.Copy(io.Discard, io.LimitReader(a.Body, 4<<10))
		if a.StatusCode != http.StatusOK {
			return fmt.Errorf("%w: GET /ready is %d", errNotReady, a.StatusCode)
		}
		return nil
	}
}

// pings is the check of a machine that reads prompts and speaks no HTTP.
func pings(network, address string, config *tls.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		var c net.Conn
		var err error
		if config != nil {
			c, err = (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		} else {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
		if err != nil {
			return err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
		return ping.Ask(c)
	}
}

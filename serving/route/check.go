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

// checks checks a machine's readiness at once and then periodically, until the router is closed.
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
		r.tell(m, news, gone, err)
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

// tell logs the result of a check if it differs from the last one.
func (r *Router) tell(m *machine, news, gone bool, err error) {
	switch {
	case news && err != nil:
		r.o.Log.Warn("server not ready", "machine", m.name, "gone", gone, "error", err)
	case news:
		r.o.Log.Info("server ready", "machine", m.name)
	}
}

// soon triggers a check of the machine now.
func (m *machine) soon() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// askReady returns the readiness check of a server: GET /ready. With keyed, a server that answers
// requests without a key is not ready; this is checked each time the server becomes ready.
func askReady(client *http.Client, base string, keyed bool) func(context.Context) error {
	checked := false
	return func(ctx context.Context) error {
		status, err := statusOf(ctx, client, base+"/ready")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%w: GET /ready is %d", errNotReady, status)
		}
		if err == nil && keyed && !checked {
			if status, err = statusOf(ctx, client, base+"/v1/models"); err == nil && status == http.StatusOK {
				err = errKeyless
			}
		}
		checked = err == nil
		return err
	}
}

// statusOf returns the status of a GET without a key.
func statusOf(ctx context.Context, client *http.Client, url string) (int, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	a, err := client.Do(q)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	io.Copy(io.Discard, io.LimitReader(a.Body, 4<<10))
	return a.StatusCode, nil
}

// pings returns the check of a prefill server, which has no HTTP API.
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

package route

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/internal/lobby"
	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/serving/internal/budget"
)

// Options say among whom requests are divided. Zeros are the defaults.
type Options struct {
	// Servers are those that answer: URLs, or host:port for http.
	Servers []string
	// TLS is how those with https are reached, and where PrefillTLS says so those of Prefill; nil: with the
	// system's certificates.
	TLS *tls.Config
	// Prefill are machines that read prompts for all of Servers, host:port or unix:PATH, called as
	// their --prefill calls them.
	Prefill []string
	// PrefillTLS is how these are reached to see whether they are there; nil: without TLS.
	PrefillTLS *tls.Config
	// Check is how often each machine is checked; 0: every second.
	Check time.Duration
	// CheckTimeout is how long a check may take; 0: 5 seconds.
	CheckTimeout time.Duration
	// EjectAfter is after how many failed answers in a row a machine is left out; 0: 3.
	EjectAfter int
	// EjectFor is for how long the first time, and twice as long each time after that; 0: 10 seconds.
	EjectFor time.Duration
	// Keys are those that clients must have; nil: anybody may ask, and servers say who gets an
	// answer.
	Keys *Keys
	// Keyed sends nothing to servers that answer without a key, for routers that others reach.
	Keyed bool
	// Requests is how many may be under way, at least 2; 0: 1024. A key, or without keys an
	// address, has half of them at most, and less the more others have.
	Requests int
	// Body is how many bytes a request may have; 0: 4 MiB.
	Body int64
	// Bodies is how many bytes of requests are held at the same time, until their answers begin; 0:
	// 128 MiB. They are shared as Requests are.
	Bodies int64
	// SlowStart is how long a client may take to begin its body, which then has to come at 64 KiB a
	// second; 0: 5 seconds.
	SlowStart time.Duration
	// Deadline is how long a request may take, with what servers let it wait; 0: 15 minutes.
	Deadline time.Duration
	// Stall is how long a client may take to take what is sent to it, and how long a machine that
	// does not answer checks may also leave a request without a byte; 0: 30 seconds.
	Stall time.Duration
	// Log is told of each request, and of machines that come and go, but no text; nil: nothing.
	Log *slog.Logger
	// Local answers only to requests for an IP address, localhost or one of Hosts. Else a site that
	// a browser shows could let its own name lead here.
	Local bool
	// Hosts are names that Local lets requests ask for.
	Hosts []string
}

// Router divides requests. It is an [http.Handler]; who listens bounds headers and connections.
type Router struct {
	o       Options
	seed    maphash.Seed
	client  *http.Client
	servers pool
	prefill pool
	urls    map[*machine]string
	figures *figures
	keys    atomic.Pointer[Keys]

	ctx   context.Context // until Close
	close context.CancelFunc

	lobby   *lobby.Lobby  // bodies, until a machine answers
	waiting *budget.Bytes // those that are complete
	places  *budget.Bytes // requests under way
	retries allowance     // of requests that one server answered by status 500

	mu     sync.Mutex
	drains bool
}

// Keys are the keys that a router takes, as its servers do.
type Keys = api.Keys

// SetKeys replaces the keys, for requests that come from now on.
func (r *Router) SetKeys(k *Keys) { r.keys.Store(k) }

// New makes a router, and checks each machine once; one that does not answer is no error, and is
// checked on. Close it after all requests have ended.
func New(o Options) (*Router, error) {
	o.Check = cmp.Or(o.Check, time.Second)
	o.CheckTimeout = cmp.Or(o.CheckTimeout, 5*time.Second)
	o.EjectAfter = cmp.Or(o.EjectAfter, 3)
	o.EjectFor = cmp.Or(o.EjectFor, 10*time.Second)
	o.Requests = cmp.Or(o.Requests, 1024)
	o.Body = cmp.Or(o.Body, 4<<20)
	o.Deadline = cmp.Or(o.Deadline, 15*time.Minute)
	o.Bodies = cmp.Or(o.Bodies, 128<<20)
	o.SlowStart = cmp.Or(o.SlowStart, 5*time.Second)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Check < 0 || o.CheckTimeout < 0 || o.EjectAfter < 0 || o.EjectFor < 0 || o.Requests < 0 || o.Body < 0 || o.Bodies < 0 || o.SlowStart < 0 || o.Deadline < 0 || o.Stall < 0 {
		return nil, errors.New("route: a limit is below 0")
	}
	if o.Requests < 2 || o.Bodies < 2*(o.Body+uploadBytes+firstPart+partBytes) {
		return nil, fmt.Errorf("route: Requests is %d and Bodies %d; they must be at least 2 and twice the largest body, as a client has half at most", o.Requests, o.Bodies)
	}
	r := &Router{o: o, seed: maphash.MakeSeed(), urls: map[*machine]string{}}
	r.lobby, r.waiting, r.places = lobby.New(o.Bodies), budget.New(o.Bodies), budget.New(int64(o.Requests))
	r.retries = allowance{left: mostAgain}
	r.keys.Store(o.Keys)
	r.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: o.TLS, DisableCompression: true, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute,
			DialContext: (&net.Dialer{Timeout: o.CheckTimeout}).DialContext, TLSHandshakeTimeout: o.CheckTimeout},
		// A key goes to the machines that were named, and to nobody they name.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := r.add(); err != nil {
		return nil, err
	}
	r.ctx, r.close = context.WithCancel(context.Background())
	r.figures = newFigures(r)
	var first sync.WaitGroup
	for _, p := range []*pool{&r.servers, &r.prefill} {
		for _, m := range p.machines {
			first.Add(1)
			go r.checks(p, m, &first)
		}
	}
	first.Wait()
	return r, nil
}

// add makes the machines of the options.
func (r *Router) add() error {
	if len(r.o.Servers) == 0 {
		return errors.New("route: there is no server to send requests to")
	}
	named := map[string]bool{}
	once := func(name string) error {
		if named[name] {
			return fmt.Errorf("route: %s is named twice", name)
		}
		named[name] = true
		return nil
	}
	for _, name := range r.o.Servers {
		base, err := baseURL(name)
		if err = cmp.Or(err, once(base)); err != nil {
			return err
		}
		m := newMachine(name, askReady(r.client, base, r.o.Keyed))
		r.urls[m] = base
		r.servers.machines = append(r.servers.machines, m)
	}
	for _, name := range r.o.Prefill {
		network, address := "tcp", name
		if path, ok := strings.CutPrefix(name, "unix:"); ok {
			network, address = "unix", path
		} else if _, _, err := net.SplitHostPort(name); err != nil {
			return fmt.Errorf("route: prefill %q: it must be host:port or unix:PATH", name)
		}
		if err := once("prefill " + name); err != nil {
			return err
		}
		r.prefill.machines = append(r.prefill.machines, newMachine(name, pings(network, address, r.o.PrefillTLS)))
	}
	return nil
}

// baseURL is where a server is, without a slash at its end.
func baseURL(name string) (string, error) {
	text := name
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", fmt.Errorf("route: server %q: it must be host:port, http://host:port or https://host:port", name)
	}
	return u.Scheme + "://" + u.Host, nil
}

// Ready counts the servers that take requests, and the machines that read prompts.
func (r *Router) Ready() (servers, prefill int) { return r.servers.ready(), r.prefill.ready() }

// Drain lets nobody begin any more: requests get 503, and /ready says so. Those that were taken go on.
func (r *Router) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains = true
}

// Close ends the checks.
func (r *Router) Close() {
	r.close()
	r.client.CloseIdleConnections()
}

// enter takes a request on, of a client that has sent all of it.
func (r *Router) enter(q *request) *api.Error {
	switch {
	case r.draining():
		return errDraining()
	case !r.places.Take(q.who, 1):
		return coded(http.StatusTooManyRequests, "router_full", "this client has as many requests under way as this router takes of one, or of all")
	case !q.wait():
		r.places.Add(q.who, -1)
		return errBodies()
	}
	return nil
}

// leave ends a request that was taken on.
func (r *Router) leave(q *request) { r.places.Add(q.who, -1) }

func (r *Router) draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drains
}

func errDraining() *api.Error {
	return coded(http.StatusServiceUnavailable, "draining", "the router is being stopped")
}

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
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/serving/internal/budget"
)

// Options configure a router. Zeros are the defaults.
type Options struct {
	// Servers are the servers that answer requests: URLs, or host:port for http.
	Servers []string
	// TLS is the configuration for servers with https; nil: the system's certificates.
	TLS *tls.Config
	// Prefill are the prefill servers of all Servers, host:port or unix:PATH, spelled as in the
	// servers' --prefill.
	Prefill []string
	// PrefillTLS is the configuration for checks of prefill servers; nil: without TLS.
	PrefillTLS *tls.Config
	// Check is the interval of readiness checks; 0: 1 second.
	Check time.Duration
	// CheckTimeout bounds a check; 0: 5 seconds.
	CheckTimeout time.Duration
	// EjectAfter is the number of consecutive failures that ejects a machine; 0: 3.
	EjectAfter int
	// EjectFor is the time of the first ejection, which doubles with each further one; 0: 10 seconds.
	EjectFor time.Duration
	// Keys are the keys that the router accepts; nil: it accepts all requests, and servers check keys.
	Keys *Keys
	// Keyed excludes servers that answer without a key, for a router that is not local.
	Keyed bool
	// Requests bounds active requests, at least 2; 0: 1024. A client (key, or address without keys)
	// gets at most half of them, and less when others are active.
	Requests int
	// Body bounds the bytes of a request; 0: 4 MiB.
	Body int64
	// Bodies bounds the bytes of all requests held until their answers begin; 0: 128 MiB. Clients
	// share it as they share Requests.
	Bodies int64
	// SlowStart bounds the time until a client's body begins, which must then arrive at 64 KiB per
	// second; 0: 5 seconds.
	SlowStart time.Duration
	// Deadline bounds a request, including its time in a server's queue; 0: 15 minutes.
	Deadline time.Duration
	// Stall bounds the time that a client takes to read a part of its answer, and the silence of a
	// machine that does not answer checks either; 0: 30 seconds.
	Stall time.Duration
	// Log receives a line per request and per change of a machine's state, without texts; nil: no log.
	Log *slog.Logger
	// Trace gets spans of requests and of each try; nil: none.
	Trace *trace.Exporter
	// Local accepts only requests whose Host is an IP address, localhost or one of Hosts, which
	// prevents DNS rebinding from a browser.
	Local bool
	// Hosts are further host names that Local accepts.
	Hosts []string
}

// Router balances requests over servers. It is an [http.Handler]; its [http.Server] bounds headers
// and connections.
type Router struct {
	o       Options
	seed    maphash.Seed
	client  *http.Client
	servers pool
	prefill pool
	urls    map[*machine]string
	metrics *metrics
	keys    atomic.Pointer[Keys]

	ctx   context.Context // until Close
	close context.CancelFunc

	lobby   *lobby.Lobby  // bodies, until a machine answers
	waiting *budget.Bytes // those that are complete
	active  *budget.Bytes // active requests
	retries allowance     // of requests that a server answered with status 500

	mu     sync.Mutex
	drains bool
}

// Keys are the keys that a router accepts, each of a tenant.
type Keys = api.Keys

// SetKeys replaces the keys for new requests.
func (r *Router) SetKeys(k *Keys) { r.keys.Store(k) }

// New returns a router whose machines have been checked once. A machine that is not ready is no
// error. Close the router after all requests have ended.
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
		return nil, errors.New("route: limits must not be negative")
	}
	if o.Requests < 2 || o.Bodies < 2*(o.Body+uploadBytes+firstPart+partBytes) {
		return nil, fmt.Errorf("route: Requests is %d and Bodies %d; they must be at least 2 and twice the largest body, since a client gets at most half", o.Requests, o.Bodies)
	}
	r := &Router{o: o, seed: maphash.MakeSeed(), urls: map[*machine]string{}}
	r.lobby, r.waiting, r.active = lobby.New(o.Bodies), budget.New(o.Bodies), budget.New(int64(o.Requests))
	r.retries = allowance{left: retryBurst}
	r.keys.Store(o.Keys)
	r.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: o.TLS, DisableCompression: true, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute,
			DialContext: (&net.Dialer{Timeout: o.CheckTimeout}).DialContext, TLSHandshakeTimeout: o.CheckTimeout},
		// No redirects: clients' keys go to configured servers only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := r.add(); err != nil {
		return nil, err
	}
	r.ctx, r.close = context.WithCancel(context.Background())
	r.metrics = newMetrics(r)
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

// baseURL returns the URL of a server, without a trailing slash.
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

// Ready returns the numbers of ready servers and ready prefill servers.
func (r *Router) Ready() (servers, prefill int) { return r.servers.ready(), r.prefill.ready() }

// Drain rejects new requests with status 503, and fails /ready. Active requests continue.
func (r *Router) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains = true
}

// Close stops the checks.
func (r *Router) Close() {
	r.close()
	r.client.CloseIdleConnections()
}

// enter makes a request active whose body is complete.
func (r *Router) enter(q *request) *api.Error {
	switch {
	case r.draining():
		return errDraining()
	case !r.active.Take(q.who, 1):
		return coded(http.StatusTooManyRequests, "router_full", "the router has reached its limit of active requests, or this client's share of it; try again later")
	case !q.wait():
		r.active.Add(q.who, -1)
		return errBodies()
	}
	return nil
}

// leave ends an active request.
func (r *Router) leave(q *request) { r.active.Add(q.who, -1) }

func (r *Router) draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drains
}

func errDraining() *api.Error {
	return coded(http.StatusServiceUnavailable, "draining", "the router is shutting down and takes no new requests")
}

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/krait-ml/krait/serving/route"
	"github.com/spf13/cobra"
)

// routeFlags are the flags of krait route.
type routeFlags struct {
	o          route.Options
	address    addressFlags
	observe    observeFlags
	drain      drain
	hosts      hostFlags
	insecure   bool
	server     tlsFlags // towards clients
	servers    tlsFlags
	prefillTLS tlsFlags
	keyFile    string
	quiet      bool
}

func newRoute() *cobra.Command {
	var f routeFlags
	c := &cobra.Command{
		Use:   "route [flags] --decode ADDR,ADDR",
		Short: "Route requests to several servers of a model",
		Long: `Route forwards each request of OpenAI's API to one of --decode, which are servers of one
model (krait serve), and streams the answer back. It chooses the server with the least work:
bytes of prompts to prefill, less those that its prefix cache may have from earlier requests,
and 16 for each token to decode. The prompt of a streamed answer counts until its first token.

With --prefill it also chooses the prefill server of each prompt, for krait serve decode with
the same --prefill, by the same rule.

Every --check the router checks the readiness of each server. A server that is not ready gets no
new requests; its active ones continue. If a connection fails before the answer begins, the
request is retried once at another server; a stream that has begun ends with an error. A server
that fails --eject-after times in a row is ejected for --eject-for, then for twice as long, and
so on: it gets requests only if no other server is ready. An answer with status 500 counts only
if another server can answer the same request.

The router forwards keys to the servers. With --api-keys, the same file as the servers', it
rejects a request without a valid key before it reads the body. SIGHUP reloads keys and
certificates.
--admin is a separate address for /metrics (Prometheus) and /machines, which need no key. An
address that other machines can reach requires keys at the router or at all servers, or
--insecure. SIGTERM and Ctrl-C drain as in krait serve; a second signal ends the process.`,
		Example: `  krait route --decode 10.0.0.1:8080,10.0.0.2:8080
  krait route --prefill 10.0.1.1:7070,10.0.1.2:7070 --decode 10.0.0.1:8080,10.0.0.2:8080
  krait route --decode https://a:8443,https://b:8443 --tls-ca ca.pem --port 443 --tls-cert s.pem --tls-key s.key`,
		Args: takes(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.o.Servers, "decode", nil, "servers: host:port or http(s)://host:port, separated by commas (required)")
	flags.StringSliceVar(&f.o.Prefill, "prefill", nil, "prefill servers, the same as --prefill of all decode servers")
	f.address.add(c, 8000)
	f.observe.add(c, "/metrics, /machines, /ready")
	flags.DurationVar(&f.o.Check, "check", time.Second, "interval of readiness checks")
	flags.DurationVar(&f.o.CheckTimeout, "check-timeout", 5*time.Second, "timeout of a readiness check")
	flags.IntVar(&f.o.EjectAfter, "eject-after", 3, "consecutive failures after which a server is ejected")
	flags.DurationVar(&f.o.EjectFor, "eject-for", 10*time.Second, "duration of the first ejection; each further one doubles it, up to 32 times")
	flags.IntVar(&f.o.Requests, "max-requests", 1024, "maximum active requests, half of them per client (429 above it)")
	keysFlag(c, &f.keyFile)
	bytesFlag(c, &f.o.Bodies, "max-bodies", 128<<20, "maximum bytes of request bodies in memory, until answers begin")
	flags.DurationVar(&f.o.Deadline, "deadline", 15*time.Minute, "timeout of a request, including its time in a server's queue")
	f.drain.add(c)
	f.hosts.add(c)
	flags.BoolVar(&f.insecure, "insecure", false, "let other machines connect although no key is required")
	flags.StringVar(&f.server.cert, "tls-cert", "", "PEM file with the router's certificate")
	flags.StringVar(&f.server.key, "tls-key", "", "PEM file with the key of --tls-cert")
	flags.StringVar(&f.server.ca, "tls-client-ca", "", "PEM file with the CA that client certificates must be signed by")
	flags.StringVar(&f.servers.ca, "tls-ca", "", "PEM file with the CA of https servers (default: the system's CAs)")
	prefillTLSFlags(c, &f.prefillTLS)
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print the address only")
	expert(c, "check-timeout", "eject-after", "eject-for", "max-bodies", "drain-notice", "hosts")
	return c
}

// read checks the flags.
func (f *routeFlags) read() error {
	switch {
	case len(f.o.Servers) == 0:
		return errors.New("--decode ADDR,ADDR is missing: the servers to send requests to")
	case f.o.Check <= 0 || f.o.CheckTimeout <= 0 || f.o.EjectFor <= 0 || f.o.Deadline <= 0:
		return errors.New("--check, --check-timeout, --eject-for and --deadline must be above 0")
	case f.o.EjectAfter < 1:
		return errors.New("--eject-after must be at least 1")
	case f.o.Requests < 2:
		return fmt.Errorf("--max-requests is %d; it must be at least 2, since a client gets half of them", f.o.Requests)
	case f.o.Bodies < 16<<20:
		return fmt.Errorf("--max-bodies is %d; it must be at least 16MiB: a client gets half, and a request may have 4 MiB", f.o.Bodies)
	}
	err := f.drain.check()
	if err == nil {
		f.o.TLS, err = f.servers.client()
	}
	if err == nil {
		f.o.PrefillTLS, err = f.prefillTLS.client()
	}
	return err
}

// run routes until the command ends.
func (f *routeFlags) run(c *cobra.Command) error {
	if err := cmp.Or(f.read(), f.address.check(c), f.observe.check(c, f.quiet)); err != nil {
		return err
	}
	config, err := f.server.server()
	if err != nil {
		return err
	}
	l, shown, err := listenAt("--listen", f.address.listen, config)
	if err != nil {
		return err
	}
	defer l.Close()
	if f.o.Keys, err = readKeys(f.keyFile); err != nil {
		return err
	}
	f.o.Local = f.hosts.checked(l.Addr(), isOpen(l.Addr()) || f.o.Keys != nil) // servers behind an open one need keys
	f.o.Hosts = f.hosts.names
	f.o.Keyed = isOpen(l.Addr()) && f.o.Keys == nil && !f.insecure
	f.o.Log = f.observe.logger()
	var endTraces func()
	if f.o.Trace, endTraces, err = f.observe.tracer("krait-route"); err != nil {
		return err
	}
	defer endTraces()
	r, err := route.New(f.o)
	if err != nil {
		return err
	}
	defer r.Close()
	if names := r.Keyless(); len(names) > 0 {
		return fmt.Errorf("--listen %s: other machines can reach it, and %s answers without a key: give --api-keys to the router or to all servers, or --insecure", f.address.listen, names[0])
	}
	defer onSIGHUP(func() { reload(f.o.Log, keysReload(f.keyFile, r.SetKeys), f.server.reloads()) })()
	end, err := f.observe.serve(c, r.Admin())
	if err != nil {
		return err
	}
	defer end()
	f.warn(r)
	fmt.Fprintln(c.OutOrStdout(), "routing at", urlOf(shown, config))
	return listenUntil(c.Context(), l, r, r.Drain, f.drain, f.o.Log)
}

// warn names the machines that are not ready.
func (f *routeFlags) warn(r *route.Router) {
	for _, m := range r.Machines() {
		if !m.Ready {
			f.observe.say(slog.LevelWarn, "server", m.Name+" is not ready: "+m.Why)
		}
	}
}

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/krait-ml/krait/serving/route"
	"github.com/spf13/cobra"
)

// routeFlags say among whom requests are divided.
type routeFlags struct {
	o             route.Options
	listen, admin string
	drain         drain
	hosts         hostFlags
	insecure      bool
	server        tlsFlags // towards clients
	servers       tlsFlags
	prefillTLS    tlsFlags
	keyFile       string
	quiet         bool
}

func newRoute() *cobra.Command {
	var f routeFlags
	c := &cobra.Command{
		Use:   "route [flags] --decode ADDR,ADDR",
		Short: "Divide requests of OpenAI's API among several servers of a model",
		Long: `Route sends each request on to one of --decode, which are servers of one model (krait
serve), and passes their answers on as they come. A request goes to the server with the
least to do for it: the bytes of prompts that it has to read, less those it was sent
before and so may have in its prefix cache, and the answers under way.

With --prefill it also chooses who reads the prompt, for servers with --role decode that
were given the same --prefill: by what each was sent before, and has to read.

Each is checked every --check; one that fails a check gets nothing new, and what it has
begun goes on. A request whose connection to a server fails before any part of the answer
was sent on is asked of another server, once; a stream that was begun ends by an error.
A server that fails --eject-after times in a row is left out for --eject-for, then for
twice as long, and so on. An answer of status 500 counts only if another server can
answer the same request.

Keys are passed on to the servers. With --api-keys, the servers' own file, a request
without a key of the file is refused before its body is read; SIGHUP reads the file again.
It waits at 127.0.0.1:8000 unless --listen says otherwise. --admin is an address of its own
for /metrics (Prometheus) and /machines, which want no key. An address that other machines
reach is refused if neither the router nor every server wants a key, unless --insecure.
SIGTERM and Ctrl-C drain as in krait serve; a second signal ends the process at once.`,
		Example: `  krait route --decode 10.0.0.1:8080,10.0.0.2:8080
  krait route --prefill 10.0.1.1:7070,10.0.1.2:7070 --decode 10.0.0.1:8080,10.0.0.2:8080
  krait route --decode https://a:8443,https://b:8443 --tls-ca ca.pem --listen :443 --tls-cert s.pem --tls-key s.key`,
		Args: takes(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.o.Servers, "decode", nil, "servers that answer: host:port, or http(s)://host:port, with a comma between them")
	flags.StringSliceVar(&f.o.Prefill, "prefill", nil, "machines that read prompts for all of them, as their --prefill has them")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8000", "address to wait at: host:port, or unix:PATH")
	flags.StringVar(&f.admin, "admin", "", "address for /metrics and /machines: host:port, or unix:PATH (default: nowhere)")
	flags.DurationVar(&f.o.Check, "check", time.Second, "how often each is asked whether it is ready")
	flags.DurationVar(&f.o.CheckTimeout, "check-timeout", 5*time.Second, "how long it may take to say so")
	flags.IntVar(&f.o.EjectAfter, "eject-after", 3, "failed answers in a row after which a server is left out")
	flags.DurationVar(&f.o.EjectFor, "eject-for", 10*time.Second, "for how long, the first time")
	flags.IntVar(&f.o.Requests, "max-requests", 1024, "requests that may be under way, half of them of one client; more get 429")
	flags.StringVar(&f.keyFile, "api-keys", "", "file with a line for each key that is taken: a name, and the key's SHA-256")
	bytesFlag(c, &f.o.Bodies, "max-bodies", 128<<20, "bytes of requests held at the same time, until their answers begin")
	flags.DurationVar(&f.o.Deadline, "deadline", 15*time.Minute, "how long a request may take, with what servers let it wait")
	f.drain.add(c)
	f.hosts.add(c)
	flags.BoolVar(&f.insecure, "insecure", false, "let other machines ask servers that need no key")
	flags.StringVar(&f.server.cert, "tls-cert", "", "file with the router's certificate, PEM")
	flags.StringVar(&f.server.key, "tls-key", "", "file with its key, PEM")
	flags.StringVar(&f.server.ca, "tls-client-ca", "", "file with certificates that must have signed those of clients, PEM")
	flags.StringVar(&f.servers.ca, "tls-ca", "", "file with certificates that have signed those of servers with https, PEM (default: the system's)")
	flags.BoolVar(&f.prefillTLS.on, "prefill-tls", false, "reach those of --prefill by TLS, with the system's certificates")
	flags.StringVar(&f.prefillTLS.ca, "prefill-tls-ca", "", "the same, with the certificates in this file, PEM")
	flags.StringVar(&f.prefillTLS.cert, "prefill-tls-cert", "", "file with a certificate of one's own, which they may want, PEM")
	flags.StringVar(&f.prefillTLS.key, "prefill-tls-key", "", "file with its key, PEM")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print the address only")
	return c
}

// read looks at the flags.
func (f *routeFlags) read() error {
	switch {
	case len(f.o.Servers) == 0:
		return errors.New("--decode ADDR,ADDR is missing: the servers to send requests to")
	case f.o.Check <= 0 || f.o.CheckTimeout <= 0 || f.o.EjectFor <= 0 || f.o.Deadline <= 0:
		return errors.New("--check, --check-timeout, --eject-for and --deadline must be above 0")
	case f.o.EjectAfter < 1:
		return errors.New("--eject-after must be at least 1")
	case f.o.Requests < 2:
		return fmt.Errorf("--max-requests is %d; it must be at least 2, as a client has half of them at most", f.o.Requests)
	case f.o.Bodies < 16<<20:
		return fmt.Errorf("--max-bodies is %d; it must be at least 16MiB, as a client has half at most and a request may have 4 MiB", f.o.Bodies)
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

// run routes until the command is ended.
func (f *routeFlags) run(c *cobra.Command) error {
	if err := f.read(); err != nil {
		return err
	}
	config, err := f.server.server()
	if err != nil {
		return err
	}
	l, shown, err := listenAt("--listen", f.listen, config)
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
	if !f.quiet {
		f.o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	}
	r, err := route.New(f.o)
	if err != nil {
		return err
	}
	defer r.Close()
	if names := r.Keyless(); len(names) > 0 {
		return fmt.Errorf("--listen %s: other machines reach it, and %s answers without a key: give --api-keys to the router or to all servers, or --insecure to let anyone ask", f.listen, names[0])
	}
	log := cmp.Or(f.o.Log, slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError})))
	defer onHangup(func() { reloadKeys(f.keyFile, r.SetKeys, log) })()
	if f.admin != "" {
		a, shown, err := listenAt("--admin", f.admin, nil)
		if err != nil {
			return err
		}
		h := &http.Server{Handler: r.Admin(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
		defer h.Close()
		go h.Serve(a)
		fmt.Fprintln(c.OutOrStdout(), "admin at", urlOf(shown, nil))
	}
	if !f.quiet {
		f.warn(c, r)
	}
	fmt.Fprintln(c.OutOrStdout(), "routing at", urlOf(shown, config))
	return listenUntil(c.Context(), l, r, r.Drain, f.drain, f.o.Log)
}

// warn names the machines that are not ready.
func (f *routeFlags) warn(c *cobra.Command, r *route.Router) {
	for _, m := range r.Machines() {
		if !m.Ready {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %s is not ready: %s\n", printable(m.Name), printable(m.Why))
		}
	}
}

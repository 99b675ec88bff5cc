package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/transfer"
	_ "github.com/krait-ml/krait/transfer/ucx" // the transport
	"github.com/spf13/cobra"
)

// Roles of a server.
const (
	roleBoth    = "both"    // prefill and decode: krait serve
	rolePrefill = "prefill" // prefill for other processes: krait serve prefill
	roleDecode  = "decode"  // decode, with prefill by other processes: krait serve decode
)

// serveFlags are the flags of the commands that serve a model.
type serveFlags struct {
	modelFlags
	role     string
	from     modelArg
	cache    prefixFlags
	address  addressFlags
	tls      tlsFlags
	insecure bool
	observe  observeFlags

	api       apiFlags               // but for prefill
	transfer  transfer.ServerOptions // of prefill
	tokenFile string
	remote    remoteFlags // of decode
}

func newServe() *cobra.Command {
	f := &serveFlags{role: roleBoth}
	c := f.command(&cobra.Command{
		Use:   "serve [flags] [DIR]",
		Short: "Serve a model over OpenAI's HTTP API",
		Long: `Serve answers clients of OpenAI's HTTP API: completions and chats, streamed or whole,
batched continuously (docs/serving.md). It listens on 127.0.0.1:8080 by default and prints
the address when it is ready; port 0 is any free port.

SIGTERM drains: /ready and new requests get 503, active requests continue for at most
--drain, and the port stays open until they end, and for at least --drain-notice, so that
load balancers see the 503. Ctrl-C does the same without --drain-notice. A second signal
ends the process at once.

An address that other machines can reach, or that a container publishes, requires --api-keys,
--tls-client-ca or --insecure. Add --tls-cert and --tls-key on networks that
others can read. Without keys, the Host header of a request must be an IP address, localhost
or one of --hosts. SIGHUP reloads keys and certificates.

serve prefill and serve decode split a deployment into prefill and decode servers
(docs/disaggregation.md).`,
		Example: `  krait serve ~/models/zamba2 --tp 2 --prefix-cache 2GiB
  krait serve ~/models/zamba2 --port 8443 --host 0.0.0.0 --api-keys keys --tls-cert s.pem --tls-key s.key
  krait serve decode ~/models/zamba2 --prefill 127.0.0.1:7070,127.0.0.1:7071`,
	})
	f.api.add(c)
	f.addSpeculate(c, draft.Auto)
	c.AddCommand(newServePrefill(), newServeDecode())
	return c
}

func newServePrefill() *cobra.Command {
	f := &serveFlags{role: rolePrefill}
	c := f.command(&cobra.Command{
		Use:   "prefill [flags] [DIR]",
		Short: "Prefill prompts for decode servers",
		Long: `Prefill computes the states of prompts for krait serve decode and krait generate --prefill.
They fetch the sequence's state and KV pages and continue with any number of ranks. A finished
prompt's state is held until the decode server fetches it, its connection closes, or --lease
expires. It listens on 127.0.0.1:7070 by default, and takes a --token-file in place of keys.
SIGTERM drains: new prompts are refused, so that decode servers and routers go elsewhere, and
those that it has continue for at most --drain. UCX transfers are not encrypted.
docs/disaggregation.md describes the protocol.`,
		Example: `  krait serve prefill ~/models/zamba2 --tp 2 --listen 127.0.0.1:7070`,
	})
	c.Flags().DurationVar(&f.transfer.Lease, "lease", 30*time.Second, "how long a finished prompt's state is held for the decode server")
	c.Flags().DurationVar(&f.transfer.Stall, "stall", 10*time.Second, "how long the decode server may be silent during a transfer")
	f.api.drain.addMost(c)
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the token that decode servers must send")
	return c
}

func newServeDecode() *cobra.Command {
	f := &serveFlags{role: roleDecode}
	c := f.command(&cobra.Command{
		Use:   "decode [flags] --prefill ADDR,ADDR [DIR]",
		Short: "Serve OpenAI's API, with prefill by other servers",
		Long: `Decode is krait serve with prefill by prefill servers (krait serve prefill). Prompts with a
common prefix go to the same prefill server. If that server fails, this process prefills the
prompt itself; while a server is unreachable, the others get its prompts. All flags of krait
serve apply.`,
		Example: `  krait serve decode ~/models/zamba2 --prefill 127.0.0.1:7070,127.0.0.1:7071`,
	})
	f.api.add(c)
	f.addSpeculate(c, draft.Auto)
	f.remote.add(c)
	return c
}

// command adds what all roles have.
func (f *serveFlags) command(c *cobra.Command) *cobra.Command {
	f.from = modelArg{kind: "DIR"}
	c.Args = takes(0, 1, "one DIR")
	c.RunE = func(c *cobra.Command, args []string) error { return f.run(c, args) }
	f.modelFlags.add(c)
	f.cache.add(c)
	f.from.add(c)
	port := 8080
	if f.role == rolePrefill {
		port = 7070
	}
	f.address.add(c, port)
	f.observe.add(c, "/metrics and /ready")
	flags := c.Flags()
	flags.IntVar(&f.options.Slots, "slots", 8, "maximum concurrent sequences (batch size)")
	flags.Float64Var(&f.options.PromptShare, "prompt-share", 0.33, "maximum share of step time for prefill during decode; 0: no limit")
	flags.BoolVar(&f.insecure, "insecure", false, "let other machines connect without key, token or certificate")
	flags.StringVar(&f.tls.cert, "tls-cert", "", "PEM file with the server's certificate")
	flags.StringVar(&f.tls.key, "tls-key", "", "PEM file with the key of --tls-cert")
	flags.StringVar(&f.tls.ca, "tls-client-ca", "", "PEM file with the CA that client certificates must be signed by")
	flags.Lookup("quiet").Usage = "print the address only"
	expert(c, "prompt-share", "tls-client-ca", "prefix-cache-host", "prefix-cache-dir", "prefix-policy", "state-codec", "threads", "states", "strategy", "math", "comm")
	return c
}

// check reads the files that flags name, and returns an error if flags are wrong together.
func (f *serveFlags) check(c *cobra.Command) (err error) {
	if f.role == rolePrefill {
		if f.transfer.Lease <= 0 || f.transfer.Stall <= 0 {
			return errors.New("--lease and --stall must be above 0")
		}
		if err := f.api.drain.check(); err != nil {
			return err
		}
		if f.transfer.Token, err = readToken("--token-file", f.tokenFile); err != nil {
			return err
		}
	} else if err := f.api.read(); err != nil {
		return err
	}
	if f.role == roleDecode {
		if err := f.remote.check(); err != nil {
			return err
		}
	}
	if err := cmp.Or(f.address.check(c), f.observe.check(c, f.quiet)); err != nil {
		return err
	}
	at, err := tryListen("--listen", f.address.listen)
	if err != nil {
		return err
	}
	if isOpen(at) && f.api.o.Keys == nil && f.transfer.Token == "" && f.tls.ca == "" && !f.insecure {
		return errOpen(f.address.listen, f.role)
	}
	if phase := f.options.Sharding.Phase; f.role != roleBoth && phase != "" && phase != f.role {
		return fmt.Errorf("--phase %s contradicts serve %s: leave --phase out", phase, f.role)
	}
	return nil
}

func (f *serveFlags) run(c *cobra.Command, args []string) error {
	dir, err := f.from.take(c, args)
	if err != nil {
		return err
	}
	if err := f.check(c); err != nil {
		return err
	}
	config, err := f.tls.server()
	if err != nil {
		return err
	}
	var endTraces func()
	defer onSIGHUP(func() {})() // also while the model loads
	if err := cmp.Or(f.cache.checkCodec(f.role == roleDecode), f.cache.options(&f.modelFlags)); err != nil {
		return err
	}
	if f.role != rolePrefill {
		f.options.Context, f.options.Memory = f.api.context, f.api.memory
	}
	f.api.watch(&f.modelFlags, f.role)
	if f.api.o.Trace, endTraces, err = f.observe.tracer("krait-" + f.role); err != nil {
		return err
	}
	defer endTraces()
	if f.role != roleBoth {
		f.options.Sharding.Phase = f.role
	}
	f.modelFlags.inform = func(text string) { f.observe.say(slog.LevelInfo, "device", text) }
	f.modelFlags.warn = func(text string) { f.observe.say(slog.LevelWarn, "model", text) }
	f.remote.by.warn = func(text string) { f.observe.say(slog.LevelWarn, "prefill", text) }
	m, err := f.open(c, dir)
	if err != nil {
		return err
	}
	defer m.Close()
	if f.role == rolePrefill {
		return f.servePrefill(c, m, config)
	}
	list, end, err := f.remote.open(c, m, f.quiet)
	if err != nil {
		return err
	}
	defer end() // before the model
	f.api.o.Prefill, f.api.o.PrefillNames = list, f.remote.addresses
	return f.serveAPI(c, m, config)
}

// errOpen refuses an address that other machines reach and nothing protects.
func errOpen(listen, role string) error {
	keys := "--api-keys"
	if role == rolePrefill {
		keys = "--token-file"
	}
	return fmt.Errorf("--listen %s: other machines can reach it without a key: give %s or --tls-client-ca, or --insecure to serve anyone", listen, keys)
}

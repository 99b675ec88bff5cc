package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
	_ "github.com/krait-ml/krait/transfer/ucx" // the transport
	"github.com/spf13/cobra"
)

func newServe() *cobra.Command {
	var f modelFlags
	var kept prefixFlags
	var o transfer.ServerOptions
	var tlsFiles tlsFlags
	var role, listen, tokenFile string
	var api apiFlags
	var elsewhere decodeFlags
	var insecure bool
	from := modelArg{kind: "DIR"}
	c := &cobra.Command{
		Use:   "serve [flags] [DIR]",
		Short: "Serve a model to clients of OpenAI's API, or prompts to other processes",
		Long: `Serve opens a model and answers clients of OpenAI's HTTP API: completions and
chats, streamed or whole, many at the same time (docs/serving.md). It waits at
127.0.0.1:8080 unless --listen says otherwise; the address is printed when it is
ready, and may end in :0 for any free port.

SIGTERM drains: /ready and new requests get 503, requests under way go on for --drain at
most, and the port stays open until they have ended, for --drain-notice at least, so that
load balancers see it. Ctrl-C does the same without --drain-notice. A second signal ends
the process at once.

An address that other machines reach, also one that a container publishes, needs --api-keys
or --tls-client-ca (certificates that clients must have); --insecure does without. Add
--tls-cert and --tls-key where others can listen. Without keys, requests must be for an IP
address, localhost or one of --hosts. SIGHUP reads the keys again.

With --role prefill it reads prompts for others instead, krait generate --prefill ADDR
and krait serve --role decode --prefill ADDR,ADDR, which go on from the states and
rows of caches that came of them, with as many ranks as they like;
docs/disaggregation.md walks through a request. What was kept of a prompt waits for
--lease to be fetched, and is freed then, or as soon as it was, or the other side is
gone. It waits at 127.0.0.1:7070 unless told, and has a --token-file in place of keys.
UCX does not encrypt what it carries.

With --role decode prompts that begin alike go to the same of --prefill. One that it
cannot read is read here; while it is not reached the others get its prompts.`,
		Example: `  krait serve ~/models/zamba2 --tp 2 --prefix-cache 2GiB
  krait serve ~/models/zamba2 --listen :8443 --api-keys keys --tls-cert s.pem --tls-key s.key
  krait serve --role prefill --tp 2 --listen 127.0.0.1:7070
  krait serve --role decode --prefill 127.0.0.1:7070,127.0.0.1:7071`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			switch {
			case role != "both" && role != "prefill" && role != "decode":
				return fmt.Errorf("--role %s; there are both, which is the default, prefill and decode", role)
			case o.Lease <= 0 || o.Stall <= 0:
				return errors.New("--lease and --stall must be longer than nothing")
			}
			if err := cmp.Or(ofRole(c, role), elsewhere.check(role)); err != nil {
				return err
			}
			if !c.Flags().Changed("listen") {
				listen = map[string]string{"both": "127.0.0.1:8080", "decode": "127.0.0.1:8080", "prefill": "127.0.0.1:7070"}[role]
			}
			if err := api.read(); err != nil {
				return err
			}
			f.options.Context = api.context
			if role != "prefill" {
				f.options.Memory = api.memory
			}
			if o.Token, err = readToken("--token-file", tokenFile); err != nil {
				return err
			}
			config, err := tlsFiles.server()
			if err != nil {
				return err
			}
			at, err := tryListen("--listen", listen)
			if err != nil {
				return err
			}
			if isOpen(at) && api.o.Keys == nil && o.Token == "" && tlsFiles.ca == "" && !insecure {
				return errOpen(listen, role)
			}
			defer onHangup(func() {})() // and not only when it serves
			if err := cmp.Or(kept.checkCodec(role == "decode"), kept.options(&f)); err != nil {
				return err
			}
			if role != "prefill" {
				api.watch(&f)
			}
			if phase := f.options.Sharding.Phase; role != "both" && phase != "" && phase != role {
				return fmt.Errorf("--phase %s, and --role %s: leave --phase out", phase, role)
			}
			if role != "both" {
				f.options.Sharding.Phase = role
			}
			m, err := f.open(c, dir)
			if err != nil {
				return err
			}
			defer m.Close()
			if role != "prefill" {
				list, end, err := elsewhere.open(c, m, f.quiet)
				if err != nil {
					return err
				}
				defer end() // before the model
				api.o.Prefill, api.o.PrefillNames = list, elsewhere.addresses
				return serveAPI(c, &f, m, &api, listen, config)
			}
			if !f.quiet {
				o.Log = logger(c)
				fmt.Fprintln(c.ErrOrStderr(), "model  ", describe(m, f.device.name))
			}
			return servePrefill(c, m, o, listen, config)
		},
	}
	f.add(c)
	kept.add(c)
	api.add(c)
	elsewhere.add(c)
	from.add(c)
	c.Flags().StringVar(&role, "role", "both", "what is served: both, prompts and answers; prefill, prompts for others; or decode, answers to prompts that --prefill reads")
	c.Flags().StringVar(&listen, "listen", "", "address to wait at: host:port, or unix:PATH (default 127.0.0.1:8080, and 7070 of --role prefill)")
	c.Flags().DurationVar(&o.Lease, "lease", 30*time.Second, "prefill: how long what was kept of a prompt waits to be fetched")
	c.Flags().DurationVar(&o.Stall, "stall", 10*time.Second, "prefill: how long the other side may take for its next step")
	c.Flags().IntVar(&f.options.Slots, "slots", 8, "requests, or prompts, that are run at the same time")
	c.Flags().Float64Var(&f.options.PromptShare, "prompt-share", 0.33, "how much of the time prompts may have while texts are written, which slows these to 1/(1-SHARE) at most; 0: all that they want")
	c.Flags().BoolVar(&insecure, "insecure", false, "let other machines ask without a key, a token or a certificate")
	c.Flags().StringVar(&tokenFile, "token-file", "", "prefill: file with a token that others must know")
	c.Flags().StringVar(&tlsFiles.cert, "tls-cert", "", "file with the server's certificate, PEM")
	c.Flags().StringVar(&tlsFiles.key, "tls-key", "", "file with its key, PEM")
	c.Flags().StringVar(&tlsFiles.ca, "tls-client-ca", "", "file with certificates that must have signed those of the others, PEM")
	return c
}

// errOpen refuses an address that other machines reach, where nothing says who may ask.
func errOpen(listen, role string) error {
	keys := "--api-keys"
	if role == "prefill" {
		keys = "--token-file"
	}
	return fmt.Errorf("--listen %s: other machines reach it, and could ask without a key: give %s or --tls-client-ca, or --insecure to answer anyone", listen, keys)
}

// servePrefill serves until the command is ended.
func servePrefill(c *cobra.Command, m *krait.Model, o transfer.ServerOptions, listen string, config *tls.Config) error {
	s, err := prefill.NewServer(m.Session(), o)
	if err != nil {
		return err
	}
	defer s.Close()
	l, shown, err := listenAt("--listen", listen, config)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), "prefill at", shown)
	defer context.AfterFunc(c.Context(), s.Close)()
	if err := s.Serve(l); err != nil && c.Context().Err() == nil {
		return err
	}
	return c.Context().Err()
}

// logger writes lines with the time to standard error.
func logger(c *cobra.Command) func(format string, args ...any) {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(c.ErrOrStderr(), time.Now().Format("15:04:05.000"), printable(fmt.Sprintf(format, args...)))
	}
}

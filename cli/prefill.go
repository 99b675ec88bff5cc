package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
	"github.com/spf13/cobra"
)

const prefillStall = 10 * time.Second

const ucxWarning = "UCX does not encrypt the states"

// prefillFlags name the prefill server of a command.
type prefillFlags struct {
	address, tokenFile string
	from               prefill.Options
	tls                tlsFlags
	warn               func(text string) // nil: to standard error
}

func (f *prefillFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.address, "prefill", "", "prefill server (krait serve prefill): host:port or unix:PATH")
	flags.StringVar(&f.from.Transport, "prefill-transport", "tcp", "transport of states: tcp, or ucx (RDMA, shared memory)")
	flags.BoolVar(&f.from.Strict, "prefill-only", false, "fail if the prompt would fall back to prefill in this process")
	flags.DurationVar(&f.from.Stall, "prefill-stall", prefillStall, "how long a transfer may be silent; pings and handshakes get a quarter")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token of the prefill server")
	flags.BoolVar(&f.tls.on, "tls", false, "connect to the prefill server with TLS and the system's CAs")
	flags.StringVar(&f.tls.ca, "tls-ca", "", "PEM file with the CA of the prefill server; implies --tls")
	flags.StringVar(&f.tls.cert, "tls-cert", "", "PEM file with the client certificate")
	flags.StringVar(&f.tls.key, "tls-key", "", "PEM file with the key of --tls-cert")
	expert(c, "prefill-transport", "prefill-only", "prefill-stall", "token-file", "tls", "tls-ca", "tls-cert", "tls-key")
}

// read reads the files that flags name.
func (f *prefillFlags) read() (err error) {
	if f.from.Token, err = readToken("--"+f.tls.prefix+"token-file", f.tokenFile); err != nil {
		return err
	}
	f.from.TLS, err = f.tls.client()
	return err
}

// open connects to the prefill server, or returns nil if no flag names one. A server with another
// model is an error; one that cannot be reached is not.
func (f *prefillFlags) open(c *cobra.Command, m *krait.Model, quiet bool) (*prefill.Client, error) {
	if f.address == "" {
		for _, name := range []string{"prefill-transport", "prefill-only", "prefill-stall", "token-file", "tls", "tls-ca", "tls-cert", "tls-key"} {
			if c.Flags().Changed(name) {
				return nil, fmt.Errorf("--%s needs --prefill", name)
			}
		}
		return nil, nil
	}
	if f.from.Stall <= 0 {
		return nil, errors.New("--prefill-stall must be above 0")
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	network, address := splitAddress(f.address)
	switch f.from.Address = address; {
	case network == "unix" && f.from.TLS != nil:
		return nil, fmt.Errorf("--prefill %s needs no TLS; leave out --%[2]stls, --%[2]stls-ca, --%[2]stls-cert and --%[2]stls-key", f.address, f.tls.prefix)
	case network == "unix":
		f.from.Dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) }
	}
	if f.from.TLS != nil && f.from.Transport == "ucx" && !quiet {
		if f.warn != nil {
			f.warn(ucxWarning)
		} else {
			fmt.Fprintln(c.ErrOrStderr(), "warning:", ucxWarning)
		}
	}
	p, err := prefill.New(m.Session(), f.from)
	if err != nil {
		return nil, err
	}
	if err := p.Connect(c.Context()); errors.Is(err, transfer.ErrDiffers) {
		p.Close()
		return nil, fmt.Errorf("--prefill %s: %w", f.address, err)
	}
	return p, nil
}

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

// prefillFlags say who reads prompts for a command.
type prefillFlags struct {
	address, tokenFile string
	from               prefill.Options
	tls                tlsFlags
}

func (f *prefillFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.address, "prefill", "", "have the prompt read by a krait serve --role prefill at this address: host:port, or unix:PATH")
	flags.StringVar(&f.from.Transport, "prefill-transport", "tcp", "how states come from there: tcp, or ucx (RDMA, shared memory)")
	flags.BoolVar(&f.from.Strict, "prefill-only", false, "fail where the prompt would be read here after all")
	flags.DurationVar(&f.from.Stall, "prefill-stall", prefillStall, "longest silence of a transfer; a ping has a quarter of it to be answered")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token that --prefill wants")
	flags.BoolVar(&f.tls.on, "tls", false, "reach --prefill by TLS, with the system's certificates")
	flags.StringVar(&f.tls.ca, "tls-ca", "", "the same, with the certificates in this file, PEM")
	flags.StringVar(&f.tls.cert, "tls-cert", "", "file with a certificate of one's own, which the server may want, PEM")
	flags.StringVar(&f.tls.key, "tls-key", "", "file with its key, PEM")
}

// read reads the files that flags name.
func (f *prefillFlags) read() (err error) {
	if f.from.Token, err = readToken("--token-file", f.tokenFile); err != nil {
		return err
	}
	f.from.TLS, err = f.tls.client()
	return err
}

// open makes what has prompts read, or nil where no flag asks for it, and greets the server, so
// that what does not fit is an error before anything else. One that cannot be reached is none.
func (f *prefillFlags) open(c *cobra.Command, m *krait.Model, quiet bool) (*prefill.Client, error) {
	if f.address == "" {
		for _, name := range []string{"prefill-transport", "prefill-only", "prefill-stall", "token-file", "tls", "tls-ca", "tls-cert", "tls-key"} {
			if c.Flags().Changed(name) {
				return nil, fmt.Errorf("--%s is about --prefill, which is not given", name)
			}
		}
		return nil, nil
	}
	if f.from.Stall <= 0 {
		return nil, errors.New("--prefill-stall must be longer than nothing")
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	network, address := splitAddress(f.address)
	switch f.from.Address = address; {
	case network == "unix" && f.from.TLS != nil:
		return nil, errors.New("--prefill unix:PATH needs no TLS; leave the flags for it out")
	case network == "unix":
		f.from.Dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) }
	}
	if f.from.TLS != nil && f.from.Transport == "ucx" && !quiet {
		fmt.Fprintln(c.ErrOrStderr(), "warning: UCX does not encrypt the states that it carries")
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

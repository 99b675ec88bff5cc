package cli

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/transfer/prefill"
	"github.com/spf13/cobra"
)

// remoteFlags name the prefill servers of a decode server.
type remoteFlags struct {
	addresses []string
	by        prefillFlags // without the address
}

func (f *remoteFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringSliceVar(&f.addresses, "prefill", nil, "prefill servers: host:port or unix:PATH, separated by commas")
	flags.StringVar(&f.by.from.Transport, "prefill-transport", "tcp", "transport of states: tcp, or ucx (RDMA, shared memory)")
	flags.BoolVar(&f.by.from.Strict, "prefill-only", false, "fail requests that would fall back to prefill in this process")
	flags.DurationVar(&f.by.from.Stall, "prefill-stall", prefillStall, "how long a transfer may be silent; pings and handshakes get a quarter")
	flags.StringVar(&f.by.tokenFile, "prefill-token-file", "", "file with the token of the prefill servers")
	prefillTLSFlags(c, &f.by.tls)
	expert(c, "prefill-transport", "prefill-only", "prefill-stall", "answer-tokens", "context", "deadline")
}

// prefillTLSFlags say how a command connects to prefill servers by TLS.
func prefillTLSFlags(c *cobra.Command, t *tlsFlags) {
	flags := c.Flags()
	t.prefix = "prefill-"
	flags.BoolVar(&t.on, "prefill-tls", false, "connect to prefill servers with TLS and the system's CAs")
	flags.StringVar(&t.ca, "prefill-tls-ca", "", "PEM file with the CA of the prefill servers; implies --prefill-tls")
	flags.StringVar(&t.cert, "prefill-tls-cert", "", "PEM file with the client certificate for prefill servers")
	flags.StringVar(&t.key, "prefill-tls-key", "", "PEM file with the key of --prefill-tls-cert")
	expert(c, "prefill-tls", "prefill-tls-ca", "prefill-tls-cert", "prefill-tls-key")
}

// open connects to the prefill servers; close ends that, before the model.
func (f *remoteFlags) open(c *cobra.Command, m *krait.Model, quiet bool) (list []krait.Prefiller, close func(), err error) {
	var clients []*prefill.Client
	close = func() {
		for _, p := range clients {
			p.Close()
		}
	}
	for _, address := range f.addresses {
		one := f.by
		one.address = address
		p, err := one.open(c, m, quiet)
		if err != nil {
			close()
			return nil, nil, err
		}
		clients, list = append(clients, p), append(list, p)
	}
	return list, close, nil
}

// check returns an error if the addresses are wrong, and reads the files of the flags.
func (f *remoteFlags) check() error {
	if len(f.addresses) == 0 {
		return errors.New("serve decode needs --prefill ADDR, its prefill servers")
	}
	for i, a := range f.addresses {
		if a == "" {
			return errors.New("--prefill has an empty address")
		}
		for _, b := range f.addresses[:i] {
			if a == b {
				return fmt.Errorf("--prefill has %s twice", a)
			}
		}
	}
	return f.by.read()
}

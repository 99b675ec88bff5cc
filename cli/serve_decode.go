package cli

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/transfer/prefill"
	"github.com/spf13/cobra"
)

// decodeFlags say who reads prompts for a server.
type decodeFlags struct {
	addresses []string
	by        prefillFlags // but for its address
}

func (f *decodeFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringSliceVar(&f.addresses, "prefill", nil, "decode: addresses of krait serve --role prefill, host:port or unix:PATH, with a comma between them")
	flags.StringVar(&f.by.from.Transport, "prefill-transport", "tcp", "decode: how states come from there: tcp, or ucx (RDMA, shared memory)")
	flags.BoolVar(&f.by.from.Strict, "prefill-only", false, "decode: fail where a prompt would be read here after all")
	flags.DurationVar(&f.by.from.Stall, "prefill-stall", prefillStall, "decode: longest silence of a transfer; a ping has a quarter of it for its answer")
	flags.StringVar(&f.by.tokenFile, "prefill-token-file", "", "decode: file with the token that those of --prefill want")
	flags.BoolVar(&f.by.tls.on, "prefill-tls", false, "decode: reach them by TLS, with the system's certificates")
	flags.StringVar(&f.by.tls.ca, "prefill-tls-ca", "", "decode: the same, with the certificates in this file, PEM")
	flags.StringVar(&f.by.tls.cert, "prefill-tls-cert", "", "decode: file with a certificate of one's own, which they may want, PEM")
	flags.StringVar(&f.by.tls.key, "prefill-tls-key", "", "decode: file with its key, PEM")
}

// open makes what has prompts read; close ends it, before the model.
func (f *decodeFlags) open(c *cobra.Command, m *krait.Model, quiet bool) (list []krait.Prefiller, close func(), err error) {
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

// check looks at the flags of a role.
func (f *decodeFlags) check(role string) error {
	if role != "decode" {
		return nil
	}
	if len(f.addresses) == 0 {
		return errors.New("--role decode needs --prefill ADDR, who reads its prompts")
	}
	for i, a := range f.addresses {
		if a == "" {
			return errors.New("--prefill has an address that is empty")
		}
		for _, b := range f.addresses[:i] {
			if a == b {
				return fmt.Errorf("--prefill has %s twice", a)
			}
		}
	}
	return f.by.read()
}

package cli

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// listenAt listens at an address, by TLS if there is a configuration, and returns it with the port
// that was chosen.
func listenAt(flag, address string, config *tls.Config) (l net.Listener, shown string, err error) {
	network, where := splitAddress(address)
	if network == "unix" {
		l, err = listenSocket(where)
	} else {
		l, err = net.Listen(network, where)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", flag, err)
	}
	if shown = l.Addr().String(); network == "unix" {
		shown = "unix:" + shown
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l, shown, nil
}

// splitAddress tells sockets of the file system from those of the network.
func splitAddress(text string) (network, address string) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return "unix", path
	}
	return "tcp", text
}

// urlOf is an address that [listenAt] showed, for those who ask by HTTP.
func urlOf(shown string, config *tls.Config) string {
	switch {
	case strings.HasPrefix(shown, "unix:"):
		return shown
	case config != nil:
		return "https://" + shown
	}
	return "http://" + shown
}

// tryListen returns the address that listenAt will listen at, or its error: before a model is
// loaded.
func tryListen(flag, address string) (net.Addr, error) {
	l, _, err := listenAt(flag, address, nil)
	if err != nil {
		return nil, err
	}
	return l.Addr(), l.Close()
}

// isOpen reports whether other machines reach an address. A container publishes the addresses of
// which that is so.
func isOpen(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && !t.IP.IsLoopback()
}

// hostFlags say which host names a server answers to.
type hostFlags struct {
	names []string
}

func (f *hostFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.names, "hosts", nil, "host names to answer to, beside IP addresses and localhost; *: any")
}

// checked reports whether requests for other names are refused: a site could let its own name lead
// here, and ask as a page of this server. Where clients show a key or a certificate it could not.
func (f *hostFlags) checked(a net.Addr, safe bool) bool {
	_, tcp := a.(*net.TCPAddr)
	return tcp && !slices.Contains(f.names, "*") && (len(f.names) > 0 || !safe)
}

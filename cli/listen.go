package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// addressFlags say where a server listens: --listen, or --host and --port.
type addressFlags struct {
	listen, host string
	port         int
}

func (f *addressFlags) add(c *cobra.Command, port int) {
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "", fmt.Sprintf("address: host:port, or unix:PATH (default 127.0.0.1:%d)", port))
	flags.StringVar(&f.host, "host", "127.0.0.1", "host name or IP address to listen on")
	flags.IntVar(&f.port, "port", port, "TCP port to listen on; 0: any free port")
}

// check sets the address.
func (f *addressFlags) check(c *cobra.Command) error {
	given := c.Flags().Changed
	switch {
	case !given("listen"):
		if f.port < 0 || f.port > 65535 {
			return fmt.Errorf("--port is %d; it must be from 0 to 65535", f.port)
		}
		f.listen = net.JoinHostPort(f.host, strconv.Itoa(f.port))
	case given("host") || given("port"):
		return errors.New("--listen excludes --host and --port: give one or the other")
	}
	return nil
}

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

// urlOf is an address that [listenAt] showed, for HTTP clients.
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

// isOpen reports whether other machines reach an address; containers publish such addresses only.
func isOpen(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && !t.IP.IsLoopback()
}

// hostFlags say which host names a server answers to.
type hostFlags struct {
	names []string
}

func (f *hostFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.names, "hosts", nil, "allowed Host names besides IP addresses and localhost; *: any")
}

// checked reports whether requests for other host names are rejected. Otherwise a web site could
// resolve its own name to this address (DNS rebinding); with keys or client certificates it cannot.
func (f *hostFlags) checked(a net.Addr, safe bool) bool {
	_, tcp := a.(*net.TCPAddr)
	return tcp && !slices.Contains(f.names, "*") && (len(f.names) > 0 || !safe)
}

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
)

// listenAt waits at an address, by TLS where there is a configuration, and says which it is, with a port that was free.
func listenAt(flag, address string, config *tls.Config) (l net.Listener, shown string, err error) {
	network, where := splitAddress(address)
	if l, err = net.Listen(network, where); err != nil {
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

// isLoopback reports whether only this machine reaches an address of the network.
func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// isOpen reports whether others do.
func isOpen(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && !t.IP.IsLoopback()
}

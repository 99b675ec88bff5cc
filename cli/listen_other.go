//go:build !unix || solaris || aix

package cli

import "net"

// listenSocket listens at a socket of the file system.
func listenSocket(path string) (net.Listener, error) { return net.Listen("unix", path) }

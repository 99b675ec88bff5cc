package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// tlsFlags name files with certificates.
type tlsFlags struct {
	cert, key, ca string
	on            bool   // of a client: with the system's certificates
	prefix        string // of the flags' names: prefill-, or none

	current *atomic.Pointer[tls.Config] // of a server, for new connections
}

// server returns the configuration of a server; nil: without TLS.
func (f *tlsFlags) server() (*tls.Config, error) {
	if f.cert == "" && f.key == "" {
		if f.ca != "" {
			return nil, errors.New("--tls-client-ca needs a certificate of the server: add --tls-cert and --tls-key")
		}
		return nil, nil
	}
	f.current = &atomic.Pointer[tls.Config]{}
	if err := f.read(); err != nil {
		return nil, err
	}
	c := f.current.Load().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current.Load(), nil }
	return c, nil
}

// read reads the files of a server for connections from now on.
func (f *tlsFlags) read() error {
	c, err := f.own()
	if err == nil && f.ca != "" {
		c.ClientAuth = tls.RequireAndVerifyClientCert
		c.SessionTicketsDisabled = true // a ticket would outlive its CA in the file
		c.ClientCAs, err = readCAs("--tls-client-ca", f.ca)
	}
	if err == nil {
		f.current.Store(c)
	}
	return err
}

// reloads reads the files of a server again.
func (f *tlsFlags) reloads() reloading {
	return reloading{"certificates", f.cert != "", f.read}
}

// client returns the configuration of a client; nil: without TLS.
func (f *tlsFlags) client() (*tls.Config, error) {
	if !f.on && f.ca == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}
	c, err := f.own()
	if err != nil || f.ca == "" {
		return c, err
	}
	c.RootCAs, err = readCAs("--"+f.prefix+"tls-ca", f.ca)
	return c, err
}

// own returns a configuration with the own certificate, if any.
func (f *tlsFlags) own() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	switch {
	case f.cert == "" && f.key == "":
		return c, nil
	case f.cert == "" || f.key == "":
		return nil, fmt.Errorf("--%[1]stls-cert and --%[1]stls-key need each other: give both", f.prefix)
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--%[1]stls-cert and --%[1]stls-key: %[2]w", f.prefix, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

func readCAs(flag, file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s %s has no certificate in PEM", flag, file)
	}
	return pool, nil
}

package openai

import (
	"io"

	"github.com/krait-ml/krait/serving/internal/api"
)

// Keys are the SHA-256 sums of the keys that a server accepts, each with its tenant's name.
type Keys = api.Keys

// LocalHost reports whether the Host of a request is an IP address or localhost: other names could
// be an attacker's (DNS rebinding).
func LocalHost(host string) bool { return api.Local(host) }

// ReadKeys reads lines of a tenant's name and the SHA-256 of its key in hexadecimal. Lines that
// begin with # are comments. A tenant may have several keys.
func ReadKeys(r io.Reader) (*Keys, error) { return api.ReadKeys(r) }

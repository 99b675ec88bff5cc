package openai

import (
	"io"

	"github.com/krait-ml/krait/serving/internal/api"
)

// Keys are the keys that a server takes, each of a tenant with a name. Only their SHA-256 is known.
type Keys = api.Keys

// ReadKeys reads lines of a tenant's name and the SHA-256 of its key in hexadecimal. Lines that
// begin with # are comments, and a tenant may have several keys.
func ReadKeys(r io.Reader) (*Keys, error) { return api.ReadKeys(r) }

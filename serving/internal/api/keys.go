package api

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Keys are the SHA-256 sums of the keys that a server accepts, each with its tenant's name.
type Keys struct {
	names []string
	sums  [][sha256.Size]byte
}

// ReadKeys reads lines of a tenant's name and the SHA-256 of its key in hexadecimal. Lines that
// begin with # are comments. A tenant may have several keys.
func ReadKeys(r io.Reader) (*Keys, error) {
	k := &Keys{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		sum, err := hex.DecodeString(words[len(words)-1])
		if len(words) != 2 || err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("line %d: it must be a name and the SHA-256 of a key, of 64 hexadecimal digits, as printf %%s KEY | sha256sum gives it", n)
		}
		k.names = append(k.names, words[0])
		k.sums = append(k.sums, [sha256.Size]byte(sum))
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(k.names) == 0 {
		return nil, fmt.Errorf("it has no key; add lines of NAME SHA256")
	}
	return k, nil
}

// keyHeader may have the key as well.
const keyHeader = "X-Api-Key"

// Tenant returns the tenant of a request's key, or "" if k is nil. Its time does not depend on the
// key.
func (k *Keys) Tenant(r *http.Request) (string, *Error) {
	if k == nil {
		return "", nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if given := r.Header.Get(keyHeader); key == "" && given != "" {
		scheme, key = "Bearer", given
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	found := -1
	for i := range k.sums {
		if subtle.ConstantTimeCompare(sum[:], k.sums[i][:]) == 1 {
			found = i
		}
	}
	if found < 0 || !strings.EqualFold(scheme, "Bearer") {
		code := "invalid_api_key"
		return "", &Error{Status: http.StatusUnauthorized, Type: "invalid_request_error", Code: &code,
			Message: "missing or unknown API key; send the header Authorization: Bearer KEY"}
	}
	return k.names[found], nil
}

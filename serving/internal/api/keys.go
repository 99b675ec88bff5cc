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

// Keys are the keys that a server takes, each of a tenant with a name. Only their SHA-256 is known.
type Keys struct {
	names []string
	sums  [][sha256.Size]byte
}

// ReadKeys reads lines of a tenant's name and the SHA-256 of its key in hexadecimal. Lines that
// begin with # are comments, and a tenant may have several keys.
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
		return nil, fmt.Errorf("there is no key")
	}
	return k, nil
}

// Tenant returns whose key a request has, and no name where there are no keys. How long it takes
// does not depend on the key.
func (k *Keys) Tenant(r *http.Request) (string, *Error) {
	if k == nil {
		return "", nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
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
			Message: "this server wants a key that it knows, as Authorization: Bearer KEY"}
	}
	return k.names[found], nil
}

package route

import (
	"errors"
	"fmt"
)

// errKeyless is why a check fails of a server that requires no key, where [Options.Keyed] is set.
var errKeyless = fmt.Errorf("%w: it answers without a key", errNotReady)

// Keyless returns the servers that [Options.Keyed] excludes, as of their last checks.
func (r *Router) Keyless() (names []string) {
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	for _, m := range r.servers.machines {
		if errors.Is(m.why, errKeyless) {
			names = append(names, m.name)
		}
	}
	return names
}

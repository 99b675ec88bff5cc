package route

import (
	"errors"
	"fmt"
)

// errKeyless is a check's of a server that answers without a key where [Options.Keyed] forbids it.
var errKeyless = fmt.Errorf("%w: it answers without a key", errNotReady)

// Keyless returns the servers that [Options.Keyed] keeps out, as of their last checks.
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

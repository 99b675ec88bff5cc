package route

import (
	"context"
	"io"
	"net/http"
)

// Keyless returns the servers that answer requests without a key. Those that are not reached are
// left out.
func (r *Router) Keyless(ctx context.Context) (names []string) {
	for _, m := range r.servers.machines {
		ctx, end := context.WithTimeout(ctx, r.o.CheckTimeout)
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.urls[m]+"/v1/models", nil)
		if err == nil {
			var a *http.Response
			if a, err = r.client.Do(q); err == nil {
				io.Copy(io.Discard, io.LimitReader(a.Body, 4<<10))
				a.Body.Close()
				if a.StatusCode == http.StatusOK {
					names = append(names, m.name)
				}
			}
		}
		end()
	}
	return names
}

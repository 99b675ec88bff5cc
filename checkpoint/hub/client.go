package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// ErrUnknown is the error of a name that the endpoint does not know.
var ErrUnknown = errors.New("is no repository of models")

// errRedirect is the error of a redirect that is not followed.
var errRedirect = errors.New("the redirect is refused")

// authorized sends the token with requests to the endpoint, and with no other: a redirect to
// another host, port or scheme goes without it.
type authorized struct {
	endpoint *url.URL
	token    string
	next     http.RoundTripper
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" && r.URL.Scheme == a.endpoint.Scheme && r.URL.Host == a.endpoint.Host {
		r = r.WithContext(r.Context()) // a copy: the caller's stays as it is
		r.Header = r.Header.Clone()
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.next.RoundTrip(r)
}

func newClient(endpoint *url.URL, token string) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // sizes and ranges are those of the files
	return &http.Client{
		Transport: authorized{endpoint, token, t},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case len(via) > 10:
				return fmt.Errorf("%w: more than 10 in a row", errRedirect)
			case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
				return fmt.Errorf("%w: it leads from https to %s", errRedirect, r.URL.Scheme)
			}
			return nil
		},
	}
}

// get sends a request for a path of the endpoint, from a byte on if from is above 0.
func (h *Hub) get(ctx context.Context, path, query string, from int64) (*http.Response, error) {
	u := h.endpoint.JoinPath(path)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "krait")
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := h.client.Do(r)
	var of *url.Error
	if errors.As(err, &of) { // whose URL may be signed
		host := h.Host()
		if u, e := url.Parse(of.URL); e == nil {
			host = u.Host
		}
		return nil, fmt.Errorf("%s: %w", host, of.Err)
	}
	return resp, err
}

// temporary is an error that a further attempt may not have.
type temporary struct {
	error
	after time.Duration // that the server asks to wait; 0: no time
}

func (t temporary) Unwrap() error { return t.error }

const (
	attempts = 6               // in a row that bring no byte
	longest  = 5 * time.Minute // that is waited for a server
)

// retry calls f until it succeeds or its error is not temporary, at most attempts times without
// progress in a row.
func (h *Hub) retry(ctx context.Context, f func() (progress bool, err error)) error {
	for failed := 0; ; {
		progress, err := f()
		var t temporary
		if err == nil || ctx.Err() != nil || !errors.As(err, &t) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if progress {
			failed = 0
		}
		if failed++; failed == attempts {
			return fmt.Errorf("%w (%d attempts)", err, attempts)
		}
		wait := max(t.after, h.backoff<<(failed-1))
		if wait > longest {
			return fmt.Errorf("%w, and asks to wait %s; run the command again then", err, wait.Round(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// refusal is the error of a response that has not what was asked for; it closes the response.
func (h *Hub) refusal(n Name, resp *http.Response) error {
	io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
	resp.Body.Close()
	host, status := resp.Request.URL.Host, resp.StatusCode
	code := resp.Header.Get("X-Error-Code")
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		return temporary{fmt.Errorf("%s answers %s", host, resp.Status), retryAfter(resp.Header.Get("Retry-After"))}
	case host != h.Host(): // the address it was sent to may have expired: the endpoint gives a new one
		return temporary{error: fmt.Errorf("%s answers %s", host, resp.Status)}
	case code == "GatedRepo" || status == http.StatusForbidden && code == "":
		if h.token == "" {
			return fmt.Errorf("%s is gated: accept its conditions at %s, and set HF_TOKEN to a token of that account", n.Repo, h.endpoint.JoinPath(n.Repo))
		}
		return fmt.Errorf("%s is gated, and the account of HF_TOKEN has no access: accept its conditions at %s", n.Repo, h.endpoint.JoinPath(n.Repo))
	case code == "RevisionNotFound":
		return fmt.Errorf("%s has no revision %q at %s; a revision is a branch, a tag or a commit", n.Repo, n.revision(), host)
	case code == "EntryNotFound":
		return fmt.Errorf("%s lists a file that is not there (%s)", host, resp.Status)
	case code == "RepoNotFound" || status == http.StatusNotFound || status == http.StatusUnauthorized && h.token == "":
		advice := "check the name"
		if h.token == "" {
			advice += ", or set HF_TOKEN"
		}
		return fmt.Errorf("%s %w at %s, or a private one; %s", n.Repo, ErrUnknown, host, advice)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%s rejects the token (%s); check HF_TOKEN", host, resp.Status)
	}
	return fmt.Errorf("%s answers %s", host, resp.Status)
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(text string) time.Duration {
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

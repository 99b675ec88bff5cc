package admit

import (
	"fmt"
	"time"
)

// Rate bounds a tenant's requests and tokens per minute; 0: no bound. An idle tenant accumulates up
// to one minute of its rate as burst.
type Rate struct {
	Requests int
	// Tokens counts prompts and max_tokens. Tokens that were not generated are returned when the
	// text ends.
	Tokens int
}

// bucket is a token bucket of one minute. Unlike that of golang.org/x/time/rate, it takes back what
// was not used.
type bucket struct {
	left float64
	at   time.Time // of left; zero: unused so far
}

// fill adds what has accumulated since the last fill.
func (b *bucket) fill(most int, now time.Time) {
	if b.at.IsZero() {
		b.left = float64(most)
	} else {
		b.give(most, float64(most)*now.Sub(b.at).Minutes())
	}
	b.at = now
}

// give returns n to the bucket.
func (b *bucket) give(most int, n float64) { b.left = min(b.left+n, float64(most)) }

// until returns the time until the bucket has n; 0: it has.
func (b *bucket) until(most, n int) time.Duration {
	return time.Duration(max(float64(n)-b.left, 0) / float64(most) * float64(time.Minute))
}

// takes counts a request and its tokens against the tenant's rate, or returns an error that says
// when to retry.
func (t *tenant) takes(r Rate, tokens int, now time.Time) error {
	if r.Tokens > 0 && tokens > r.Tokens {
		return tooLarge("prompt and max_tokens are %d tokens; the rate limit is %d per minute: ask for fewer", tokens, r.Tokens)
	}
	for _, b := range []struct {
		*bucket
		most, n int
		what    string
	}{{&t.requests, r.Requests, 1, "requests"}, {&t.tokens, r.Tokens, tokens, "tokens"}} {
		if b.most == 0 {
			continue
		}
		b.fill(b.most, now)
		if wait := b.until(b.most, b.n); wait > 0 {
			return &Error{Kind: RateExceeded, Message: fmt.Sprintf("the rate limit is %d %s per minute; retry later", b.most, b.what), Retry: wait}
		}
	}
	t.requests.left--
	t.tokens.left -= float64(tokens)
	return nil
}

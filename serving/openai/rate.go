package openai

import (
	"net/http"
	"time"
)

// Rate bounds what a tenant may ask for per minute; 0: as much as it likes. Who asked for nothing
// for a while may have a minute's at once.
type Rate struct {
	Requests int
	// Tokens are those of prompts, and those that may follow them. What did not follow is given back
	// when a text has ended.
	Tokens int
}

// bucket is what is left of a bound per minute. It fills as time goes.
type bucket struct {
	left float64
	at   time.Time // when that was so; zero: nothing was taken yet
}

// fill adds what the time since then gives of a bound.
func (b *bucket) fill(most int, now time.Time) {
	if b.at.IsZero() {
		b.left = float64(most)
	} else {
		b.give(most, float64(most)*now.Sub(b.at).Minutes())
	}
	b.at = now
}

// give adds to what is left.
func (b *bucket) give(most int, n float64) { b.left = min(b.left+n, float64(most)) }

// until is how long it takes until there are n; 0: they are there.
func (b *bucket) until(most, n int) time.Duration {
	return time.Duration(max(float64(n)-b.left, 0) / float64(most) * float64(time.Minute))
}

// takes counts a request with so many tokens against the tenant's rate, or says when it may come.
func (t *tenant) takes(r Rate, tokens int, now time.Time) error {
	if r.Tokens > 0 && tokens > r.Tokens {
		return badBody("the request may take %d tokens; a key may take %d per minute: ask for fewer", tokens, r.Tokens)
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
			e := coded(http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded", "a key may take %d %s per minute; ask again later", b.most, b.what)
			e.Retry = wait
			return e
		}
	}
	t.requests.left--
	t.tokens.left -= float64(tokens)
	return nil
}

package session

import (
	"context"
	"time"

	"github.com/krait-ml/krait/session/schedule"
)

// Prefiller prefills prompts on another machine. Package transfer/prefill has one.
type Prefiller interface {
	// Prefill returns the state of all tokens of a prompt but the last, prefilled elsewhere and
	// transferred to the session's engine. If it is nil, this machine prefills the prompt; its
	// Fallback may say why. Progress gets the number of tokens prefilled; it may be nil. An error
	// ends the request.
	Prefill(ctx context.Context, s *Session, salt string, prompt []int, progress func(tokens int)) (state schedule.Beginning, r RemotePrefill, err error)
	// Strict reports whether requests fail where this machine would prefill the prompt instead.
	Strict() bool
	// Down reports whether the other machine does not answer, so that another one should be asked.
	Down() bool
}

// RemotePrefill describes the prefill of a prompt on another machine.
type RemotePrefill struct {
	Tokens   int           // that were prefilled there
	Local    int           // of these, whose KV pages were here and were not transferred
	Bytes    int64         // transferred
	Pieces   int           // of the transfer
	Begun    time.Time     // when the prompt was sent
	Prefill  time.Duration // from the request to the answer that the prompt is prefilled
	Transfer time.Duration
	Fallback error // why this machine prefills the prompt instead; nil: it does not
}

// FreePages evicts prefixes from the cache until the device has pages for that many more tokens, or
// the cache is empty.
func (s *Session) FreePages(tokens int) {
	if s.cache != nil {
		s.cache.Shrink(func() bool { return s.hasPages(tokens) })
	}
}

// Closed reports whether Close was called.
func (s *Session) Closed() bool { return s.closed.Load() }

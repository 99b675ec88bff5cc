package admit

import (
	"fmt"
	"time"
)

// Kind is why a request is rejected.
type Kind int

// The kinds.
const (
	TooLarge     Kind = iota + 1 // it never fits
	TooLong                      // its prompt never fits
	Full                         // the queue is full: retry
	RateExceeded                 // the tenant's rate is exhausted: retry
	Draining                     // no requests are admitted any more
)

// Error rejects a request.
type Error struct {
	Kind    Kind
	Message string
	Retry   time.Duration // after which a request may be admitted; 0: never
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

const drainingText = "the server is being stopped and takes no new requests"

func tooLarge(format string, args ...any) error {
	return &Error{Kind: TooLarge, Message: fmt.Sprintf(format, args...)}
}

// Package ping checks the liveness of a prefill server, by the protocol of package transfer. It
// needs no token: the answer reveals nothing about the server.
package ping

import (
	"errors"
	"fmt"
	"net"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// Kinds of messages, all without a payload.
const (
	Question wire.Kind = 0x20 + iota
	Answer
	Draining // in place of the answer: the server takes no new prompts
)

// Ask sends a ping over a new connection and waits for the answer, or the connection's deadline. A
// stopped process accepts connections, but does not answer.
func Ask(c net.Conn) error {
	if err := wire.NewWriter(c).Write(Question); err != nil {
		return err
	}
	h, err := wire.NewReader(c, 0).Next()
	switch {
	case errors.Is(err, wire.ErrCorrupt):
		return fmt.Errorf("it is not a prefill server: %w", err)
	case err != nil:
		return fmt.Errorf("it does not answer: %w", err)
	case h.Kind == Draining:
		return errors.New("it is draining")
	case h.Kind != Answer:
		return fmt.Errorf("it answers by a message of kind %d: it is not a prefill server of this version", h.Kind)
	}
	return nil
}

//go:build !linux || (!amd64 && !arm64) || static

package ucx

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/krait-ml/krait/transfer/transport"
)

var errSystem = fmt.Errorf("UCX is used on Linux (amd64, arm64) only, and not by programs built with the tag static; this is %s on %s: take the transport tcp", runtime.GOOS, runtime.GOARCH)

// Version is an error: there is no UCX for this system, or program.
func Version() (string, error) { return "", errSystem }

// NewSender is an error.
func NewSender([]byte, time.Duration) (transport.Sender, error) { return nil, errSystem }

// Receiver takes what a sender sends.
type Receiver struct{}

// NewReceiver is an error.
func NewReceiver(time.Duration) (*Receiver, error) { return nil, errSystem }

// Address is never called.
func (*Receiver) Address() ([]byte, error) { return nil, errSystem }

// Receive is never called.
func (*Receiver) Receive(context.Context, uint32, []transport.Part, func() error) ([]uint32, error) {
	return nil, errSystem
}

// Close does nothing.
func (*Receiver) Close() {}

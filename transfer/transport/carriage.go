package transport

import (
	"fmt"
	"sync"
	"time"
)

// Carriage is a transport by senders and receivers. A package registers it, so that only programs
// that import the package link it.
type Carriage struct {
	// Available returns an error if the transport cannot be used.
	Available func() error
	// Sender makes a sender for the address of a receiver, Receiver a receiver.
	Sender   func(address []byte, stall time.Duration) (Sender, error)
	Receiver func(stall time.Duration) (AddressedReceiver, error)
}

// AddressedReceiver is a receiver that a sender reaches by an address.
type AddressedReceiver interface {
	Receiver
	Address() ([]byte, error)
}

var (
	carriages   = map[string]Carriage{}
	carriagesMu sync.Mutex
)

// Register adds a carriage.
func Register(name string, c Carriage) {
	carriagesMu.Lock()
	defer carriagesMu.Unlock()
	carriages[name] = c
}

// CarriageOf returns an available carriage.
func CarriageOf(name string) (Carriage, error) {
	carriagesMu.Lock()
	c, ok := carriages[name]
	carriagesMu.Unlock()
	if !ok {
		return c, fmt.Errorf("this program has no transport %.20q; there is tcp, and ucx where it imports transfer/ucx", name)
	}
	return c, c.Available()
}

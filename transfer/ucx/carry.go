//go:build linux && (amd64 || arm64) && !static

package ucx

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/krait-ml/krait/transfer/transport"
)

// mostInFlight bounds the parts that a sender sends at once.
const mostInFlight = 16

// tag identifies the parts of an answer.
func tag(number uint32, part int) uint64 { return uint64(number)<<32 | uint64(part) }

// sender sends to one receiver.
type sender struct{ w *worker }

// NewSender makes the sender for the address of a receiver. A send fails without progress for the
// time of stall.
func NewSender(address []byte, stall time.Duration) (transport.Sender, error) {
	if len(address) <= hostBytes {
		return nil, fmt.Errorf("a UCX address of %d bytes", len(address))
	}
	id := host()
	_, told := os.LookupEnv("UCX_TLS") // by what to send
	if !told && bytes.Equal(id[:], address[:hostBytes]) && id != [hostBytes]byte{} {
		if w, err := connected(here, address[hostBytes:], stall); err == nil {
			return &sender{w}, nil
		} // containers may not reach each other's memory
	}
	w, err := connected(away, address[hostBytes:], stall)
	if err != nil {
		return nil, err
	}
	return &sender{w}, nil
}

// connected makes a worker with an endpoint.
func connected(use int, address []byte, stall time.Duration) (*worker, error) {
	w, err := newWorker(use, stall)
	if err != nil {
		return nil, err
	}
	if err := w.connect(address); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (s *sender) Send(ctx context.Context, number uint32, parts []transport.Part) ([]uint32, error) {
	if s.w.handle == 0 {
		return nil, errClosed
	}
	sums := make([]uint32, len(parts))
	s.w.moved = time.Now()
	err := s.all(ctx, number, parts, sums)
	if err == nil {
		err = s.w.wait(ctx, 0)
	}
	if err != nil {
		s.w.close() // no transfer may read the memory after this
	}
	runtime.KeepAlive(parts)
	return sums, err
}

// all starts to send the parts, and computes their checksums meanwhile.
func (s *sender) all(ctx context.Context, number uint32, parts []transport.Part, sums []uint32) error {
	for i, p := range parts {
		data := p.Direct(p.At, p.Bytes)
		if data == nil {
			data = make([]byte, p.Bytes)
			if err := p.Read(data, p.At); err != nil {
				return err
			}
		}
		if err := s.w.send(tag(number, i), data); err != nil {
			return err
		}
		sums[i] = transport.Checksum(data)
		if err := s.w.wait(ctx, mostInFlight-1); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) Close() { s.w.close() }

// Receiver receives from a sender.
type Receiver struct{ w *worker }

// NewReceiver makes a receiver.
func NewReceiver(stall time.Duration) (*Receiver, error) {
	w, err := newWorker(receiving, stall)
	if err != nil {
		return nil, err
	}
	return &Receiver{w}, nil
}

// Address returns the address for a sender.
func (r *Receiver) Address() ([]byte, error) { return r.w.address() }

// Receive receives parts.
func (r *Receiver) Receive(ctx context.Context, number uint32, parts []transport.Part, ask func() error) ([]uint32, error) {
	if r.w.handle == 0 {
		return nil, errClosed
	}
	sums := make([]uint32, len(parts))
	r.w.moved = time.Now()
	err := r.all(number, parts, sums)
	if err == nil {
		err = ask()
	}
	if err == nil {
		err = r.w.wait(ctx, 0)
	}
	if err != nil {
		r.w.close()
	}
	runtime.KeepAlive(parts)
	return sums, err
}

// all prepares for the parts.
func (r *Receiver) all(number uint32, parts []transport.Part, sums []uint32) error {
	for i, p := range parts {
		data := p.Direct(p.At, p.Bytes)
		direct := data != nil
		if !direct {
			data = make([]byte, p.Bytes)
		}
		err := r.w.receive(tag(number, i), data, func() error {
			sums[i] = transport.Checksum(data)
			if direct {
				return nil
			}
			return p.Write(data, p.At)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close ends active transfers.
func (r *Receiver) Close() { r.w.close() }

//go:build linux && (amd64 || arm64) && !static

package ucx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"
)

// worker makes progress on transfers. It belongs to one goroutine at a time.
type worker struct {
	*library
	use      int
	handle   uintptr
	endpoint uintptr // 0: there is none
	stall    time.Duration
	under    []*message
	moved    time.Time // when the last one was done
}

// message is a message in flight.
type message struct {
	request uintptr
	data    []byte
	done    func() error // nil: nothing is to be done
}

func newWorker(use int, stall time.Duration) (*worker, error) {
	l, err := open()
	if err != nil {
		return nil, err
	}
	w := &worker{library: l, use: use, stall: stall}
	const serialized = 1 // any thread, but one at a time
	p := struct {
		mask uint64
		mode int32
		rest [256]byte
	}{mask: 1 << 0, mode: serialized}
	return w, l.try(workerCreate, l.contexts[use], uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&w.handle)))
}

// hostBytes of an address say on which host it is.
const hostBytes = 16

// host tells this host from others. Processes that do not know are on different ones.
func host() (id [hostBytes]byte) {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	copy(id[:], bytes.ReplaceAll(text, []byte("-"), nil))
	return id
}

// address is how others reach the worker.
func (w *worker) address() ([]byte, error) {
	var at *byte
	var n uint64
	if err := w.try(workerGetAddress, w.handle, uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	id := host()
	out := append(id[:], unsafe.Slice(at, n)...)
	w.call(workerReleaseAddress, w.handle, uintptr(unsafe.Pointer(at)))
	return out, nil
}

// connect makes an endpoint for a worker elsewhere.
func (w *worker) connect(address []byte) error {
	p := struct {
		mask       uint64
		address    *byte
		errors     int32
		handler    uintptr
		handlerArg uintptr
		userData   uintptr
		flags      uint32
		rest       [128]byte
	}{mask: 1 << 0, address: &address[0]}
	return w.try(epCreate, w.handle, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&w.endpoint)))
}

// requestParam says how something is done: see ucp_request_param_t.
type requestParam struct {
	mask, flags uint32
	rest        [128]byte
}

// send begins to send a message, and receive to take one. The data stays where it is until
// it is done.
func (w *worker) send(tag uint64, data []byte) error {
	p := requestParam{}
	r := w.call(tagSend, w.endpoint, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(tag), uintptr(unsafe.Pointer(&p)))
	return w.begun(tagSend, r, data, nil)
}

func (w *worker) receive(tag uint64, data []byte, done func() error) error {
	p := requestParam{}
	r := w.call(tagReceive, w.handle, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(tag), ^uintptr(0), uintptr(unsafe.Pointer(&p)))
	return w.begun(tagReceive, r, data, done)
}

// begun takes what a function returned.
func (w *worker) begun(f int, r uintptr, data []byte, done func() error) error {
	request, err := w.request(names[f], r)
	switch {
	case err != nil:
		return err
	case request != 0:
		w.under = append(w.under, &message{request, data, done})
	case done != nil:
		return done()
	}
	w.moved = time.Now()
	return nil
}

// wait waits until at most some messages are in flight. If it finds nothing to do, it soon
// leaves the processor to the other side, which may have the same ones.
func (w *worker) wait(ctx context.Context, most int) error {
	const patience, pause = 50, 50 * time.Microsecond
	for idle := 0; len(w.under) > most; {
		if uint32(w.call(workerProgress, w.handle)) != 0 {
			idle = 0
			if err := w.sweep(); err != nil {
				return err
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Since(w.moved) > w.stall {
			return fmt.Errorf("UCX moved nothing for %s", w.stall)
		}
		if idle++; idle > patience {
			time.Sleep(pause)
		}
	}
	return nil
}

// sweep takes out what is done.
func (w *worker) sweep() (first error) {
	kept := w.under[:0]
	for _, m := range w.under {
		status := int32(w.call(requestStatus, m.request))
		if status == inProgress {
			kept = append(kept, m)
			continue
		}
		w.call(requestFree, m.request)
		w.moved = time.Now()
		err := w.failure("the transfer", status)
		if err == nil && m.done != nil {
			err = m.done()
		}
		if first == nil {
			first = err
		}
	}
	clear(w.under[len(kept):])
	w.under = kept
	return first
}

// close ends all messages and the worker. Without progress afterwards no memory is read or
// written. A receiver that is in the middle of a rendezvous with one who is gone
// cannot take that back, and UCX does not destroy it then: its worker stays, without a use.
func (w *worker) close() {
	if w.handle == 0 {
		return
	}
	for _, m := range w.under {
		w.call(requestCancel, w.handle, m.request)
	}
	for end := time.Now().Add(100 * time.Millisecond); len(w.under) > 0 && time.Now().Before(end); {
		w.call(workerProgress, w.handle)
		w.sweep()
	}
	if w.use != receiving || len(w.under) == 0 {
		w.call(workerDestroy, w.handle)
	}
	runtime.KeepAlive(w.under)
	w.handle, w.endpoint, w.under = 0, 0, nil
}

var errClosed = errors.New("it is closed")

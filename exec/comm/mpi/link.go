//go:build linux && (amd64 || arm64) && !static

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/krait-ml/krait/exec/comm"
)

// tag is that of all messages.
const tag = 7

// Link is a [comm.Link] of MPI. One locked thread calls the library: it sends, and polls for
// messages.
type Link struct {
	lib         *library
	rank, ranks int

	mu      sync.Mutex
	queue   []outgoing
	some    atomic.Int32 // its length
	asleep  atomic.Bool
	wake    chan struct{} // has room for one
	timer   *time.Timer
	started chan struct{}
	deliver func(from int, m comm.Message)
	lost    func(rank int, err error)

	closing   atomic.Bool
	finalized atomic.Bool // MPI_Finalize was called
	failed    bool
	end       time.Time // deadline for sending if the processes have failed
	said      bool      // that nothing follows was sent
	leaving   int       // number of others that have sent so
	ended     chan struct{}
	err       error
}

// outgoing is a message on its way.
type outgoing struct {
	to      int
	m       comm.Message
	request *uint64 // a number of 4 bytes, or an address
	pin     runtime.Pinner
}

// Join initializes MPI. All processes that were started together do it.
func Join(ctx context.Context) (*Link, error) {
	l := &Link{started: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	ready := make(chan error, 1)
	go l.run(ready)
	select {
	case err := <-ready:
		if err != nil {
			return nil, err
		}
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("MPI_Init does not return: not all processes have come (%w)", context.Cause(ctx))
	}
}

// Name is the library and its version.
func (l *Link) Name() string { return l.lib.name }

// Rank is the rank of this process.
func (l *Link) Rank() int { return l.rank }

// Ranks is the number of processes.
func (l *Link) Ranks() int { return l.ranks }

// open loads the library and initializes it.
func (l *Link) open() (err error) {
	// UCX, below MPICH, would take the signals of memory faults, which Go handles.
	if os.Getenv("UCX_HANDLE_ERRORS") == "" {
		os.Setenv("UCX_HANDLE_ERRORS", "none")
	}
	if l.lib, err = load(); err != nil {
		return err
	}
	var already, provided, rank, size int32
	l.lib.call(initialized, uintptr(unsafe.Pointer(&already)))
	if already != 0 {
		return errors.New("MPI is in use already; a process joins once")
	}
	if err := l.lib.check(initThread, l.lib.call(initThread, 0, 0, funneled, uintptr(unsafe.Pointer(&provided)))); err != nil {
		return err
	}
	if provided < funneled {
		return fmt.Errorf("%s allows no threads", l.lib.name)
	}
	l.lib.call(commSetErrhandler, l.lib.world, l.lib.returns)
	if err := l.lib.check(commRank, l.lib.call(commRank, l.lib.world, uintptr(unsafe.Pointer(&rank)))); err != nil {
		return err
	}
	if err := l.lib.check(commSize, l.lib.call(commSize, l.lib.world, uintptr(unsafe.Pointer(&size)))); err != nil {
		return err
	}
	l.rank, l.ranks = int(rank), int(size)
	if n := launched(); n > 1 && l.ranks == 1 {
		return fmt.Errorf("%d processes were started, and %s sees one: it is not the library of the launcher; name that in %s", n, l.lib.name, Variable)
	}
	return nil
}

// run is the thread.
func (l *Link) run(ready chan<- error) {
	runtime.LockOSThread() // for ever: MPI needs the same thread
	defer close(l.ended)
	err := l.open()
	ready <- err
	if err != nil {
		return
	}
	<-l.started
	if l.err = l.serve(); l.err != nil && !l.closing.Load() {
		for r := range l.ranks {
			if r != l.rank {
				l.lost(r, l.err)
			}
		}
	}
	if l.err == nil && !l.failed {
		l.finalized.Store(true)
		l.err = l.lib.check(finalize, l.lib.call(finalize))
	}
}

// Start begins to receive.
func (l *Link) Start(deliver func(from int, m comm.Message), lost func(rank int, err error)) {
	l.deliver, l.lost = deliver, lost
	close(l.started)
}

// Send queues a message.
func (l *Link) Send(to int, m comm.Message) {
	l.mu.Lock()
	l.queue = append(l.queue, outgoing{to: to, m: m})
	l.mu.Unlock()
	l.some.Add(1)
	l.rouse()
}

// left reports whether this process and the others have sent all: MPI is not finalized with
// messages that were not received.
func (l *Link) left(sent bool, now time.Time) bool {
	switch {
	case l.failed:
		return sent || now.After(l.end)
	case sent && !l.said:
		l.said = true
		for r := range l.ranks {
			if r != l.rank {
				l.Send(r, comm.Message{last})
			}
		}
		return l.ranks == 1
	}
	return sent && l.leaving == l.ranks-1
}

// last is a message of one byte: nothing follows.
const last = 1

// How long the thread polls before it sleeps, and how long it sleeps: messages cannot wake it.
const (
	eager    = 20 * time.Microsecond
	nap      = 20 * time.Microsecond // of the system's, to which it adds 50 or so
	restless = 200 * time.Millisecond
	sleep    = 2 * time.Millisecond // of Go's, which are no shorter than one
)

// serve sends and receives until the link is closed.
func (l *Link) serve() error {
	var under []outgoing
	last := time.Now()
	for {
		busy, err := l.receive()
		if err != nil {
			return err
		}
		if l.some.Load() > 0 {
			if under, err = l.send(under); err != nil {
				return err
			}
			busy = true
		}
		if under, err = l.sent(under); err != nil {
			return err
		}
		now := time.Now()
		if busy {
			last = now
			continue
		}
		if l.closing.Load() && l.left(len(under) == 0 && l.some.Load() == 0, now) {
			return nil
		}
		l.idle(now.Sub(last))
	}
}

// idle sleeps after a while without messages.
func (l *Link) idle(quiet time.Duration) {
	if quiet < eager {
		runtime.Gosched()
		return
	}
	if quiet < restless {
		t := syscall.NsecToTimespec(int64(nap))
		_ = syscall.Nanosleep(&t, nil) // a signal may end it
		return
	}
	l.timer.Reset(sleep)
	l.asleep.Store(true)
	if l.some.Load() == 0 {
		select {
		case <-l.wake:
		case <-l.timer.C:
		}
	}
	l.asleep.Store(false)
}

// rouse wakes the thread.
func (l *Link) rouse() {
	if l.asleep.Load() {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// send gives queued messages to MPI.
func (l *Link) send(under []outgoing) ([]outgoing, error) {
	l.mu.Lock()
	first := len(under)
	under = append(under, l.queue...)
	l.some.Add(-int32(len(l.queue)))
	clear(l.queue)
	l.queue = l.queue[:0]
	l.mu.Unlock()
	for i := first; i < len(under); i++ {
		o := &under[i]
		o.request = new(uint64)
		o.pin.Pin(&o.m[0])
		o.pin.Pin(o.request)
		code := l.lib.call(isend, uintptr(unsafe.Pointer(&o.m[0])), uintptr(len(o.m)), l.lib.bytes, uintptr(o.to), tag, l.lib.world, uintptr(unsafe.Pointer(o.request)))
		if err := l.lib.check(isend, code); err != nil {
			return under, err
		}
	}
	return under, nil
}

// sent drops messages that were sent.
func (l *Link) sent(under []outgoing) ([]outgoing, error) {
	kept := under[:0]
	for _, o := range under {
		var flag int32
		var status [statusBytes]byte
		if err := l.lib.check(test, l.lib.call(test, uintptr(unsafe.Pointer(o.request)), uintptr(unsafe.Pointer(&flag)), uintptr(unsafe.Pointer(&status)))); err != nil {
			return under, err
		}
		if flag == 0 {
			kept = append(kept, o)
			continue
		}
		o.pin.Unpin()
		comm.Recycle(o.m)
	}
	clear(under[len(kept):])
	return kept, nil
}

// receive receives a message, if one has arrived.
func (l *Link) receive() (bool, error) {
	var flag, count int32
	var status [statusBytes]byte
	code := l.lib.call(iprobe, uintptr(l.lib.any), tag, l.lib.world, uintptr(unsafe.Pointer(&flag)), uintptr(unsafe.Pointer(&status)))
	if err := l.lib.check(iprobe, code); err != nil || flag == 0 {
		return false, err
	}
	from := int(int32(binary.LittleEndian.Uint32(status[l.lib.source:])))
	if err := l.lib.check(getCount, l.lib.call(getCount, uintptr(unsafe.Pointer(&status)), l.lib.bytes, uintptr(unsafe.Pointer(&count)))); err != nil {
		return false, err
	}
	if count == 1 {
		var b [1]byte
		l.leaving++
		return true, l.lib.check(recv, l.lib.call(recv, uintptr(unsafe.Pointer(&b[0])), 1, l.lib.bytes, uintptr(from), tag, l.lib.world, uintptr(unsafe.Pointer(&status))))
	}
	if count < comm.Header || from < 0 || from >= l.ranks {
		return false, fmt.Errorf("rank %d sent a message of %d bytes", from, count)
	}
	m := comm.NewMessage(int(count) - comm.Header)
	code = l.lib.call(recv, uintptr(unsafe.Pointer(&m[0])), uintptr(count), l.lib.bytes, uintptr(from), tag, l.lib.world, uintptr(unsafe.Pointer(&status)))
	if err := l.lib.check(recv, code); err != nil {
		return false, err
	}
	l.deliver(from, m)
	return true, nil
}

// Close sends queued messages and finalizes MPI with the other processes. If they have failed it
// does not wait for them. It is an error if MPI_Finalize does not return, as that of MPICH 4.0 over
// UCX's TCP at times does not: the process must end.
func (l *Link) Close(within time.Duration, failed bool) error {
	l.failed = failed
	l.end = time.Now().Add(within)
	l.closing.Store(true)
	l.rouse()
	for {
		select {
		case <-l.ended:
			return l.err
		case <-time.After(within + finalizing):
			if l.finalized.Load() {
				return fmt.Errorf("%s does not return from %s; all messages had arrived, so results are complete", l.lib.name, names[finalize])
			}
		}
	}
}

// finalizing is how long MPI_Finalize may take.
const finalizing = 4 * time.Second

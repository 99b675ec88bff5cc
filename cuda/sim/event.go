package sim

import (
	"slices"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// event marks a place: the last op that recorded it, or the nodes before it if
// that was in a capture.
type event struct {
	*primary
	timing  bool
	closed  bool
	last    *op
	capture *capture
	tail    []*node
}

// theirs is the event if it is one of this machine that can be used.
func (d *Driver) theirs(call string, e driver.Event) (*event, error) {
	ev, ok := e.(*event)
	switch {
	case !ok || ev.Driver != d:
		return nil, foreign(call, e)
	case ev.closed:
		return nil, closedError(call, ev)
	}
	return ev, nil
}

func (s *stream) Record(e driver.Event) error {
	const call = "cuEventRecord"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	ev, err := s.theirs(call, e)
	if err != nil {
		return err
	}
	if ev.primary != s.primary {
		return driver.CUDA(call, driver.InvalidHandle).Because("an event of device %d cannot be recorded on device %d", ev.info.Index, s.info.Index)
	}
	ev.last, ev.capture, ev.tail = nil, s.capture, slices.Clone(s.tail)
	if s.capture == nil {
		ev.last = s.put(&task{name: call, marker: true})
	}
	return nil
}

// Wait waits for the event as it is recorded now, also on other devices.
func (s *stream) Wait(e driver.Event) error {
	const call = "cuStreamWaitEvent"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	ev, err := s.theirs(call, e)
	if err != nil {
		return err
	}
	switch {
	case ev.capture != nil:
		return s.join(call, ev)
	case ev.last == nil: // never recorded
		return nil
	case s.capture != nil:
		return s.capture.breaks(driver.CUDA(call, driver.CaptureIsolation).Because("the event was recorded outside the capture"))
	}
	s.put(&task{name: call, marker: true}).after = []*op{ev.last}
	return nil
}

func (e *event) Synchronize() error {
	const call = "cuEventSynchronize"
	if err := e.reached(call); err != nil {
		return err
	}
	defer e.mu.Unlock()
	if c := e.captures[thread()]; c != nil {
		return c.breaks(driver.CUDA(call, driver.CaptureUnsupported).Because("this thread captures a stream"))
	}
	if e.last == nil {
		return nil
	}
	return e.until(call, e.last)
}

// reached begins a call that needs an event recorded outside captures.
func (e *event) reached(call string) error {
	if err := e.enter(call); err != nil {
		return err
	}
	var err error
	switch {
	case e.closed:
		err = closedError(call, e)
	case e.capture != nil && !e.capture.ended:
		err = e.capture.breaks(driver.CUDA(call, driver.CapturedEvent))
	case e.capture != nil:
		err = driver.CUDA(call, driver.CapturedEvent)
	default:
		return nil
	}
	e.mu.Unlock()
	return err
}

func (e *event) Elapsed(since driver.Event) (time.Duration, error) {
	const call = "cuEventElapsedTime"
	if err := e.reached(call); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	from, err := e.theirs(call, since)
	if err != nil {
		return 0, err
	}
	switch {
	case from.primary != e.primary:
		return 0, driver.CUDA(call, driver.InvalidHandle).Because("events of devices %d and %d", from.info.Index, e.info.Index)
	case !from.timing || !e.timing:
		return 0, driver.CUDA(call, driver.InvalidHandle).Because("the event was not made for timing")
	case from.last == nil || e.last == nil:
		return 0, driver.CUDA(call, driver.InvalidHandle).Because("the event was never recorded")
	case !from.last.done || !e.last.done:
		return 0, driver.CUDA(call, driver.NotReady)
	}
	return e.last.at - from.last.at, nil
}

func (e *event) Close() error { return e.shut("cuEventDestroy_v2", e, &e.closed) }

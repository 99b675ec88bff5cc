package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// stream is a queue of work.
type stream struct {
	*primary
	lane    *lane
	closed  bool
	capture *capture // that the stream takes part in, or nil
	tail    []*node  // of the capture, after which the stream's next work comes

	launched, before bool // a kernel was put in last; and at the call before that
}

// begin begins a call that puts work into the stream.
func (s *stream) begin(call string) error {
	if err := s.enter(call); err != nil {
		return err
	}
	s.before, s.launched = s.launched, false
	var err error
	switch {
	case s.closed:
		err = closedError(call, s)
	case s.capture != nil && s.capture.broken != nil:
		err = s.capture.invalid(call)
	default:
		return nil
	}
	s.mu.Unlock()
	return err
}

// put puts a task into the stream, or into the graph that is captured.
func (s *stream) put(t *task) *op {
	if s.capture != nil {
		s.capture.add(s, t, s.tail)
		return nil
	}
	o := &op{task: t}
	s.push(s.lane, o)
	return o
}

// transfer is the simulated time of a copy.
func transfer(bytes int64) time.Duration {
	return 2*time.Microsecond + time.Duration(bytes/10) // 10 GB/s
}

// CopyIn reads pinned memory when it runs, and other memory now.
func (s *stream) CopyIn(dst driver.Ptr, src []byte) error {
	const call = "cuMemcpyHtoDAsync_v2"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if len(src) == 0 {
		return nil
	}
	if err := s.owns(call, dst, int64(len(src))); err != nil {
		return err
	}
	isPinned := s.isPinned(src)
	if !isPinned && s.capture != nil {
		return s.capture.breaks(driver.CUDA(call, driver.CaptureUnsupported).Because("the host memory is not pinned"))
	}
	if !isPinned {
		src = slices.Clone(src)
	}
	s.put(&task{name: call, about: aboutCopy(call, dst, 0, int64(len(src))), cost: transfer(int64(len(src))), work: func() error {
		if isPinned && !s.isPinned(src) {
			return errors.New("pinned memory was released before it was read")
		}
		return s.mem.Write(uint64(dst), src)
	}})
	return nil
}

// CopyOut writes pinned memory when it runs; for other memory it waits.
func (s *stream) CopyOut(dst []byte, src driver.Ptr) error {
	const call = "cuMemcpyDtoHAsync_v2"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if len(dst) == 0 {
		return nil
	}
	if err := s.owns(call, src, int64(len(dst))); err != nil {
		return err
	}
	isPinned := s.isPinned(dst)
	if !isPinned && s.capture != nil {
		return s.capture.breaks(driver.CUDA(call, driver.CaptureUnsupported).Because("the host memory is not pinned"))
	}
	o := s.put(&task{name: call, about: aboutCopy(call, 0, src, int64(len(dst))), cost: transfer(int64(len(dst))), work: func() error {
		if isPinned && !s.isPinned(dst) {
			return errors.New("pinned memory was released before it was written")
		}
		return s.mem.Read(uint64(src), dst)
	}})
	if isPinned {
		return nil
	}
	return s.until(call, o)
}

func (s *stream) Copy(dst, src driver.Ptr, bytes int64) error {
	const call = "cuMemcpyDtoDAsync_v2"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if bytes == 0 {
		return nil
	}
	for _, p := range []driver.Ptr{dst, src} {
		if err := s.owns(call, p, bytes); err != nil {
			return err
		}
	}
	if dst < src+driver.Ptr(bytes) && src < dst+driver.Ptr(bytes) { // CUDA leaves undefined what that copies
		return driver.CUDA(call, driver.InvalidValue).Because("%d bytes at %#x and at %#x overlap", bytes, uint64(src), uint64(dst))
	}
	s.put(&task{name: call, about: aboutCopy(call, dst, src, bytes), cost: transfer(bytes), work: func() error { return s.mem.Copy(uint64(dst), uint64(src), bytes) }})
	return nil
}

func (s *stream) CopyPeer(dst driver.Ptr, dstCtx driver.Context, src driver.Ptr, srcCtx driver.Context, bytes int64) error {
	const call = "cuMemcpyPeerAsync"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if bytes == 0 {
		return nil
	}
	for _, end := range []struct {
		p driver.Ptr
		c driver.Context
	}{{dst, dstCtx}, {src, srcCtx}} {
		c, ok := end.c.(*contextHandle)
		switch {
		case !ok || c.Driver != s.Driver:
			return foreign(call, end.c)
		case c.closed:
			return closedError(call, c)
		}
		if b := s.blocks.find(end.p); b != nil && b.p != c.primary {
			return driver.CUDA(call, driver.InvalidValue).Because("%#x is memory of device %d, not %d", uint64(end.p), b.p.info.Index, c.info.Index)
		}
		if err := c.owns(call, end.p, bytes); err != nil {
			return err
		}
	}
	s.put(&task{name: call, about: aboutCopy(call, dst, src, bytes), cost: transfer(bytes), work: func() error { return s.mem.Copy(uint64(dst), uint64(src), bytes) }})
	return nil
}

func (s *stream) Fill(dst driver.Ptr, value byte, bytes int64) error {
	const call = "cuMemsetD8Async"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if bytes == 0 {
		return nil
	}
	if err := s.owns(call, dst, bytes); err != nil {
		return err
	}
	s.put(&task{name: call, about: aboutCopy(call, dst, 0, bytes), cost: transfer(bytes), work: func() error { return s.mem.Fill(uint64(dst), value, bytes) }})
	return nil
}

func (s *stream) Synchronize() error {
	const call = "cuStreamSynchronize"
	if err := s.rest(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if q := s.lane.queue; len(q) > 0 {
		return s.until(call, q[len(q)-1])
	}
	s.order.waited(s.lane.clock, len(s.lanes) == 0)
	return nil
}

// Query lets one thing happen, so that those who ask again and again get on.
func (s *stream) Query() (bool, error) {
	const call = "cuStreamQuery"
	if err := s.rest(call); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	s.step()
	if s.lost != nil {
		return false, again(s.lost, call)
	}
	if len(s.lane.queue) > 0 {
		return false, nil
	}
	s.order.waited(s.lane.clock, len(s.lanes) == 0)
	return true, nil
}

// rest begins a call that must not be made on a captured stream, nor on another by a thread that
// captures.
func (s *stream) rest(call string) error {
	if err := s.begin(call); err != nil {
		return err
	}
	c := cmp.Or(s.capture, s.captures[thread()])
	if c == nil {
		return nil
	}
	defer s.mu.Unlock()
	why := fmt.Sprintf("stream %d is captured", s.lane.role)
	if s.capture == nil {
		why = "this thread captures another stream"
	}
	return c.breaks(driver.CUDA(call, driver.CaptureUnsupported).Because("%s", why))
}

// Close leaves what is in the queue to run.
func (s *stream) Close() error {
	err := s.shut("cuStreamDestroy_v2", s, &s.closed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.capture != nil {
		s.capture.breaks(driver.CUDA("cuStreamDestroy_v2", driver.CaptureInvalidated))
	}
	return err
}

package sim

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/krait-ml/krait/cuda/driver"
)

// primary is a device's primary context, which all share that open the device.
type primary struct {
	*Driver
	info  driver.DeviceInfo
	opens int
	used  int64
	peers map[*primary]bool // whose memory it may use
	roles int               // streams made so far
	lost  *driver.Error     // all calls return it from then on
	gone  bool              // the last context is closed
	live  map[any]thing

	loaded map[shape]bool // products whose kernels were loaded lazily
}

// contextHandle is one hold on a primary context.
type contextHandle struct {
	*primary
	closed bool
}

// thing is something that must be closed.
type thing struct {
	what, where string
	order       int
}

// enter begins a call: it takes the lock. If the call may not be made, it gives
// the lock back and says why.
func (p *primary) enter(call string) error {
	p.mu.Lock()
	err := p.allow(call)
	if err != nil {
		p.mu.Unlock()
	}
	return err
}

func (p *primary) allow(call string) error {
	switch on := p.threads[thread()]; {
	case p.gone:
		return driver.CUDA(call, driver.InvalidContext).Because("device %d is closed", p.info.Index)
	case on == nil:
		return driver.CUDA(call, driver.InvalidContext).Because("device %d: no context is bound to this thread", p.info.Index)
	case on != p:
		return driver.CUDA(call, driver.InvalidContext).Because("device %d: the context of device %d is bound to this thread", p.info.Index, on.info.Index)
	case p.lost != nil:
		return again(p.lost, call)
	}
	return nil
}

// enterAlone is enter for calls that CUDA forbids while the thread captures.
func (p *primary) enterAlone(call string) error {
	if err := p.enter(call); err != nil {
		return err
	}
	if c := p.captures[thread()]; c != nil {
		defer p.mu.Unlock()
		return c.breaks(driver.CUDA(call, driver.CaptureUnsupported))
	}
	return nil
}

// enterToFree is enterWithPeers for calls that give something back, which they do on
// a lost context, too: the lock is taken then, and err is the loss.
func (p *primary) enterToFree(call string) (locked bool, err error) {
	if err = p.enterWithPeers(call); err == nil {
		return true, nil
	}
	p.mu.Lock()
	if p.lost != nil {
		return true, err
	}
	p.mu.Unlock()
	return false, err
}

// again is the error of a call after the one that lost its context.
func again(lost *driver.Error, call string) error {
	e := *lost
	e.Call = call
	return &e
}

// made remembers a thing until it is closed.
func (p *primary) made(object any, format string, args ...any) {
	p.counts.made++
	p.live[object] = thing{what: fmt.Sprintf(format, args...), where: caller(), order: p.counts.made}
}

// caller is the line outside this package that made the call.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "cuda/sim.") || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "?"
		}
	}
}

func (p *primary) leaks() []string {
	var things []thing
	for _, t := range p.live {
		things = append(things, t)
	}
	slices.SortFunc(things, func(a, b thing) int { return a.order - b.order })
	var list []string
	for _, t := range things {
		list = append(list, fmt.Sprintf("device %d: %s made at %s", p.info.Index, t.what, t.where))
	}
	return list
}

// shut is Close for most objects. On a lost context it does its work, too, and
// returns the loss.
func (p *primary) shut(call string, object any, closed *bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *closed {
		return closedError(call, object)
	}
	err := p.allow(call)
	if err != nil && p.lost == nil && !p.gone {
		return err
	}
	*closed = true
	delete(p.live, object)
	return err
}

// shutAlone is shut for what waits for the device, which CUDA forbids while the thread captures.
func (p *primary) shutAlone(call string, object any, closed *bool) error {
	p.mu.Lock()
	c := p.captures[thread()]
	p.mu.Unlock()
	if c != nil && p.lost == nil {
		return c.breaks(driver.CUDA(call, driver.CaptureUnsupported))
	}
	return p.shut(call, object, closed)
}

// closedError is the error for the use of something after Close.
func closedError(call string, object any) error {
	name := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", object), "*sim."), "Handle")
	return driver.CUDA(call, driver.InvalidHandle).Because("the %s is closed", name)
}

// foreign is the error for an object of another implementation or machine.
func foreign(call string, object any) error {
	return driver.CUDA(call, driver.InvalidHandle).Because("%T is not of this machine", object)
}

func (c *contextHandle) Device() driver.DeviceInfo { return c.info }

func (c *contextHandle) Bind() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError("cuCtxSetCurrent", c)
	}
	c.threads[thread()] = c.primary
	return nil
}

func (c *contextHandle) Stream() (driver.Stream, error) {
	if err := c.enter("cuStreamCreate"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	s := &stream{primary: c.primary, lane: &lane{p: c.primary, role: c.roles}}
	c.roles++
	c.made(s, "stream %d", s.lane.role)
	return s, nil
}

func (c *contextHandle) Event(timing bool) (driver.Event, error) {
	if err := c.enter("cuEventCreate"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	e := &event{primary: c.primary, timing: timing}
	c.made(e, "event")
	return e, nil
}

func (c *contextHandle) EnablePeer(other driver.Context) error {
	const call = "cuCtxEnablePeerAccess"
	if err := c.enterAlone(call); err != nil {
		return err
	}
	defer c.mu.Unlock()
	o, ok := other.(*contextHandle)
	switch {
	case !ok || o.Driver != c.Driver:
		return foreign(call, other)
	case o.closed:
		return closedError(call, o)
	case !c.o.reaches(c.info.Index, o.info.Index):
		return driver.CUDA(call, driver.PeerUnsupported).Because("device %d and device %d", c.info.Index, o.info.Index)
	}
	c.peers[o.primary] = true
	return nil
}

func (c *contextHandle) Synchronize() error {
	const call = "cuCtxSynchronize"
	if err := c.enterAlone(call); err != nil {
		return err
	}
	defer c.mu.Unlock()
	for _, k := range c.captures {
		if slices.ContainsFunc(k.streams, func(s *stream) bool { return s.primary == c.primary }) {
			return k.breaks(driver.CUDA(call, driver.CaptureUnsupported))
		}
	}
	for _, l := range slices.Clone(c.lanes) {
		if l.p == c.primary && len(l.queue) > 0 {
			if err := c.until(call, l.queue[len(l.queue)-1]); err != nil {
				return err
			}
		}
	}
	if c.order != nil {
		c.order.waited(c.order.ran[c.primary], len(c.lanes) == 0)
	}
	return nil
}

// Close gives the context back. With the last one, what is left is a leak, and
// work that is left never runs.
func (c *contextHandle) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError("cuDevicePrimaryCtxRelease_v2", c)
	}
	c.closed = true
	delete(c.live, c)
	if c.opens--; c.opens > 0 {
		return nil
	}
	c.leaked = append(c.leaked, c.leaks()...)
	c.gone = true
	c.drop("closed its device")
	c.releaseAll()
	for id, on := range c.threads {
		if on == c.primary {
			delete(c.threads, id)
		}
	}
	c.devices[c.info.Index].primary = nil
	return nil
}

// drop forgets all work of the context: it is lost, or closed.
func (p *primary) drop(how string) {
	for _, l := range p.lanes {
		if l.p == p {
			for _, o := range l.queue {
				o.finish(p.now)
			}
			l.queue = nil
		}
	}
	p.sweep()
	for _, k := range p.captures {
		if k.origin.primary == p {
			k.end()
		}
	}
	for _, g := range p.groups {
		for _, m := range g.members {
			if m != nil && m.primary == p && m.gone == "" {
				m.gone = how
			}
		}
	}
	p.progress++
	p.wake.Broadcast()
}

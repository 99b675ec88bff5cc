//go:build linux && (amd64 || arm64)

package nvidia

import (
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// primary is a device's primary context, retained once.
type primary struct {
	*cuda
	info   driver.DeviceInfo
	device int32
	handle uintptr // 0 when closed
}

// Open retains the device's primary context.
func (d *cuda) Open(index int) (driver.Context, error) {
	devices, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(devices) {
		return nil, driver.CUDA("cuDeviceGet", driver.InvalidDevice).Because("device %d of %d", index, len(devices))
	}
	c := &primary{cuda: d, info: devices[index]}
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&c.device)), uintptr(index)); err != nil {
		return nil, err
	}
	if err := d.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c.handle)), uintptr(c.device)); err != nil {
		return nil, because(err, "%v", c.info)
	}
	return c, nil
}

func (c *primary) Device() driver.DeviceInfo { return c.info }

func (c *primary) Bind() error {
	if c.handle == 0 {
		return closed("cuCtxSetCurrent", "context")
	}
	return c.call(cuCtxSetCurrent, c.handle)
}

// current checks that c is bound to the calling thread: without, the driver
// would quietly use another context, or none.
func (c *primary) current(f symbol) error {
	if c.handle == 0 {
		return closed(c.names[f], "context")
	}
	var now uintptr
	if err := c.call(cuCtxGetCurrent, uintptr(unsafe.Pointer(&now))); err != nil {
		return err
	}
	if now != c.handle {
		return driver.CUDA(c.names[f], driver.InvalidContext).Because("device %d", c.info.Index)
	}
	return nil
}

// closed is the error for the use of something after Close.
func closed(call, what string) error {
	return driver.CUDA(call, driver.InvalidHandle).Because("the %s is closed", what)
}

// foreign is the error for an object of another implementation.
func foreign(call string, object any) error {
	return driver.CUDA(call, driver.InvalidHandle).Because("%T is not of this driver", object)
}

func (c *primary) MemInfo() (free, total int64, err error) {
	if err := c.current(cuMemGetInfo); err != nil {
		return 0, 0, err
	}
	return c.memInfo()
}

func (c *primary) memInfo() (free, total int64, err error) {
	err = c.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, err
}

func (c *primary) Alloc(bytes int64) (p driver.Ptr, err error) {
	if err := c.current(cuMemAlloc); err != nil {
		return 0, err
	}
	err = c.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes))
	if codeOf(err) == driver.OutOfMemory {
		if free, total, err2 := c.memInfo(); err2 == nil {
			return 0, because(err, "%s asked, %s of %s free on device %d", driver.Bytes(bytes), driver.Bytes(free), driver.Bytes(total), c.info.Index)
		}
	}
	return p, because(err, "%s asked on device %d", driver.Bytes(bytes), c.info.Index)
}

func (c *primary) Release(p driver.Ptr) error {
	if err := c.current(cuMemFree); err != nil {
		return err
	}
	return because(c.call(cuMemFree, uintptr(p)), "address %#x", uint64(p))
}

func (c *primary) AllocHost(bytes int64) ([]byte, error) {
	const portable = 1 // pinned for all devices
	if err := c.current(cuMemHostAlloc); err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	if err := c.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), portable); err != nil {
		return nil, because(err, "%s of pinned host memory asked", driver.Bytes(bytes))
	}
	b := unsafe.Slice((*byte)(p), bytes)
	c.pinned.add(b)
	return b, nil
}

func (c *primary) ReleaseHost(b []byte) error {
	if err := c.current(cuMemFreeHost); err != nil {
		return err
	}
	if !c.pinned.remove(b) {
		return driver.CUDA("cuMemFreeHost", driver.InvalidValue).Because("these %d bytes are not what AllocHost gave", len(b))
	}
	return c.call(cuMemFreeHost, address(b))
}

func (c *primary) Stream() (driver.Stream, error) {
	const nonBlocking = 1 // no order towards the default stream
	if err := c.current(cuStreamCreate); err != nil {
		return nil, err
	}
	s := newStream(c)
	if err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *primary) Event(timing bool) (driver.Event, error) {
	const disableTiming = 2
	if err := c.current(cuEventCreate); err != nil {
		return nil, err
	}
	flags := uintptr(disableTiming)
	if timing {
		flags = 0
	}
	e := &event{primary: c}
	if err := c.call(cuEventCreate, uintptr(unsafe.Pointer(&e.handle)), flags); err != nil {
		return nil, err
	}
	return e, nil
}

func (c *primary) EnablePeer(other driver.Context) error {
	if err := c.current(cuCtxEnablePeerAccess); err != nil {
		return err
	}
	o, ok := other.(*primary)
	if !ok {
		return foreign("cuCtxEnablePeerAccess", other)
	}
	if o.handle == 0 {
		return closed("cuCtxEnablePeerAccess", "other context")
	}
	if o.device == c.device {
		return nil
	}
	err := c.call(cuCtxEnablePeerAccess, o.handle, 0)
	if codeOf(err) == driver.PeerEnabled {
		return nil
	}
	return because(err, "from device %d to device %d", c.info.Index, o.info.Index)
}

func (c *primary) Synchronize() error {
	if err := c.current(cuCtxSynchronize); err != nil {
		return err
	}
	return c.call(cuCtxSynchronize)
}

func (c *primary) Close() error {
	if c.handle == 0 {
		return closed("cuDevicePrimaryCtxRelease_v2", "context")
	}
	c.handle = 0
	return c.call(cuDevicePrimaryCtxRelease, uintptr(c.device))
}

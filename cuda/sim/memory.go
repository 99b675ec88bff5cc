package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// block is an allocation of device memory.
type block struct {
	p     *primary
	at    driver.Ptr
	bytes int64
}

// blocks are all allocations, by address.
type blocks []*block

// find returns the block that an address lies in, or nil.
func (l blocks) find(at driver.Ptr) *block {
	i, found := slices.BinarySearchFunc(l, at, func(b *block, at driver.Ptr) int { return cmp.Compare(b.at, at) })
	if !found {
		i--
	}
	if i < 0 || at-l[i].at >= driver.Ptr(l[i].bytes) {
		return nil
	}
	return l[i]
}

func (p *primary) MemInfo() (free, total int64, err error) {
	if err := p.enter("cuMemGetInfo_v2"); err != nil {
		return 0, 0, err
	}
	defer p.mu.Unlock()
	return p.info.Memory - p.used, p.info.Memory, nil
}

func (p *primary) Alloc(bytes int64) (driver.Ptr, error) {
	const call = "cuMemAlloc_v2"
	if err := p.enterWithPeers(call); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	if bytes < 1 {
		return 0, driver.CUDA(call, driver.InvalidValue).Because("%d bytes asked", bytes)
	}
	p.counts.allocs++
	full := bytes > p.info.Memory-p.used || p.counts.allocs == p.o.FailAlloc
	var at uint64
	if !full {
		var err error
		if at, err = p.mem.Alloc(bytes); errors.Is(err, ptx.ErrOutOfMemory) {
			full = true
		} else if err != nil {
			panic(fmt.Sprintf("BUG: %v", err))
		}
	}
	if full {
		return 0, driver.CUDA(call, driver.OutOfMemory).Because("%s asked, %s of %s free on device %d",
			driver.Bytes(bytes), driver.Bytes(p.info.Memory-p.used), driver.Bytes(p.info.Memory), p.info.Index)
	}
	p.used += bytes
	b := &block{p: p, at: driver.Ptr(at), bytes: bytes}
	i, _ := slices.BinarySearchFunc(p.blocks, b.at, func(b *block, at driver.Ptr) int { return cmp.Compare(b.at, at) })
	p.blocks = slices.Insert(p.blocks, i, b)
	p.made(b, "allocation of %s", driver.Bytes(bytes))
	if p.o.Meter.dry() && p.o.Meter.Noise {
		if data, err := p.mem.SliceForWrite(at, bytes); err == nil {
			noise(data)
		}
	}
	return b.at, nil
}

// Release frees at once, so that work that still uses the memory faults.
func (p *primary) Release(at driver.Ptr) error {
	const call = "cuMemFree_v2"
	locked, err := p.enterToFree(call)
	if !locked {
		return err
	}
	defer p.mu.Unlock()
	b := p.blocks.find(at)
	if b == nil || b.at != at || b.p != p {
		return driver.CUDA(call, driver.InvalidValue).Because("address %#x is not what Alloc gave on device %d, or was released before", uint64(at), p.info.Index)
	}
	p.free(b)
	return err
}

func (p *primary) free(b *block) {
	if err := p.mem.Free(uint64(b.at)); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	i := slices.Index(p.blocks, b)
	p.blocks = slices.Delete(p.blocks, i, i+1)
	b.p.used -= b.bytes
	delete(b.p.live, b)
}

// releaseAll frees what the closed context left.
func (p *primary) releaseAll() {
	for _, b := range slices.Clone(p.blocks) {
		if b.p == p {
			p.free(b)
		}
	}
	p.pinned = slices.DeleteFunc(p.pinned, func(b pinned) bool { return b.p == p })
}

// owns checks that the device may use bytes of device memory.
func (p *primary) owns(call string, at driver.Ptr, bytes int64) error {
	if bytes < 0 {
		return driver.CUDA(call, driver.InvalidValue).Because("%d bytes", bytes)
	}
	b := p.blocks.find(at)
	switch {
	case b == nil:
		return driver.CUDA(call, driver.InvalidValue).Because("%#x is no address of device memory that is allocated", uint64(at))
	case b.p != p && !p.peers[b.p]:
		return driver.CUDA(call, driver.InvalidValue).Because("%#x is memory of device %d, to which device %d has no peer access", uint64(at), b.p.info.Index, p.info.Index)
	case int64(at-b.at)+bytes > b.bytes:
		return driver.CUDA(call, driver.InvalidValue).Because("%d bytes at %#x end %d after the allocation of %d bytes at %#x",
			bytes, uint64(at), int64(at-b.at)+bytes-b.bytes, b.bytes, uint64(b.at))
	}
	return nil
}

// pinned is pinned host memory.
type pinned struct {
	p *primary
	b []byte
}

// released is what pinned memory is overwritten with.
const released = 0xdb

func (p *primary) AllocHost(bytes int64) ([]byte, error) {
	const call = "cuMemHostAlloc"
	if err := p.enterWithPeers(call); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if bytes < 1 {
		return nil, driver.CUDA(call, driver.InvalidValue).Because("%d bytes asked", bytes)
	}
	b := make([]byte, bytes)
	p.pinned = append(p.pinned, pinned{p: p, b: b})
	p.made(&b[0], "pinned memory of %s", driver.Bytes(bytes))
	return b, nil
}

func (p *primary) ReleaseHost(b []byte) error {
	const call = "cuMemFreeHost"
	locked, err := p.enterToFree(call)
	if !locked {
		return err
	}
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.pinned, func(have pinned) bool { return len(b) == len(have.b) && &b[0] == &have.b[0] })
	if i < 0 {
		return driver.CUDA(call, driver.InvalidValue).Because("these %d bytes are not what AllocHost gave, or were released before", len(b))
	}
	for j := range b {
		b[j] = released
	}
	delete(p.pinned[i].p.live, &b[0])
	p.pinned = slices.Delete(p.pinned, i, i+1)
	return err
}

// isPinned says whether host memory lies in pinned memory.
func (d *Driver) isPinned(b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, have := range d.pinned {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(have.b)))
		if at >= from && at+uintptr(len(b)) <= from+uintptr(len(have.b)) {
			return true
		}
	}
	return false
}

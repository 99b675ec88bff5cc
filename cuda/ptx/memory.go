package ptx

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrOutOfMemory is what Alloc's error wraps when the limit is reached.
var ErrOutOfMemory = errors.New("out of device memory")

// Memory is a device's global memory with its shadow: which bytes have been
// written, and which threads have touched them in the running launch. Its
// methods may be called from several goroutines; launches in one memory run
// one after the other.
type Memory struct {
	mu          sync.Mutex
	limit, used int64
	pages       []*region // one for every pageBytes from globalBase on; nil in the gaps
	graves      []*region // freed, oldest first
	modules     map[*Module]*moduleState
	tick        uint64 // counts everything that orders accesses; never reset
	scratch     scratch
	// Unchecked memory holds zeros until it is written, and races in it are not seen:
	// it costs what is written to, and nothing for what is not.
	Unchecked bool
}

const (
	pageShift = 20
	pageBytes = 1 << pageShift
	// maxGraves is how many freed allocations are remembered.
	maxGraves = 1 << 16
)

// A region is a piece of memory that accesses are checked against: an
// allocation, a module's variable, or a block's shared memory.
type region struct {
	base    uint64
	size    uint64
	data    []byte
	written written // nil when every byte has been
	missing int64   // bytes that are not written; kept where written may become nil
	chunks  []chunk
	name    string // of a variable
	freed   bool
	stored  atomic.Bool // by a launch
}

// moduleState is what a module's variables are in one memory.
type moduleState struct {
	globals map[string]*region
	consts  *region
}

// NewMemory returns an empty memory in which limit bytes may be allocated.
func NewMemory(limit int64) *Memory {
	return &Memory{limit: limit, modules: map[*Module]*moduleState{}}
}

// Alloc returns the address of new bytes, aligned to 256. They are unwritten.
// Between allocations lie gaps, and the addresses of freed ones are not used
// again, so that stray accesses are caught.
func (m *Memory) Alloc(bytes int64) (addr uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if bytes < 0 {
		return 0, fmt.Errorf("allocation of %d bytes", bytes)
	}
	if bytes > m.limit-m.used {
		return 0, fmt.Errorf("%w: %d bytes wanted, %d of %d are free", ErrOutOfMemory, bytes, m.limit-m.used, m.limit)
	}
	m.used += bytes
	r := m.put(bytes, "")
	if !m.Unchecked {
		r.written, r.missing = newWritten(bytes), bytes
	}
	return r.base, nil
}

// put finds addresses for a new region, of zeros.
func (m *Memory) put(bytes int64, name string) *region {
	r := &region{
		base: globalBase + uint64(len(m.pages))<<pageShift, size: uint64(bytes), name: name,
		data: make([]byte, bytes),
	}
	if !m.Unchecked {
		r.chunks = make([]chunk, (bytes+chunkBytes-1)/chunkBytes)
	}
	for range max(1, (bytes+pageBytes-1)/pageBytes) {
		m.pages = append(m.pages, r)
	}
	m.pages = append(m.pages, nil)
	return r
}

// Free releases an allocation.
func (m *Memory) Free(addr uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(addr)
	switch {
	case r == nil || r.base != addr || r.name != "":
		return fmt.Errorf("free of %#x, where no allocation starts", addr)
	case r.freed:
		return fmt.Errorf("free of %#x, which was freed before", addr)
	}
	m.used -= int64(r.size)
	r.freed = true
	r.data, r.written, r.chunks = nil, nil, nil
	if m.graves = append(m.graves, r); len(m.graves) > maxGraves {
		m.forget(m.graves[0])
		m.graves = m.graves[1:]
	}
	return nil
}

func (m *Memory) forget(r *region) {
	for i := (r.base - globalBase) >> pageShift; i < uint64(len(m.pages)) && m.pages[i] == r; i++ {
		m.pages[i] = nil
	}
}

// find returns the region on addr's page: the one that addr is in, or is just
// past, or nil.
func (m *Memory) find(addr uint64) *region {
	if page := (addr - globalBase) >> pageShift; page < uint64(len(m.pages)) {
		return m.pages[page]
	}
	return nil
}

// lookup returns the live region that holds all n bytes at addr, or nil.
func (m *Memory) lookup(addr, n uint64) *region {
	r := m.find(addr)
	if r == nil || r.freed || addr-r.base > r.size || n > r.size-(addr-r.base) {
		return nil
	}
	return r
}

// where says why no allocation holds n bytes at addr.
func (m *Memory) where(addr, n uint64) string {
	r := m.find(addr)
	if r == nil && addr >= globalBase+pageBytes {
		r = m.find(addr - pageBytes) // the gap after it
	}
	after := m.find(addr + pageBytes)
	if s, at := generic(addr); s != spaceGlobal {
		return fmt.Sprintf("which is %s address %#x in a generic one", s, at)
	}
	switch {
	case r != nil && r.freed:
		return fmt.Sprintf("in the allocation of %d bytes at %#x, which was freed", r.size, r.base)
	case r != nil && addr < r.base+r.size:
		return fmt.Sprintf("%d bytes past the end of %s", addr+n-r.base-r.size, r)
	case r != nil:
		return fmt.Sprintf("%d bytes past the end of %s", addr-r.base-r.size, r)
	case after != nil && !after.freed:
		return fmt.Sprintf("%d bytes before %s", after.base-addr, after)
	}
	return "where nothing is allocated"
}

func (r *region) String() string {
	if r.name != "" {
		return fmt.Sprintf("the variable %s of %d bytes at %#x", r.name, r.size, r.base)
	}
	return fmt.Sprintf("the allocation of %d bytes at %#x", r.size, r.base)
}

// span finds bytes for the host.
func (m *Memory) span(what string, addr uint64, bytes int64) (*region, uint64, error) {
	if bytes < 0 {
		return nil, 0, fmt.Errorf("%s of %d bytes at %#x", what, bytes, addr)
	}
	r := m.lookup(addr, uint64(bytes))
	if r == nil {
		return nil, 0, fmt.Errorf("%s of %d bytes at %#x, %s", what, bytes, addr, m.where(addr, uint64(bytes)))
	}
	return r, addr - r.base, nil
}

// readable finds bytes that must all be written.
func (m *Memory) readable(what string, addr uint64, bytes int64) ([]byte, error) {
	r, off, err := m.span(what, addr, bytes)
	if err != nil {
		return nil, err
	}
	n := uint64(bytes)
	if r.written != nil {
		if i := r.written.firstUnwritten(off, n); i < n {
			return nil, fmt.Errorf("%s of %d bytes at %#x, of which byte %d has not been written (byte %d of %s)", what, bytes, addr, i, off+i, r)
		}
	}
	return r.data[off : off+n : off+n], nil
}

// writable finds bytes and marks them written.
func (m *Memory) writable(what string, addr uint64, bytes int64) ([]byte, error) {
	r, off, err := m.span(what, addr, bytes)
	if err != nil {
		return nil, err
	}
	n := uint64(bytes)
	r.markRange(off, n)
	return r.data[off : off+n : off+n], nil
}

// markRange marks any range written.
func (r *region) markRange(off, n uint64) {
	if r.written == nil {
		return
	}
	r.missing -= r.written.setRange(off, n)
	if r.missing == 0 {
		r.written = nil
	}
}

// unmarkRange marks any range unwritten.
func (r *region) unmarkRange(off, n uint64) {
	if r.written == nil {
		r.written = newWritten(int64(r.size))
		r.written.setRange(0, r.size)
	}
	r.missing += r.written.clearRange(off, n)
}

// Write copies from the host to the device.
func (m *Memory) Write(addr uint64, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dst, err := m.writable("write", addr, int64(len(data)))
	copy(dst, data)
	return err
}

// Read copies from the device to the host. All bytes must have been written.
func (m *Memory) Read(addr uint64, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	src, err := m.readable("read", addr, int64(len(data)))
	copy(data, src)
	return err
}

// Fill sets bytes to one value.
func (m *Memory) Fill(addr uint64, value byte, bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dst, err := m.writable("fill", addr, bytes)
	for i := range dst {
		dst[i] = value
	}
	return err
}

// Copy copies within the device. Bytes that have not been written stay so.
func (m *Memory) Copy(dst, src uint64, bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, i, err := m.span("copy from", src, bytes)
	if err != nil {
		return err
	}
	to, j, err := m.span("copy to", dst, bytes)
	if err != nil {
		return err
	}
	n := uint64(bytes)
	var holes []uint64
	if from.written != nil {
		for k := range n {
			if !from.written.has(i+k, 1) {
				holes = append(holes, k)
			}
		}
	}
	copy(to.data[j:j+n], from.data[i:i+n])
	to.markRange(j, n)
	for _, k := range holes {
		to.unmarkRange(j+k, 1)
	}
	return nil
}

// Slice returns a view of bytes for a simulated library that reads them. All
// must have been written. The view is good until the allocation is freed.
func (m *Memory) Slice(addr uint64, bytes int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readable("library's read", addr, bytes)
}

// SliceForWrite returns a view of bytes for a simulated library that writes
// all of them, and marks them written.
func (m *Memory) SliceForWrite(addr uint64, bytes int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writable("library's write", addr, bytes)
}

// module returns the module's variables in this memory, laid out and
// initialised on first use. They do not count as allocated.
func (m *Memory) module(mod *Module) *moduleState {
	if s := m.modules[mod]; s != nil {
		return s
	}
	s := &moduleState{globals: map[string]*region{}, consts: &region{size: uint64(mod.constBytes), data: make([]byte, mod.constBytes)}}
	for _, v := range mod.globals {
		r := m.put(int64(v.bytes), v.name)
		copy(r.data, v.init)
		s.globals[v.name] = r
	}
	for _, v := range mod.consts {
		copy(s.consts.data[mod.constOffsets[v.name]:], v.init)
	}
	for _, v := range mod.globals {
		mod.relocate(s, v, s.globals[v.name].data)
	}
	for _, v := range mod.consts {
		mod.relocate(s, v, s.consts.data[mod.constOffsets[v.name]:])
	}
	m.modules[mod] = s
	return s
}

package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// Meter counts what runs on a simulated machine. It is read and set while nothing runs.
type Meter struct {
	// Dry memory holds zeros, takes room only where it is written, and is not checked:
	// for models without weights, whose results mean nothing. Products of cuBLAS are not
	// computed then.
	Dry bool
	// Sample is for models that are too large to be computed: of launches with many blocks
	// some are interpreted ([ptx.Meter]), and none twice that differ in addresses alone.
	Sample bool
	Cheap  int64 // instructions of warps of launches that are not sampled
	// Noise fills memory that is allocated from now on with numbers of about 1, of
	// which experts are chosen as of tokens that differ.
	Noise bool
	// Done lists the work that ran, in order. To start again, clear it.
	Done []Done
	// Compiled is the kernels of the modules that were loaded, in order.
	Compiled []Compiled

	known map[string]ptx.Counts
	last  ptx.Counts
}

// Compiled is a kernel that a driver would have to compile, calls expanded.
type Compiled struct {
	Module, Kernel string
	Instrs         int
}

// Done is a launch, a copy or a product that has run.
type Done struct {
	For       string // what it is for, as the launch says
	Name      string // the kernel, or the call
	Kernel    bool
	Grid      [3]int
	Block     [3]int
	Shared    int  // bytes of a block, static ones included
	Dependent bool // launched to begin before the launch before had ended
	// Registers are those of a thread; 0: unknown.
	Registers int
	ptx.Counts
	// Chain is how many of what has run since the machine was made must have run one
	// after the other for this to begin, and this one: by streams, events and graphs.
	Chain int
}

// Forget lets the next launches be counted anew: what is in memory has changed so much
// that launches do other things than before.
func (m *Meter) Forget() { m.known = nil }

func newMemory(o *Options) *ptx.Memory {
	m := ptx.NewMemory(o.Memory * int64(o.Devices))
	m.Unchecked = o.Meter.dry()
	return m
}

func (m *Meter) dry() bool { return m != nil && m.Dry }

// count runs a task, and enters it if a meter is set.
func (d *Driver) count(o *op) error {
	m := d.o.Meter
	if m == nil {
		return o.work()
	}
	if o.marker {
		return o.work()
	}
	m.last = ptx.Counts{}
	if !m.Dry || o.about.product == 0 {
		if err := o.work(); err != nil {
			return err
		}
	}
	done := o.about.Done
	done.Counts = m.last
	if !done.Kernel {
		done.Counts = o.about.Counts
	}
	o.chain++
	done.Chain = o.chain
	m.Done = append(m.Done, done)
	return nil
}

// about is what a meter is told of a task.
type about struct {
	Done
	product int64 // operations
	touches accessed
}

// aboutCopy is a call that reads device memory, or writes it, or both.
func aboutCopy(call string, dst, src driver.Ptr, bytes int64) about {
	a := about{Done: Done{Name: call}, touches: accessed{loads: piece(src, bytes), stores: piece(dst, bytes)}}
	if src != 0 {
		a.Loads = moved(bytes)
	}
	if dst != 0 {
		a.Stores = moved(bytes)
	}
	return a
}

func moved(bytes int64) ptx.Access {
	return ptx.Access{Bytes: bytes, Distinct: bytes, Sectors: (bytes + 31) / 32, Least: (bytes + 31) / 32}
}

// aboutProduct is a product, which reads its operands, and what it adds to, and writes its result
// once.
func aboutProduct(c *driver.GemmCall) about {
	a := about{Done: Done{Name: "cublasGemmEx"}}
	loads, stores := int64(c.M*c.K+c.N*c.K)*int64(c.In.Bytes()), int64(c.M*c.N)*int64(c.Out.Bytes())
	if c.Accumulate {
		loads += stores
	}
	a.Loads, a.Stores = moved(loads), moved(stores)
	a.For, a.product = c.For, 2*int64(c.M)*int64(c.N)*int64(c.K)
	switch c.In {
	case driver.F32:
		a.Instrs = a.product / 64
	case driver.TF32:
		a.TF32 = a.product
	default:
		a.Matrix = a.product
	}
	return a
}

// metered runs a kernel and counts.
func (f *function) metered(l ptx.Launch, run func(ptx.Launch) error) error {
	m := f.module.o.Meter
	key := ""
	if m.Sample {
		key = f.key(&l)
		if c, ok := m.known[key]; ok {
			m.last = c
			return nil
		}
	}
	l.Meter = &ptx.Meter{Sample: m.Sample, Cheap: m.Cheap}
	if err := run(l); err != nil {
		return err
	}
	m.last = l.Meter.Counts
	if m.Sample && !l.Peers.Signals() {
		if m.known == nil {
			m.known = map[string]ptx.Counts{}
		}
		m.known[key] = m.last
	}
	return nil
}

// key is the same for launches that do the same to memory that lies elsewhere.
func (f *function) key(l *ptx.Launch) string {
	key := fmt.Sprintf("%s.%s %v %v %d", f.module.name, f.name, l.Grid, l.Block, l.Shared)
	seen := map[uint64]int{}
	for i := 0; i < len(l.Params); i += 8 {
		if i+8 > len(l.Params) {
			return key + fmt.Sprintf(" %x", l.Params[i:])
		}
		v := binary.LittleEndian.Uint64(l.Params[i:])
		if f.module.blocks.find(driver.Ptr(v)) == nil {
			key += fmt.Sprintf(" %x", v)
			continue
		}
		if _, ok := seen[v]; !ok {
			seen[v] = len(seen)
		}
		key += fmt.Sprintf(" @%d+%d", seen[v], v%256)
	}
	return key
}

// noise are numbers in bf16, and as f32 nearly the same.
func noise(data []byte) {
	x := uint32(1)
	for i := 0; i+2 <= len(data); i += 2 {
		x = x*1664525 + 1013904223
		binary.LittleEndian.PutUint16(data[i:], uint16(0x3f00|x>>25|x>>31<<15))
	}
}

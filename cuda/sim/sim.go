// Package sim implements package driver without a GPU: kernels are interpreted, libraries are
// simulated, and work is done as unkindly as CUDA's rules allow.
//
// # Order
//
// Work put into a stream does not run then, but when something waits for it or asks whether it is
// done, and in an order that a seeded scheduler chooses among all that streams, events and graphs
// leave open: it starves a stream here, prefers another there. What misses an event is found by a
// few seeds. With one goroutine a seed gives the same order every time. With Options.Ordered work
// that nothing orders, and that shares memory which one of them writes, is an error.
//
// A kernel may wait for stores by st.release.sys of another device's kernels ([ptx.Peers]): it runs
// when they are there, and comes after the work that made them.
//
// # Memory
//
// Memory is checked by package ptx: kernels may not leave allocations, nor read memory never
// written; neither may copies to the host, products and collectives, for which a GPU would give
// garbage. Memory released while work still uses it faults when the work runs. A call that
// allocates, frees or loads waits for what runs on the other devices of a group: where that waits
// for it in turn, it is an error after a while. Copies read and write pinned memory when they run;
// released pinned memory is overwritten.
//
// # Rules
//
// What CUDA leaves undefined or forgives is an error: a call on a thread without Bind, memory of
// another device without peer access, objects that are closed, misaligned workspaces and matrices
// of cuBLAS. A fault in a kernel ends the use of all devices by the process, as cuda.h says. A wait
// that nothing can end is an error after a while, and says why.
package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// Options describe the simulated machine. The zero value has one device of
// 1 GB.
type Options struct {
	Devices    int    // 0: 1
	Memory     int64  // bytes for each device, taken from the host when allocated; 0: 1e9
	Seed       uint64 // of the scheduler
	Capability [2]int // compute capability; 0: 8.0

	// Registers says how many registers a thread of a kernel of a module takes, 0 where that
	// is not known; nil: of none is. Launches of which a block takes more than there are fail.
	Registers func(module, kernel string, capability [2]int) int

	// Ordered makes it an error of work that it touches memory which other work touches,
	// one of them writing it, and nothing orders the two. It is not for a machine with
	// a Meter. Collectives of NCCL are not looked at.
	Ordered bool

	// Meter is told what runs; nil: not counted. See [Meter].
	Meter *Meter

	// Patience is how long a wait may last in which nothing can run, as for a
	// collective that another rank does not call. 0: 20 s.
	Patience time.Duration

	// Late is a device, counted from 1, that comes late to whatever allocates, frees
	// or loads: the others go ahead, if nothing holds them. 0: none.
	Late int

	// Peers says whether a device may reach another's memory; nil: each may.
	Peers func(from, to int) bool

	// LazyLoading loads kernels of cuBLAS when a product of their shape is first launched, as the
	// driver does unless CUDA_MODULE_LOADING is EAGER. See [Options.Late] for whom that waits.
	LazyLoading bool

	FailAlloc  int  // the Alloc, counted from 1 over all devices, that finds no memory; 0: none
	LoseDevice int  // the kernel, counted from 1 as they run, whose device is lost; 0: none
	NoBLAS     bool // cuBLAS is not installed
	NoNCCL     bool // NCCL is not installed
}

// Driver is a simulated machine. All its state is under one lock, also while a
// kernel is interpreted.
type Driver struct {
	o  Options
	mu sync.Mutex

	mem      *ptx.Memory // of all devices: addresses are unique
	blocks   blocks
	pinned   []pinned
	devices  []*device
	threads  map[int]*primary // to which each thread is bound
	captures map[int]*capture // of each thread
	groups   map[driver.UniqueID]*group
	leaked   []string      // by contexts that are closed
	fault    *driver.Error // of a kernel: no call of the process succeeds any more
	counts   struct{ allocs, kernels, ids, made, products int }

	scheduler
}

// device is a simulated GPU.
type device struct {
	info    driver.DeviceInfo
	primary *primary // nil while it is not open
}

// New makes a machine.
func New(o Options) *Driver {
	if o.Devices == 0 {
		o.Devices = 1
	}
	if o.Memory == 0 {
		o.Memory = 1e9
	}
	if o.Capability == [2]int{} {
		o.Capability = [2]int{8, 0}
	}
	if o.Patience == 0 {
		o.Patience = 20 * time.Second
	}
	d := &Driver{
		o:        o,
		mem:      newMemory(&o),
		threads:  map[int]*primary{},
		captures: map[int]*capture{},
		groups:   map[driver.UniqueID]*group{},
	}
	d.seed = o.Seed
	d.random = rand.New(rand.NewPCG(o.Seed, 0))
	d.wake.L = &d.mu
	if o.Ordered {
		d.order = &order{host: clock{}, flags: map[uint64]clock{}, ran: map[*primary]clock{}}
	}
	for i := range o.Devices {
		info := driver.DeviceInfo{
			Index: i, Name: "simulated", Capability: o.Capability, Memory: o.Memory,
			DependentLaunch: o.Capability[0] >= 9, HostReaches: true,
			SMs: 4, ClockKHz: 1000000, SharedMax: sharedMax(o.Capability), PCI: fmt.Sprintf("0000:%02x:00.0", i+1),
		}
		for j := range o.Devices {
			if i != j {
				ok := o.reaches(i, j)
				info.Links = append(info.Links, driver.Link{Device: j, Access: ok, Atomics: ok})
			}
		}
		d.devices = append(d.devices, &device{info: info})
	}
	return d
}

func (o *Options) reaches(from, to int) bool { return o.Peers == nil || o.Peers(from, to) }

// sharedMax is the most shared memory that a block may have.
func sharedMax(capability [2]int) int {
	switch {
	case capability[0] >= 9 && capability[0] <= 10:
		return 227 << 10
	case capability == [2]int{8, 0} || capability == [2]int{8, 7}:
		return 163 << 10
	case capability[0] >= 8:
		return 99 << 10
	case capability == [2]int{7, 5}:
		return 64 << 10
	}
	return 96 << 10
}

// Name is "cuda-sim".
func (d *Driver) Name() string { return "cuda-sim" }

// Versions says that the libraries are simulated.
func (d *Driver) Versions() []driver.Version {
	list := []driver.Version{{Name: "CUDA driver", Version: "simulated"}, {Name: "cuBLAS", Version: "simulated"}, {Name: "NCCL", Version: "simulated"}}
	if d.o.NoBLAS {
		list[1] = driver.Version{Name: "cuBLAS", Missing: notInstalled("cuBLAS")}
	}
	if d.o.NoNCCL {
		list[2] = driver.Version{Name: "NCCL", Missing: notInstalled("NCCL")}
	}
	return list
}

func notInstalled(library string) error {
	return &driver.Error{Call: "open " + library, Text: "it is not installed on the simulated machine", Kind: driver.ErrMissingLibrary}
}

// Devices lists the devices.
func (d *Driver) Devices() ([]driver.DeviceInfo, error) {
	var list []driver.DeviceInfo
	for _, v := range d.devices {
		list = append(list, v.info)
	}
	return list, nil
}

// Open retains a device's primary context.
func (d *Driver) Open(index int) (driver.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index < 0 || index >= len(d.devices) {
		return nil, driver.CUDA("cuDeviceGet", driver.InvalidDevice).Because("device %d of %d", index, len(d.devices))
	}
	if d.fault != nil {
		return nil, again(d.fault, "cuDevicePrimaryCtxRetain")
	}
	v := d.devices[index]
	if v.primary == nil {
		v.primary = &primary{Driver: d, info: v.info, peers: map[*primary]bool{}, live: map[any]thing{}}
	}
	v.primary.opens++
	c := &contextHandle{primary: v.primary}
	v.primary.made(c, "context")
	return c, nil
}

// Leaks lists what was not closed or released when its device's last context
// was closed, and all that is open now, with the place where it was made.
func (d *Driver) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	leaks := append([]string(nil), d.leaked...)
	for _, v := range d.devices {
		if v.primary != nil {
			leaks = append(leaks, v.primary.leaks()...)
		}
	}
	return leaks
}

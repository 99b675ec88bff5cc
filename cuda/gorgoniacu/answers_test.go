//go:build gorgonia_cu && linux && (amd64 || arm64)

package gorgoniacu_test

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// answers are what the stand-in's calls do, by name; arguments are those of the C
// functions.
var answers = map[string]func(f *fake, a *[11]uintptr) error{
	"cuDriverGetVersion": func(f *fake, a *[11]uintptr) error { store(a[0], int32(11080)); return nil },

	"cuDeviceGetCount": func(f *fake, a *[11]uintptr) error {
		list, err := f.on.Devices()
		store(a[0], int32(len(list)))
		return err
	},
	"cuDeviceGet": func(f *fake, a *[11]uintptr) error {
		if list, _ := f.on.Devices(); a[1] >= uintptr(len(list)) {
			return driver.CUDA("", driver.InvalidDevice)
		}
		store(a[0], int32(a[1]))
		return nil
	},
	"cuDeviceGetName": func(f *fake, a *[11]uintptr) error {
		copy(bytes(a[0], a[1]), f.info(a[2]).Name+"\x00")
		return nil
	},
	"cuDeviceTotalMem_v2":  func(f *fake, a *[11]uintptr) error { store(a[0], f.info(a[1]).Memory); return nil },
	"cuDeviceGetAttribute": deviceAttribute,
	"cuDeviceCanAccessPeer": func(f *fake, a *[11]uintptr) error {
		store(a[0], number(f.link(a[1], a[2]).Access))
		return nil
	},
	"cuDeviceGetP2PAttribute": func(f *fake, a *[11]uintptr) error {
		l := f.link(a[2], a[3])
		store(a[0], map[uintptr]int32{1: int32(l.Rank), 3: number(l.Atomics)}[a[1]])
		return nil
	},
	"cuDevicePrimaryCtxRetain": func(f *fake, a *[11]uintptr) error {
		c, err := f.on.Open(int(a[1]))
		f.mu.Lock()
		defer f.mu.Unlock()
		f.opened[int(a[1])] = append(f.opened[int(a[1])], c)
		store(a[0], contextHandle(int(a[1])))
		return err
	},
	"cuDevicePrimaryCtxRelease_v2": func(f *fake, a *[11]uintptr) error {
		c, err := f.contextOf(int(a[0]))
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.opened[int(a[0])] = f.opened[int(a[0])][:len(f.opened[int(a[0])])-1]
		f.mu.Unlock()
		return c.Close()
	},

	"cuCtxSetCurrent": func(f *fake, a *[11]uintptr) error {
		c, err := f.contextOf(int(a[0]) - 1)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.current[syscall.Gettid()] = int(a[0]) - 1
		f.mu.Unlock()
		return c.Bind()
	},
	"cuCtxSynchronize": in(func(f *fake, c driver.Context, a *[11]uintptr) error { return c.Synchronize() }),
	"cuCtxEnablePeerAccess": in(func(f *fake, c driver.Context, a *[11]uintptr) error {
		other, err := f.contextOf(int(a[0]) - 1)
		if err != nil {
			return err
		}
		return c.EnablePeer(other)
	}),

	"cuMemGetInfo_v2": in(func(f *fake, c driver.Context, a *[11]uintptr) error {
		free, total, err := c.MemInfo()
		store(a[0], free)
		store(a[1], total)
		return err
	}),
	"cuMemAlloc_v2": in(func(f *fake, c driver.Context, a *[11]uintptr) error {
		p, err := c.Alloc(int64(a[1]))
		store(a[0], p)
		return err
	}),
	"cuMemFree_v2": in(func(f *fake, c driver.Context, a *[11]uintptr) error { return c.Release(driver.Ptr(a[0])) }),

	"cuMemcpyHtoDAsync_v2": func(f *fake, a *[11]uintptr) error {
		return of[driver.Stream](f, a[3]).CopyIn(driver.Ptr(a[0]), bytes(a[1], a[2]))
	},
	"cuMemcpyDtoHAsync_v2": func(f *fake, a *[11]uintptr) error {
		return of[driver.Stream](f, a[3]).CopyOut(bytes(a[0], a[2]), driver.Ptr(a[1]))
	},
	"cuMemcpyDtoDAsync_v2": func(f *fake, a *[11]uintptr) error {
		return of[driver.Stream](f, a[3]).Copy(driver.Ptr(a[0]), driver.Ptr(a[1]), int64(a[2]))
	},
	"cuMemcpyPeerAsync": func(f *fake, a *[11]uintptr) error {
		to, err1 := f.contextOf(int(a[1]) - 1)
		from, err2 := f.contextOf(int(a[3]) - 1)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return of[driver.Stream](f, a[5]).CopyPeer(driver.Ptr(a[0]), to, driver.Ptr(a[2]), from, int64(a[4]))
	},
	"cuMemsetD8Async": func(f *fake, a *[11]uintptr) error {
		return of[driver.Stream](f, a[3]).Fill(driver.Ptr(a[0]), byte(a[1]), int64(a[2]))
	},

	"cuStreamCreate": in(func(f *fake, c driver.Context, a *[11]uintptr) error {
		if a[1] != 1 {
			return driver.CUDA("", driver.InvalidValue).Because("streams wait for the default stream, unless they are made with CU_STREAM_NON_BLOCKING")
		}
		s, err := c.Stream()
		if err == nil {
			f.put(a[0], s)
		}
		return err
	}),
	"cuStreamDestroy_v2":  func(f *fake, a *[11]uintptr) error { return of[driver.Stream](f, a[0]).Close() },
	"cuStreamSynchronize": func(f *fake, a *[11]uintptr) error { return of[driver.Stream](f, a[0]).Synchronize() },
	"cuStreamQuery": func(f *fake, a *[11]uintptr) error {
		done, err := of[driver.Stream](f, a[0]).Query()
		if err == nil && !done {
			return driver.CUDA("", driver.NotReady)
		}
		return err
	},
	"cuStreamWaitEvent": func(f *fake, a *[11]uintptr) error {
		return of[driver.Stream](f, a[0]).Wait(of[driver.Event](f, a[1]))
	},

	"cuEventCreate": in(func(f *fake, c driver.Context, a *[11]uintptr) error {
		e, err := c.Event(a[1]&2 == 0) // CU_EVENT_DISABLE_TIMING
		if err == nil {
			f.put(a[0], e)
		}
		return err
	}),
	"cuEventDestroy_v2": func(f *fake, a *[11]uintptr) error { return of[driver.Event](f, a[0]).Close() },
	"cuEventRecord": func(f *fake, a *[11]uintptr) error {
		return of[driver.Stream](f, a[1]).Record(of[driver.Event](f, a[0]))
	},
	"cuEventSynchronize": func(f *fake, a *[11]uintptr) error { return of[driver.Event](f, a[0]).Synchronize() },
	"cuEventElapsedTime": func(f *fake, a *[11]uintptr) error {
		d, err := of[driver.Event](f, a[2]).Elapsed(of[driver.Event](f, a[1]))
		store(a[0], float32(d.Seconds()*1e3))
		return err
	},

	"cuModuleLoadDataEx": in(loadModule),
	"cuModuleUnload":     func(f *fake, a *[11]uintptr) error { return of[*module](f, a[0]).Close() },
	"cuModuleGetFunction": func(f *fake, a *[11]uintptr) error {
		m, name := of[*module](f, a[1]), text((*byte)(pointer(a[2])))
		k, err := m.Function(name)
		if err != nil {
			return err
		}
		entry, _ := m.parsed.Entry(name)
		f.put(a[0], &function{k, entry})
		return nil
	},
	"cuFuncGetAttribute": func(f *fake, a *[11]uintptr) error {
		info, err := of[*function](f, a[2]).Attributes()
		store(a[0], map[uintptr]int32{0: int32(info.MaxThreads), 1: int32(info.Shared), 3: int32(info.Local), 4: int32(info.Registers)}[a[1]])
		return err
	},
	"cuLaunchKernel": launch,
}

// in is a call on the thread's context.
func in(call func(f *fake, c driver.Context, a *[11]uintptr) error) func(f *fake, a *[11]uintptr) error {
	return func(f *fake, a *[11]uintptr) error {
		c, err := f.context()
		if err != nil {
			return err
		}
		return call(f, c, a)
	}
}

// deviceAttribute knows those that are asked for, by the numbers of cuda.h.
func deviceAttribute(f *fake, a *[11]uintptr) error {
	info := f.info(a[2])
	var domain, bus, dev int32
	if _, err := fmt.Sscanf(info.PCI, "%x:%x:%x", &domain, &bus, &dev); err != nil {
		return err
	}
	known := map[uintptr]int32{
		13: int32(info.ClockKHz), 16: int32(info.SMs), 33: bus, 34: dev, 50: domain,
		75: int32(info.Capability[0]), 76: int32(info.Capability[1]),
	}
	n, ok := known[a[1]]
	if !ok {
		return driver.CUDA("", driver.InvalidValue)
	}
	store(a[0], n)
	return nil
}

// loadModule writes the compiler's complaints where the options say.
func loadModule(f *fake, c driver.Context, a *[11]uintptr) error {
	image := text((*byte)(pointer(a[1])))
	var log []byte
	for i := range a[2] {
		option, value := *(*int32)(pointer(a[3] + 4*i)), *(*uintptr)(pointer(a[4] + 8*i))
		switch option {
		case 5: // CU_JIT_ERROR_LOG_BUFFER
			log = bytes(value, 1)
		case 6: // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
			if log != nil {
				log = bytes(*(*uintptr)(pointer(a[4] + 8*(i-1))), value)
			}
		}
	}
	m, err := c.Module([]byte(image), "module")
	if err != nil {
		if n := copy(log, err.Error()); n < len(log) {
			log[n] = 0
		}
		return err
	}
	parsed, err := ptx.Parse("module", image)
	if err != nil {
		return err
	}
	f.put(a[0], &module{m, parsed})
	return nil
}

// launch puts the parameters, of which C has the addresses, into a block.
func launch(f *fake, a *[11]uintptr) error {
	k := of[*function](f, a[0])
	if a[10] != 0 {
		return driver.CUDA("", driver.InvalidValue)
	}
	l := driver.LaunchConfig{Shared: uint32(a[7]), Params: make([]byte, k.entry.ParamBytes())}
	for i := range 3 {
		l.Grid[i], l.Block[i] = uint32(a[1+i]), uint32(a[4+i])
	}
	for i, p := range k.entry.Params() {
		at := *(*uintptr)(pointer(a[9] + 8*uintptr(i)))
		copy(l.Params[p.Offset:], bytes(at, uintptr(p.Size)))
	}
	return of[driver.Stream](f, a[8]).Launch(k.Function, &l)
}

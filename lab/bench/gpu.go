package bench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/internal/quantile"
)

// gpu is a device bound to the calling thread, with events for timing.
type gpu struct {
	driver.Context
	stream     driver.Stream
	start, end driver.Event
	scratch    driver.Ptr // written between runs, to clear the chip's cache
	wash       int64
	warm, runs int
}

// onGPU runs f with the first device of a driver.
func onGPU(d driver.Driver, f func(g *gpu) error) error {
	devices, err := d.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return &driver.Error{Call: "open", Text: "no GPU found", Kind: driver.ErrNoDriver}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := d.Open(devices[0].Index)
	if err != nil {
		return err
	}
	defer c.Close()
	g := &gpu{Context: c, wash: 256 << 20, warm: 3, runs: 20}
	if simulated(d) {
		g.wash, g.warm, g.runs = 1<<10, 0, 1
	}
	if err := g.open(); err != nil {
		return err
	}
	err = f(g)
	g.close()
	return err
}

// simulated reports whether a driver's times mean nothing.
func simulated(d driver.Driver) bool { return d.Name() == "cuda-sim" }

func (g *gpu) open() error {
	err := g.Bind()
	if err == nil {
		g.stream, err = g.Stream()
	}
	if err == nil {
		g.start, err = g.Event(true)
	}
	if err == nil {
		g.end, err = g.Event(true)
	}
	if err == nil {
		g.scratch, err = g.Alloc(g.wash)
	}
	return err
}

// close releases what open took.
func (g *gpu) close() {
	_ = g.Release(g.scratch)
	_ = g.start.Close()
	_ = g.end.Close()
	_ = g.stream.Close()
}

// time returns the median time of work on the device.
func (g *gpu) time(work func() error) (time.Duration, error) {
	var list []time.Duration
	for i := range g.warm + g.runs {
		took, err := g.once(work)
		if err != nil {
			return 0, err
		}
		if i >= g.warm {
			list = append(list, took)
		}
	}
	return quantile.Median(list), nil
}

func (g *gpu) once(work func() error) (time.Duration, error) {
	if err := g.stream.Fill(g.scratch, 0, g.wash); err != nil {
		return 0, err
	}
	if err := g.stream.Record(g.start); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	if err := g.stream.Record(g.end); err != nil {
		return 0, err
	}
	if err := g.stream.Synchronize(); err != nil {
		return 0, err
	}
	return g.end.Elapsed(g.start)
}

// Bandwidth measures copies within the memory of a driver's first device, in bytes read and written
// per second.
func Bandwidth(d driver.Driver) (bytesPerSecond float64, err error) {
	err = onGPU(d, func(g *gpu) error {
		bytesPerSecond, err = g.bandwidth(simulated(d))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure memory bandwidth: %w", err)
	}
	return bytesPerSecond, nil
}

func (g *gpu) bandwidth(small bool) (float64, error) {
	free, _, err := g.MemInfo()
	if err != nil {
		return 0, err
	}
	n := min(1<<30, free/4)
	if small {
		n = 1 << 20
	}
	from, err := g.Alloc(n)
	if err != nil {
		return 0, err
	}
	defer g.Release(from)
	to, err := g.Alloc(n)
	if err != nil {
		return 0, err
	}
	defer g.Release(to)
	if err := g.stream.Fill(from, 1, n); err != nil {
		return 0, err
	}
	took, err := g.time(func() error { return g.stream.Copy(to, from, n) })
	if err != nil {
		return 0, err
	}
	return 2 * float64(n) / max(took, 1).Seconds(), nil
}

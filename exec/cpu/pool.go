package cpu

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/kernels"
)

// pool shares the units of a kernel among goroutines that live as long as the
// machine, so that a launch allocates nothing.
type pool struct {
	workers int // with the caller
	wake    chan struct{}
	job     job
}

// job is the launch under way.
type job struct {
	kernel *kernels.Kernel
	call   *kernels.Call
	units  int
	chunk  int
	next   atomic.Int64
	done   sync.WaitGroup
	failed atomic.Pointer[error]
}

func newPool(workers int, live *sync.WaitGroup) *pool {
	p := &pool{workers: workers, wake: make(chan struct{}, workers)}
	for range workers - 1 {
		live.Go(func() {
			debug.SetPanicOnFault(true) // see files.Guard
			for range p.wake {
				p.job.work()
				p.job.done.Done()
			}
		})
	}
	return p
}

func (p *pool) close() { close(p.wake) }

// run runs all units of the kernel, on all workers when it is wide.
func (p *pool) run(k *kernels.Kernel, c *kernels.Call, wide bool) error {
	j := &p.job
	j.kernel, j.call = k, c
	j.next.Store(0)
	j.failed.Store(nil)
	helpers := 0
	if wide {
		helpers = p.workers - 1
	}
	j.units = safeUnits(k, c)
	j.chunk = max(1, (j.units+4*helpers)/(4*helpers+1))
	j.done.Add(helpers)
	for range helpers {
		p.wake <- struct{}{}
	}
	j.work()
	j.done.Wait()
	if err := j.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// safeUnits: an empty result has no units, and kernels need not mind.
func safeUnits(k *kernels.Kernel, c *kernels.Call) int {
	if c.Results[0].Rows() == 0 {
		return 0
	}
	return k.Units(c)
}

// work takes chunks of units until none is left.
func (j *job) work() {
	defer func() {
		if r := recover(); r != nil {
			err := files.Recovered(r)
			j.failed.Store(&err)
		}
	}()
	for {
		hi := int(j.next.Add(int64(j.chunk)))
		lo := hi - j.chunk
		if lo >= j.units {
			return
		}
		j.kernel.Run(j.call, lo, min(hi, j.units))
	}
}

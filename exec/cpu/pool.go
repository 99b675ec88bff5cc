package cpu

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/spin"
	"github.com/krait-ml/krait/kernels"
)

// pool shares the units of a kernel among goroutines that live as long as the machine. A launch
// costs about a microsecond while they are awake, and allocates nothing.
type pool struct {
	helpers []*spin.Waiter // one for each worker but the caller
	caller  *spin.Waiter
	closed  atomic.Bool
	job     job

	wanted, finished func() bool // the conditions of helpers and of the caller
}

// job is the current launch. A worker may read it from taking a chunk until the chunk is done: the
// caller changes it only when all are.
type job struct {
	kernel *kernels.Kernel
	call   *kernels.Call
	cut    cut
	failed atomic.Pointer[error]

	_    cacheLine
	left atomic.Int64 // chunks to take; below 0: none
	_    cacheLine
	open atomic.Int64 // chunks that are not done
	_    cacheLine
}

// cacheLine keeps what is written by many apart from what is read by many; processors
// fetch two lines of 64 bytes at a time.
type cacheLine [128]byte

// newPool makes a pool of workers, the caller included. crowded: all pools have more workers than
// the process has processors.
func newPool(workers int, crowded bool, live *sync.WaitGroup) *pool {
	p := &pool{caller: spin.New(crowded)}
	p.wanted = func() bool { return p.job.left.Load() > 0 || p.closed.Load() }
	p.finished = func() bool { return p.job.open.Load() == 0 }
	for range workers - 1 {
		h := spin.New(crowded)
		p.helpers = append(p.helpers, h)
		live.Go(func() {
			debug.SetPanicOnFault(true) // see files.Guard
			for !p.closed.Load() {
				p.work()
				h.Wait(p.wanted)
			}
		})
	}
	return p
}

func (p *pool) close() {
	p.closed.Store(true)
	for _, h := range p.helpers {
		h.Wake()
	}
}

// launch runs a kernel with the given work, and first those before it, whose work is estimated by
// the bytes of scratch memory.
func (p *pool) launch(k *kernels.Kernel, c *kernels.Call, work int64) error {
	if k.Before != nil {
		before := work
		if k.Scratch != nil {
			before = int64(k.Scratch(c))
		}
		if err := p.launch(k.Before, c, before); err != nil {
			return err
		}
	}
	return p.run(k, c, work)
}

// run runs all units of the kernel, with the given work.
func (p *pool) run(k *kernels.Kernel, c *kernels.Call, work int64) error {
	units := safeUnits(k, c)
	cut := cutOf(units, 1+len(p.helpers), work)
	switch cut.chunks() {
	case 0:
		return nil
	case 1:
		k.Run(c, 0, units)
		return nil
	}
	j := &p.job
	j.kernel, j.call, j.cut = k, c, cut
	j.failed.Store(nil)
	j.open.Store(int64(cut.chunks()))
	j.left.Store(int64(cut.chunks())) // from here on helpers take part
	for _, h := range p.helpers[:min(len(p.helpers), cut.chunks()-1)] {
		h.Wake()
	}
	p.work()
	p.caller.Wait(p.finished)
	if err := j.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// safeUnits is the number of units, 0 where all results are empty, so that kernels need not check.
func safeUnits(k *kernels.Kernel, c *kernels.Call) int {
	if !slices.ContainsFunc(c.Results, func(t kernels.Tensor) bool { return t.Rows() > 0 }) {
		return 0
	}
	return k.Units(c)
}

// work takes chunks until none is left. A helper that comes late takes one of the
// next launch, or none.
func (p *pool) work() {
	j := &p.job
	for j.left.Load() > 0 {
		n := j.left.Add(-1)
		if n < 0 {
			return
		}
		j.run(j.cut.chunks() - 1 - int(n))
		if j.open.Add(-1) == 0 {
			p.caller.Wake()
		}
	}
}

// run runs a chunk.
func (j *job) run(chunk int) {
	defer func() {
		if r := recover(); r != nil {
			err := files.Recovered(r)
			j.failed.Store(&err)
		}
	}()
	j.kernel.Run(j.call, j.cut.begin(chunk), j.cut.begin(chunk+1))
}

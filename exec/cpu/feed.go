package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/kernels"
)

// feed has batches that the ranks run in their order while more are added.
type feed struct {
	m    *machine
	next func(exec.Await) []*exec.Work

	mu    sync.Mutex
	list  []*fed
	count atomic.Int64 // of the list
	ended atomic.Bool  // none is added
}

// fed is a batch of a feed.
type fed struct {
	*exec.Work
	open    atomic.Int64     // ranks of its replica in this process that have not run it
	outputs []kernels.Tensor // copied, as the next one takes their memory
}

// take returns the n-th batch, or nil: there is none. The first rank adds batches, and the others
// wait for them.
func (d *feed) take(r *rank, n int) *fed {
	if r.wait == nil {
		if n == len(d.list) {
			d.add(d.next(d.await))
		}
	} else {
		r.wait.Wait(func() bool { return d.count.Load() > int64(n) || d.ended.Load() || r.comm.Stopped() })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n < len(d.list) {
		return d.list[n]
	}
	return nil
}

// add adds batches.
func (d *feed) add(list []*exec.Work) {
	d.mu.Lock()
	for _, w := range list {
		f := &fed{Work: w}
		for _, r := range d.m.ranks {
			if r.s.Replica == w.Replica {
				f.open.Add(1)
			}
		}
		d.list = append(d.list, f)
	}
	d.mu.Unlock()
	d.count.Store(int64(len(d.list)))
	d.m.wake()
}

// await is an [exec.Await].
func (d *feed) await(n int) ([]kernels.Tensor, error) {
	f, first := d.list[n], d.m.ranks[0]
	d.m.caller.Wait(func() bool { return f.open.Load() == 0 || first.comm.Stopped() })
	return f.outputs, first.comm.Err()
}

// end ends the feed.
func (d *feed) end() {
	d.ended.Store(true)
	d.m.wake()
}

// follow runs the batches of a feed.
func (r *rank) follow(w work) {
	for n := 0; ; n++ {
		f := w.feed.take(r, n)
		if f == nil {
			return
		}
		if f.Replica != r.s.Replica {
			continue
		}
		r.prepare(f.Work)
		if !r.runSteps(r.steps, w, f.Work) {
			return
		}
		if r.gives && r.s.Last() {
			f.outputs = r.cloned(f.Work)
		}
		if f.open.Add(-1) == 0 {
			w.feed.m.caller.Wake()
		}
	}
}

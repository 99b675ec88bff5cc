package cpu

import (
	"runtime"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Workers run kernels as a rank of a machine does, for measurements.
type Workers struct {
	pool *pool
	live sync.WaitGroup
}

// NewWorkers starts n workers, the caller included; 0: GOMAXPROCS.
func NewWorkers(n int) *Workers {
	w := &Workers{}
	if n < 1 {
		n = runtime.GOMAXPROCS(0)
	}
	w.pool = newPool(n, n > runtime.GOMAXPROCS(0), &w.live)
	return w
}

// Run runs a launch with a cost for a batch, and grows its scratch memory. A panic of a kernel is
// an error, except where the caller runs all of it.
func (w *Workers) Run(k *kernels.Kernel, c *kernels.Call, cost graph.Cost, z graph.Sizes) error {
	if k.Scratch != nil {
		if n := k.Scratch(c); n > len(c.Scratch) {
			c.Scratch = kernels.NewScratch(n)
		}
	}
	return w.pool.launch(k, c, workOf(cost, z))
}

// Close stops the workers.
func (w *Workers) Close() {
	w.pool.close()
	w.live.Wait()
}

// workOf is the operations and the words read of a batch.
func workOf(c graph.Cost, z graph.Sizes) int64 { return c.FLOPs.At(z) + c.Read.At(z)/4 }

package cpu

import (
	"runtime"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Workers run kernels as a rank of a machine does, for those who measure them.
type Workers struct {
	pool *pool
	live sync.WaitGroup
}

// NewWorkers starts so many, with the caller; 0: as many as Go uses processors.
func NewWorkers(n int) *Workers {
	w := &Workers{}
	if n < 1 {
		n = runtime.GOMAXPROCS(0)
	}
	w.pool = newPool(n, n > runtime.GOMAXPROCS(0), &w.live)
	return w
}

// Run runs a launch that costs so much for a batch; its scratch memory is made where it
// has too little. A panic of a kernel is an error, but where the caller runs all of it.
func (w *Workers) Run(k *kernels.Kernel, c *kernels.Call, cost graph.Cost, z graph.Sizes) error {
	if k.Scratch != nil {
		if n := k.Scratch(c); n > len(c.Scratch) {
			c.Scratch = kernels.NewScratch(n)
		}
	}
	return w.pool.launch(k, c, workOf(cost, z))
}

// Close ends them.
func (w *Workers) Close() {
	w.pool.close()
	w.live.Wait()
}

// workOf is the operations and the words read of a batch.
func workOf(c graph.Cost, z graph.Sizes) int64 { return c.FLOPs.At(z) + c.Read.At(z)/4 }

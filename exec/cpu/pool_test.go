package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// withPool runs f with a pool that is closed afterwards, with all its goroutines.
func withPool(workers int, crowded bool, f func(p *pool)) {
	var live sync.WaitGroup
	p := newPool(workers, crowded, &live)
	defer live.Wait()
	defer p.close()
	f(p)
}

// callOf is a call with a result of some rows.
func callOf(rows int) *kernels.Call {
	c := &kernels.Call{Results: make([]kernels.Tensor, 1)}
	c.Results[0].Dims[0] = rows
	return c
}

// TestCut: chunks are a partition of the units, in order, each of a round as large as
// the others of it give or take one, and none larger than one of the round before.
func TestCut(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		units, workers := rapid.IntRange(0, 5000).Draw(t, "units"), rapid.IntRange(1, 70).Draw(t, "workers")
		work := rapid.Int64Range(0, 1<<24).Draw(t, "work")
		c := cutOf(units, workers, work)
		if units == 0 {
			if c.chunks() != 0 {
				t.Fatalf("%d chunks of nothing", c.chunks())
			}
			return
		}
		if c.begin(0) != 0 || c.begin(c.chunks()) != units {
			t.Fatalf("chunks are %d to %d of %d", c.begin(0), c.begin(c.chunks()), units)
		}
		largest := units
		for round := range c.rounds {
			lo, hi := units, 0
			for i := range c.workers {
				n := c.begin(round*c.workers+i+1) - c.begin(round*c.workers+i)
				lo, hi = min(lo, n), max(hi, n)
			}
			if lo < 1 && round == 0 || hi-lo > 1 || hi > largest+1 {
				t.Fatalf("%+v: chunks of round %d have %d to %d units, those before %d", c, round, lo, hi, largest)
			}
			if largest = hi; round == c.rounds-2 {
				largest = 2*hi + 1 // the last round takes all that is left
			}
		}
	})
}

// TestPool: every unit of every launch is run once, whatever the numbers of units and workers, with
// several pools at a time on few processors, and pauses in which workers go to sleep.
func TestPool(t *testing.T) {
	var all sync.WaitGroup
	for i, workers := range []int{1, 2, 3, 8} {
		all.Go(func() {
			withPool(workers, workers == 8, func(p *pool) {
				launchMany(t, p, rand.New(rand.NewPCG(7, uint64(i))))
			})
		})
	}
	all.Wait()
}

func launchMany(t *testing.T, p *pool, r *rand.Rand) {
	ran := make([]atomic.Int32, 1000)
	for launch := range 2000 {
		units := r.IntN(len(ran))
		if launch%2 == 0 {
			units = r.IntN(12)
		}
		k := &kernels.Kernel{Units: func(*kernels.Call) int { return units }, Run: func(_ *kernels.Call, lo, hi int) {
			for u := lo; u < hi; u++ {
				ran[u].Add(1)
				if u%97 == 0 {
					runtime.Gosched()
				}
			}
		}}
		if err := p.run(k, callOf(1), parallelWork<<r.IntN(8)); err != nil {
			t.Error(err)
		}
		for u := range ran {
			if n := ran[u].Swap(0); (n == 1) != (u < units) || n > 1 {
				t.Errorf("launch %d with %d workers: unit %d of %d was run %d times", launch, 1+len(p.helpers), u, units, n)
				return
			}
		}
		if launch%400 == 0 {
			time.Sleep(time.Millisecond) // workers sleep now
		}
	}
}

// TestPoolSmall: of an empty result nothing is run, and little work stays with the caller.
func TestPoolSmall(t *testing.T) {
	withPool(3, false, func(p *pool) {
		calls := 0 // a race if others run it
		k := &kernels.Kernel{Units: func(*kernels.Call) int { return 100 }, Run: func(_ *kernels.Call, lo, hi int) { calls += hi - lo }}
		for _, c := range []struct {
			rows int
			work int64
			want int
		}{{0, 1 << 40, 0}, {1, parallelWork - 1, 100}} {
			calls = 0
			if err := p.run(k, callOf(c.rows), c.work); err != nil || calls != c.want {
				t.Errorf("%+v: %d units ran, %v", c, calls, err)
			}
		}
	})
}

// TestPoolPanics: a panic in any chunk is the launch's error, on whichever worker, and
// the next launch is as if nothing had been.
func TestPoolPanics(t *testing.T) {
	withPool(3, false, func(p *pool) {
		for bad := -1; bad < 40; bad++ {
			k := &kernels.Kernel{Units: func(*kernels.Call) int { return 39 }, Run: func(_ *kernels.Call, lo, hi int) {
				if lo <= bad && bad < hi {
					panic(fmt.Sprint("planted in unit ", bad))
				}
			}}
			err := p.run(k, callOf(1), 1<<30)
			if in := bad >= 0 && bad < 39; in != (err != nil) || in && !strings.HasPrefix(err.Error(), "BUG: planted in unit") {
				t.Errorf("unit %d: %v", bad, err)
			}
		}
	})
}

// TestPoolAllocations: a launch allocates nothing.
func TestPoolAllocations(t *testing.T) {
	withPool(2, false, func(p *pool) {
		k := &kernels.Kernel{Units: func(*kernels.Call) int { return 64 }, Run: func(*kernels.Call, int, int) {}}
		c := callOf(1)
		if n := testing.AllocsPerRun(100, func() { _ = p.run(k, c, 1<<30) }); n != 0 {
			t.Errorf("%g allocations", n)
		}
	})
}

// BenchmarkPool is an empty launch: what it costs to share work.
func BenchmarkPool(b *testing.B) {
	for _, workers := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			withPool(workers, workers > runtime.GOMAXPROCS(0), func(p *pool) {
				k := &kernels.Kernel{Units: func(*kernels.Call) int { return 64 }, Run: func(*kernels.Call, int, int) {}}
				c := callOf(1)
				for b.Loop() {
					_ = p.run(k, c, parallelWork)
				}
			})
		})
	}
}

// TestWorkers: a kernel has its scratch memory, and all of its first phase is done before
// any of the second.
func TestWorkers(t *testing.T) {
	const n = 1000
	w := NewWorkers(3)
	defer w.Close()
	k := &kernels.Kernel{
		Units:   func(*kernels.Call) int { return n },
		Scratch: func(*kernels.Call) int { return n },
		Before: &kernels.Kernel{
			Units: func(*kernels.Call) int { return n },
			Run: func(c *kernels.Call, lo, hi int) {
				for i := lo; i < hi; i++ {
					c.Scratch[i] = 1
				}
			},
		},
		Run: func(c *kernels.Call, lo, hi int) {
			for i := range n {
				if c.Scratch[i] != 1 {
					panic("the first phase is not done")
				}
			}
		},
	}
	for range 20 {
		c := callOf(n)
		if err := w.Run(k, c, graph.Cost{}, graph.Sizes{}); err != nil || len(c.Scratch) != n {
			t.Fatal(len(c.Scratch), err)
		}
		clear(c.Scratch)
		if err := w.pool.launch(k, c, 1<<30); err != nil { // worth many chunks
			t.Fatal(err)
		}
	}
}

package bench

import (
	"runtime"
	"sync"
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// Roofline is the measured peak of this machine's memory and processors.
type Roofline struct {
	ISA     string  // of the loops
	Threads int     // that ran them concurrently
	Bytes   float64 // read from memory per second
	FLOPs   float64 // floating-point operations per second, multiplications and additions in f32
	// Read reads memory once more, for some tens of milliseconds, and returns bytes per second: it
	// can change within seconds. nil: Bytes counts.
	Read func() float64
}

const (
	rooflineBytes = 512 << 20             // more than any cache
	rooflinePiece = 1 << 20               // bytes read per call
	rooflineTurns = 1 << 14               // turns of multiplications per call
	rooflineTime  = 20 * time.Millisecond // least time of multiplications
	rooflineRuns  = 5                     // the best counts
)

// MeasureRoofline measures reads and then multiplications with a number of threads; 0: GOMAXPROCS.
// Read keeps memory to read from.
func MeasureRoofline(threads int) Roofline {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := cpu.BestPeak()
	f := Roofline{ISA: p.ISA, Threads: threads, Read: reader(p, threads)}
	for range rooflineRuns {
		f.Bytes = max(f.Bytes, f.Read())
	}
	turns := rooflineTurns
	for run := 0; run < rooflineRuns; {
		took := atOnce(threads, func(int) {
			for n := 0; n < turns; n += rooflineTurns {
				p.Multiply(rooflineTurns)
			}
		})
		if took < rooflineTime {
			turns *= 2
			continue
		}
		f.FLOPs = max(f.FLOPs, float64(threads)*float64(turns)*float64(p.FLOPs)/took.Seconds())
		run++
	}
	return f
}

// reader returns a function that reads memory, and returns its bytes per second.
func reader(p cpu.Peak, threads int) func() float64 {
	data := make([]byte, rooflineBytes)
	each := len(data) / threads / rooflinePiece * rooflinePiece
	atOnce(threads, func(i int) {
		for at := 0; at < each; at += 4 << 10 {
			data[i*each+at] = 1 // pages never written all map to the same zero page
		}
	})
	return func() float64 {
		took := atOnce(threads, func(i int) {
			for at := 0; at < each; at += rooflinePiece {
				p.Read(data[i*each+at:][:rooflinePiece])
			}
		})
		return float64(threads*each) / took.Seconds()
	}
}

// now returns the bandwidth of memory at this moment, or where nothing reads it, that of before.
func (f *Roofline) now() float64 {
	if f.Read == nil {
		return f.Bytes
	}
	return f.Read()
}

// atOnce runs f for 0 to n-1 concurrently, and returns the time that took.
func atOnce(n int, f func(i int)) time.Duration {
	var all sync.WaitGroup
	start := time.Now()
	for i := 1; i < n; i++ {
		all.Go(func() { f(i) })
	}
	f(0)
	all.Wait()
	return max(time.Since(start), 1)
}

// least returns the roofline time of bytes and operations in milliseconds; unknown rates are 0.
func least(bytes, flops int64, bandwidth, rate float64) (ms float64) {
	if bandwidth > 0 {
		ms = 1e3 * float64(bytes) / bandwidth
	}
	if rate > 0 {
		ms = max(ms, 1e3*float64(flops)/rate)
	}
	return ms
}

// flops returns the floating-point operations of a batch on a rank.
func flops(schedules []*lowering.Schedule, z graph.Sizes) (n int64) {
	for i := range schedules[0].Steps {
		n += schedules[0].Steps[i].Cost.FLOPs.At(z)
	}
	return n
}

// promptCost returns lower bounds for prefill: the arithmetic of all chunks, and the weights once
// per chunk.
func promptCost(schedules []*lowering.Schedule, o *Options) (bytes, ops int64) {
	chunk := o.chunk()
	for at := 0; at < o.Prompt; at += chunk {
		p := phase{seqs: o.Batch, tokens: min(chunk, o.Prompt-at), past: at}
		z := p.sizes()
		if at+chunk < o.Prompt {
			z.Rows = 0
		}
		ops += flops(schedules, z)
		bytes += stepBytes(schedules, max(1, o.GPUs), o.Batch, at)
	}
	return bytes, ops
}

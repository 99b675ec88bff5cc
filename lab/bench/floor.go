package bench

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// Floor is what the processors of this machine can do at best, measured: whatever a
// model takes longer is for somebody to explain.
type Floor struct {
	ISA     string  // that the loops are written in
	Threads int     // that ran them at the same time
	Bytes   float64 // read from memory per second
	FLOPs   float64 // floating-point operations per second, multiplications and additions in f32
}

const (
	floorBytes = 512 << 20             // more than any cache
	floorPiece = 1 << 20               // that a thread reads without being interrupted
	floorTurns = 1 << 14               // of multiplications, likewise
	floorTime  = 20 * time.Millisecond // of multiplications
	floorRuns  = 5                     // of which the best counts
)

// MeasureFloor lets so many threads, or as many as Go uses, read and then multiply.
func MeasureFloor(threads int) Floor {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := cpu.BestPeak()
	f := Floor{ISA: p.ISA, Threads: threads}
	data := make([]byte, floorBytes)
	each := len(data) / threads / floorPiece * floorPiece
	atOnce(threads, func(i int) {
		for at := 0; at < each; at += 4 << 10 {
			data[i*each+at] = 1 // pages that were never written are all the same one
		}
	})
	for range floorRuns {
		took := atOnce(threads, func(i int) {
			for at := 0; at < each; at += floorPiece {
				p.Read(data[i*each+at:][:floorPiece])
			}
		})
		f.Bytes = max(f.Bytes, float64(threads*each)/took.Seconds())
	}
	data = nil
	debug.FreeOSMemory()
	turns := floorTurns
	for run := 0; run < floorRuns; {
		took := atOnce(threads, func(int) {
			for n := 0; n < turns; n += floorTurns {
				p.Multiply(floorTurns)
			}
		})
		if took < floorTime {
			turns *= 2
			continue
		}
		f.FLOPs = max(f.FLOPs, float64(threads)*float64(turns)*float64(p.FLOPs)/took.Seconds())
		run++
	}
	return f
}

// atOnce runs f for 0 to n-1 at the same time, and says how long that took.
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

// least is the milliseconds that so many bytes and operations take at least; what is
// not known counts nothing.
func least(bytes, flops int64, bandwidth, rate float64) (ms float64) {
	if bandwidth > 0 {
		ms = 1e3 * float64(bytes) / bandwidth
	}
	if rate > 0 {
		ms = max(ms, 1e3*float64(flops)/rate)
	}
	return ms
}

// flops is the arithmetic of a batch on all ranks.
func flops(schedules []*lowering.Schedule, z graph.Sizes) (n int64) {
	for i := range schedules[0].Steps {
		n += schedules[0].Steps[i].Cost.FLOPs.At(z)
	}
	return n
}

// promptCost is what prompts take at least: the arithmetic of all their chunks, and
// the weights once for each.
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

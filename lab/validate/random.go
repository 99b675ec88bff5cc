package validate

import (
	"runtime"
	"sync"

	"github.com/krait-ml/krait/internal/splitmix"
)

// stream is an endless list of random numbers that are known by their index, so
// that any part of a tensor can be made alone.
type stream uint64

// newStream is the numbers of a name.
func newStream(seed uint64, name string) stream {
	h := mix(seed)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return stream(mix(h))
}

// step is how far apart the states of neighbouring entries are.
const step = 0x9e3779b97f4a7c15

// bits is entry i.
func (s stream) bits(i int) uint64 { return mix(uint64(s) + uint64(i)*step) }

func mix(z uint64) uint64 { return splitmix.Mix(z - step) }

// sqrt3 is half the width of a uniform distribution of variance 1.
const sqrt3 = 1.7320508075688772

// number makes an f32 of 24 random bits: of a uniform distribution around 0 from
// -width to width.
func number(bits uint64, width float32) float32 {
	return float32(int64(bits>>40)-1<<23) * (width / (1 << 23))
}

// value is entry i as a number whose standard deviation is 1.
func (s stream) value(i int) float64 { return float64(number(s.bits(i), sqrt3)) }

// fill sets to[i] to entry from+i as a number whose standard deviation is scale.
func (s stream) fill(to []float32, from int, scale float32) {
	z, width := uint64(s)+uint64(from)*step, scale*sqrt3
	for i := range to {
		to[i] = number(mix(z), width)
		z += step
	}
}

// inParts runs f on parts of n elements, on all processors.
func inParts(n int, f func(lo, hi int)) {
	const least = 1 << 16
	parts := min(runtime.GOMAXPROCS(0), n/least+1)
	var done sync.WaitGroup
	for i := range parts {
		done.Go(func() { f(i*n/parts, (i+1)*n/parts) })
	}
	done.Wait()
}

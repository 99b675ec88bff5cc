package validate

import (
	"runtime"
	"sync"
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

// bits is entry i (Steele, Lea and Flood 2014, splitmix64).
func (s stream) bits(i int) uint64 { return mix(uint64(s) + uint64(i)*0x9e3779b97f4a7c15) }

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const sqrt3 = 1.7320508075688772 // half the width of a uniform distribution of variance 1

// value is entry i as a number of a uniform distribution around 0 whose standard
// deviation is scale. It is an f32.
func (s stream) value(i int, scale float32) float32 {
	return float32(int64(s.bits(i)>>40)-1<<23) * (scale * (sqrt3 / (1 << 23)))
}

// fill sets to[i] to entry from+i.
func (s stream) fill(to []float32, from int, scale float32) {
	for i := range to {
		to[i] = s.value(from+i, scale)
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

package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/krait-ml/krait/graph"
)

// lines is a cache of lines of 64 bytes, of which the least recently used goes first.
type lines struct {
	room  int
	at    map[uintptr]*line
	clock int
	moved int // bytes that came in, or went back since they were written
}

type line struct {
	used    int
	written bool
}

func (c *lines) touch(x []float32, write bool) {
	const size = 64
	from := uintptr(unsafe.Pointer(&x[0]))
	for l := from / size; l <= (from+4*uintptr(len(x))-1)/size; l++ {
		c.clock++
		if c.at[l] == nil {
			if len(c.at) == c.room {
				c.evict()
			}
			c.at[l] = &line{}
			c.moved += size
		}
		c.at[l].used, c.at[l].written = c.clock, c.at[l].written || write
	}
}

// evict drops the oldest half: finding one at a time would take as long for each.
func (c *lines) evict() {
	var used []int
	for _, l := range c.at {
		used = append(used, l.used)
	}
	slices.Sort(used)
	for k, l := range c.at {
		if l.used <= used[len(used)/2] {
			c.drop(k)
		}
	}
}

func (c *lines) drop(k uintptr) {
	if c.at[k].written {
		c.moved += 64
	}
	delete(c.at, k)
}

// TestDeltaTraffic: a token moves each state from memory once and back once, through a cache of
// 256 KiB, and with keys, queries, values and results no more than 1.02 times that; 1.03 with a
// decay for each row.
func TestDeltaTraffic(t *testing.T) {
	for _, vector := range []bool{false, true} {
		s := deltaCase{lengths: []int{1, 1}, groups: 16, each: 1, n: 128, size: 128, vector: vector, kept: graph.F32, leastDecay: -1, mostBeta: 1}
		c := s.call(rand.New(rand.NewPCG(38, 0)))
		cache := &lines{room: 256 << 10 / 64, at: map[uintptr]*line{}}
		each := func(rows []float32, row, cols, n int, write bool) {
			for i := range n {
				cache.touch(rows[i*row:][:cols], write)
			}
		}
		counted := deltaRule{
			negExp: func(y, x []float32) { cache.touch(x, false); plainDelta.negExp(y, x) },
			read: func(s []float32, row int, known, out, k, q []float32) {
				each(s, row, len(known), len(k), false)
				cache.touch(k, false)
				cache.touch(q, false)
				plainDelta.read(s, row, known, out, k, q)
			},
			value: func(known, y, v, out []float32, d *deltaToken, scale float32) {
				cache.touch(v[:len(known)], false)
				cache.touch(y, true)
				plainDelta.value(known, y, v, out, d, scale)
			},
			write: func(s []float32, row int, x, k []float32, d *deltaToken) {
				each(s, row, len(x), len(k), true)
				cache.touch(k, false)
				plainDelta.write(s, row, x, k, d)
			},
		}
		counted.scan(c, 0, deltaUnits(c))
		for i := 0; vector && i < len(s.lengths); i++ { // the functions see scaled copies
			cache.touch(c.Args[0].Row(i), false)
		}
		for k := range cache.at {
			cache.drop(k)
		}
		state := 4 * len(s.lengths) * s.groups * s.n * s.size
		share, most := float64(cache.moved)/float64(2*state), 1.02
		if vector {
			most = 1.03
		}
		t.Logf("vector %v: %d bytes moved, %.4f of a state read and written", vector, cache.moved, share)
		if !(share >= 1 && share <= most) {
			t.Errorf("vector %v: a token moves %.4f times a state read and written, at most %.2f", vector, share, most)
		}
	}
}

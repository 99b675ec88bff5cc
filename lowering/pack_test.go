package lowering

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// drawLifetimes draws up to n buffers, of which some live to the end, and some are empty.
func drawLifetimes(t *rapid.T, n int) []lifetime {
	list := make([]lifetime, rapid.IntRange(0, n).Draw(t, "buffers"))
	for i := range list {
		born := rapid.IntRange(0, 12).Draw(t, "born")
		died := born + rapid.SampledFrom([]int{0, 1, 1, 2, 3, 5, forever - 100}).Draw(t, "length")
		list[i] = lifetime{born, died, align * rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 5, 8}).Draw(t, "lines")}
		if list[i].bytes > 0 {
			list[i].bytes -= rapid.Int64Range(0, align-1).Draw(t, "gap")
		}
	}
	return list
}

// mostAlive sums what lives at each node.
func mostAlive(list []lifetime) (most int64) {
	for at := range 30 {
		var sum int64
		for _, l := range list {
			if l.born <= at && at <= l.died {
				sum += roundUp(l.bytes)
			}
		}
		most = max(most, sum)
	}
	return most
}

// TestPack: buffers that live at the same time do not overlap, all are aligned, the
// top is what it is said to be, and the bound is that of every moment.
func TestPack(t *testing.T) {
	tight, all := 0, 0
	prop.Check(t, func(t *rapid.T) {
		first, more := drawLifetimes(t, 40), drawLifetimes(t, 10)
		if rapid.Bool().Draw(t, "alone") {
			more = nil
		}
		at, high, peak := packWith(first, more)
		// Orders that look at what lies beside are tried last: they may be better for the first, too.
		if _, alone := pack(first); high > peak || high > alone || more == nil && high != alone {
			t.Fatalf("%v end at %d, and at %d beside %v, which end at %d", first, alone, high, more, peak)
		}
		for i, b := range first {
			if at[i]+roundUp(b.bytes) > high {
				t.Fatalf("%v is at %d, and ends after %d", b, at[i], high)
			}
		}
		list := slices.Concat(first, more)
		least := newPacker(list).least
		var top int64
		for i, a := range list {
			if at[i] < 0 || at[i]%align != 0 {
				t.Fatalf("buffer %d of %v is at %d", i, list, at[i])
			}
			top = max(top, at[i]+roundUp(a.bytes))
			for k, b := range list[:i] {
				if a.born <= b.died && b.born <= a.died && at[i] < at[k]+b.bytes && at[k] < at[i]+a.bytes {
					t.Fatalf("buffers %d and %d of %v overlap at %d and %d", k, i, list, at[k], at[i])
				}
			}
		}
		if most := mostAlive(list); peak != top || least != most || peak < least {
			t.Fatalf("%v end at %d, said to be %d, of %d at least, said to be %d", list, top, peak, most, least)
		}
		if more != nil {
			return
		}
		if all++; peak == least {
			tight++
		}
	})
	if tight*10 < all*8 {
		t.Errorf("%d of %d are as small as can be; it was 9 of 10", tight, all)
	}
}

// smallest is the least top of all placements: some order, with each buffer as low
// as those before it let it, gives it.
func smallest(p *packer) int64 {
	best := int64(forever)
	var try func(order []int, top int64)
	at := slices.Repeat([]int64{-1}, len(p.list))
	try = func(order []int, top int64) {
		if top >= best {
			return
		}
		if len(order) == len(p.list) {
			best = top
			return
		}
		for i := range p.list {
			if at[i] < 0 {
				at[i] = lowest(p, at, i)
				try(append(order, i), max(top, at[i]+p.list[i].bytes))
				at[i] = -1
			}
		}
	}
	try(nil, 0)
	return best
}

// lowest is the lowest place for buffer i beside those that have one.
func lowest(p *packer, at []int64, i int) int64 {
	for low := int64(0); ; low += align {
		free := func(k int) bool {
			return at[k] < 0 || at[k] >= low+p.list[i].bytes || at[k]+p.list[k].bytes <= low
		}
		if !slices.ContainsFunc(p.overlaps[i], func(k int) bool { return !free(k) }) {
			return low
		}
	}
}

// TestPackSmall compares with all placements of few buffers: a buffer more than the best is rare.
func TestPackSmall(t *testing.T) {
	const seed, trials = 1, 400
	rng := rand.New(rand.NewPCG(seed, 2))
	worse := 0
	for range trials {
		list := make([]lifetime, 7)
		for i := range list {
			born := rng.IntN(6)
			list[i] = lifetime{born, born + rng.IntN(4), align * int64(1+rng.IntN(6))}
		}
		_, peak := pack(list)
		best := smallest(newPacker(list))
		if peak < best {
			t.Fatalf("%v fit in %d bytes, and all placements need %d", list, peak, best)
		}
		if peak > best {
			worse++
		}
	}
	if worse > trials/100 {
		t.Errorf("seed %d: %d of %d are larger than they need be", seed, worse, trials)
	}
	t.Logf("%d of %d are larger than they need be", worse, trials)
}

// TestPackOrder: what fits at once is placed at once, and equal lists alike.
func TestPackOrder(t *testing.T) {
	if at, peak := pack(nil); len(at) != 0 || peak != 0 {
		t.Errorf("nothing is placed at %v and takes %d", at, peak)
	}
	// In the order of their births the last would not fit below.
	list := []lifetime{{0, 1, 64}, {0, 3, 64}, {2, 3, 128}}
	if _, peak := pack(list); peak != 192 {
		t.Errorf("%v take %d bytes", list, peak)
	}
}

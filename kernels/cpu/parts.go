package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"parts": {Units: func(*kernels.Call) int { return 1 }, Run: func(c *kernels.Call, _, _ int) {
		kernels.PutParts(&c.Results[0], &c.Args[1], c.Attrs.Int("parts"), c.Attrs.Int("slots") == 1)
	}},
	"zeros":            {Units: kernels.RowUnits, Run: zeros},
	"segment_sums":     {Units: sumUnits, Run: segmentSums},
	"conv_states":      {Units: stateUnits, Run: convStates},
	"selective_states": {Units: stateUnits, Run: selectiveStates},
	"ssd_states":       {Units: stateUnits, Run: ssdStates},
	"delta_states":     {Units: stateUnits, Run: deltaStates},
})

// zeros clears rows, and writes the diagonals of their last two axes.
func zeros(c *kernels.Call, lo, hi int) {
	y := &c.Results[0]
	for i := lo; i < hi; i++ {
		row := y.Row(i)
		clear(row)
		if c.Attrs.Int("diagonal") == 1 {
			n := y.Dims[y.Axis]
			for at := range len(row) / n {
				row[at*n+at%n] = 1
			}
		}
	}
}

func sumUnits(c *kernels.Call) int { return c.Args[1].Rows() * blocks(c.Results[0].Cols) }

// segmentSums adds the rows of a segment in f64: exp of a sum times A is what many tokens leave of
// a state.
func segmentSums(c *kernels.Call, lo, hi int) {
	x, seg, y := &c.Args[0], &c.Args[1], &c.Results[0]
	perSeq := blocks(y.Cols)
	var sums [channelBlock]float64
	for unit := lo; unit < hi; unit++ {
		i := unit / perSeq
		from := unit % perSeq * channelBlock
		start, tokens, _ := seg.Segment(i)
		out := y.Row(i)[from:min(from+channelBlock, y.Cols)]
		clear(sums[:])
		for t := start; t < start+tokens; t++ {
			for k, v := range x.Row(t)[from : from+len(out)] {
				sums[k] += float64(v)
			}
		}
		for k := range out {
			out[k] = float32(sums[k])
		}
	}
}

// stateUnits counts the entries of axis 1 of operand 0 for all sequences of the segments, which are
// the last operand.
func stateUnits(c *kernels.Call) int { return c.Args[len(c.Args)-1].Rows() * c.Args[0].Dims[1] }

// convStates: a part of few tokens keeps inputs of the part before it.
func convStates(c *kernels.Call, lo, hi int) {
	u, state, seg, before := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	channels, keep := u.Dims[1], u.Dims[2]
	for unit := lo; unit < hi; unit++ {
		i, at := unit/channels, unit%channels*keep
		_, _, slot := seg.Segment(i)
		kept := widen(state, slot*state.Stride+at, keep)
		kernels.EachPart(u, seg, i, func(row, tokens int) {
			copy(before.Row(row)[at:at+keep], kept.h)
			fresh := min(tokens, keep)
			copy(kept.h, kept.h[fresh:])
			copy(kept.h[keep-fresh:], u.Row(row)[at+keep-fresh:at+keep])
		})
		kept.put()
	}
}

// affine takes entries of a state past all parts: before each part it is put there, and after a
// part with tokens pass has made it another.
func affine(c *kernels.Call, unit, operand int, pass func(h []float32, row, entry int)) {
	parts, state, seg, before := &c.Args[0], &c.Args[operand], &c.Args[operand+1], &c.Results[0]
	entries := parts.Dims[1]
	i, entry, n := unit/entries, unit%entries, state.Cols/entries
	_, _, slot := seg.Segment(i)
	kept := widen(state, slot*state.Stride+entry*n, n)
	kernels.EachPart(parts, seg, i, func(row, tokens int) {
		copy(before.Row(row)[entry*n:(entry+1)*n], kept.h)
		if tokens > 0 {
			pass(kept.h, row, entry)
		}
	})
	kept.put()
}

// selectiveStates: h = exp(A Σdt) h + u, a channel in a unit.
func selectiveStates(c *kernels.Call, lo, hi int) {
	sums, u, a := &c.Args[0], &c.Args[1], &c.Args[2]
	for unit := lo; unit < hi; unit++ {
		affine(c, unit, 3, func(h []float32, row, ch int) {
			sum, in := float64(sums.Row(row)[ch]), u.Row(row)[ch*len(h):]
			for k, rate := range a.F32[ch*a.Stride:][:len(h)] {
				h[k] = float32(math.Exp(float64(rate)*sum))*h[k] + in[k]
			}
		})
	}
}

// ssdStates is selectiveStates with a rate per head.
func ssdStates(c *kernels.Call, lo, hi int) {
	sums, u, a := &c.Args[0], &c.Args[1], c.Args[2].Vector()
	for unit := lo; unit < hi; unit++ {
		affine(c, unit, 3, func(h []float32, row, head int) {
			decay, in := float32(math.Exp(float64(a[head])*float64(sums.Row(row)[head]))), u.Row(row)[head*len(h):]
			for k := range h {
				h[k] = decay*h[k] + in[k]
			}
		})
	}
}

// deltaStates: S = M S + u, a head in a unit.
func deltaStates(c *kernels.Call, lo, hi int) {
	m, u := &c.Args[0], &c.Args[1]
	n, size := u.Dims[2], u.Dims[3]
	for unit := lo; unit < hi; unit++ {
		affine(c, unit, 2, func(s []float32, row, head int) {
			next := borrow(n * size)
			defer next.giveBack()
			copy(next.h, u.Row(row)[head*n*size:])
			for i := range n {
				for k, by := range m.Row(row)[(head*n+i)*n:][:n] {
					addScaledRow(next.h[i*size:(i+1)*size], s[k*size:], by)
				}
			}
			copy(s, next.h)
		})
	}
}

func addScaledRow(y, x []float32, by float32) {
	x = x[:len(y)]
	for k := range y {
		y[k] += by * x[k]
	}
}

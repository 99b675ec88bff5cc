package cpu

import (
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"rotary":    {Units: rotaryUnits, Run: rotary},
	"attention": {Units: attentionUnits, Run: attention},
})

func rotaryUnits(c *kernels.Call) int { return c.Args[1].Rows() }

// rotary rotates pairs of channels of each head by an angle that grows with the
// token's position. A unit is a sequence.
func rotary(c *kernels.Call, lo, hi int) {
	x, seg, past, y := &c.Args[0], &c.Args[1], c.Args[2].I32, &c.Results[0]
	half := c.Attrs.Int("dims") / 2
	for s := lo; s < hi; s++ {
		start, tokens, _ := seg.Segment(s)
		lo, hi, row := y.Here(start, tokens)
		for t := lo; t < hi; t++ {
			in, out := x.Row(row+t-lo), y.Row(row+t-lo)
			copy(out, in)
			for j := range half {
				sin, cos := rotation(c, int(past[s])+t, j)
				for at := j; at < len(in); at += x.Unit {
					a, b := in[at], in[at+half]
					out[at], out[at+half] = a*cos-b*sin, b*cos+a*sin
				}
			}
		}
	}
}

// rotation is that of pair j at a position.
func rotation(c *kernels.Call, position, j int) (sin, cos float32) {
	angle := float64(position) * math.Pow(c.Attrs.Float("theta"), -2*float64(j)/float64(c.Attrs.Int("dims")))
	s, k := math.Sincos(angle)
	return float32(s), float32(k)
}

// keyBlock is how many keys are looked at together. Blocks begin at fixed
// positions, so that a row does not depend on how a prompt was cut.
const keyBlock = 128

// A unit of attention is a sequence and one of the rank's groups of keys.
func attentionUnits(c *kernels.Call) int {
	return c.Args[5].Rows() * (c.Args[1].Cols / max(1, c.Args[0].Unit))
}

// attention is causal: each token sees the cached ones, those before it in the
// batch, and itself. The new keys and values are put into the caches first, and all
// are read from there, as they are kept: how a prompt is cut changes no bit.
func attention(c *kernels.Call, lo, hi int) {
	q, k, v, keys, values, seg, past := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], c.Args[6].I32
	y, size := &c.Results[0], c.Args[0].Unit
	held := k.Cols / size
	shared := max(1, q.Full/max(1, k.Full)) // heads per group
	scale := float32(c.Attrs.Float("scale"))
	wide := borrow(size)
	defer wide.giveBack()
	for unit := lo; unit < hi; unit++ {
		s, group := unit/held, unit%held
		start, tokens, slot := seg.Segment(s)
		first := int(past[s])
		from := k.Start() + group*size // in the whole
		a, b := kernels.Held(keys, from, size)
		if a == b {
			continue // more keys than the cache keeps here: no head of the rank reads them
		}
		for t := range tokens {
			to, at, _ := keys.Cached(s, slot, first+t)
			to.Write(at+a, k.Row(start + t)[group*size:][:b-a])
			to, at, _ = values.Cached(s, slot, first+t)
			to.Write(at+a, v.Row(start + t)[from-v.Start():][:b-a])
		}
		x, z := kernels.Held(q, from*shared, size*shared)
		looked, summed := cached{cache: keys, seq: s, slot: slot, first: a, wide: wide.h}, cached{cache: values, seq: s, slot: slot, first: a, wide: wide.h}
		here, end, row := q.Here(start, tokens)
		for t := here; t < end; t++ {
			for h := x; h < z; h += size {
				attend(y.Row(row + t - here)[h:h+size], q.Row(row + t - here)[h:h+size], &looked, &summed, first+t+1, scale)
			}
		}
	}
}

// cached is a group of a sequence's rows in a cache, from element first of a row on.
type cached struct {
	cache            *kernels.Tensor
	seq, slot, first int
	wide             []float32 // for a row that is kept in 16 bits

	rows         kernels.Tensor // of tokens from one to before another, the first of them at an element
	from, to, at int
}

// row is what the group has of a token, until the next is asked for.
func (c *cached) row(token int) []float32 {
	if token < c.from || token >= c.to {
		var n int
		c.rows, c.at, n = c.cache.Cached(c.seq, c.slot, token)
		c.from, c.to = token, token+n
	}
	at := c.at + (token-c.from)*c.rows.Stride + c.first
	if c.rows.DType == graph.F32 {
		return c.rows.F32[at : at+len(c.wide)]
	}
	c.rows.Read(c.wide, at)
	return c.wide
}

// attend is the attention of one head of one token over n tokens. The softmax is taken block by
// block, with the sums scaled to the largest score so far (Milakov and Gimelshein 2018).
func attend(out, q []float32, keys, values *cached, n int, scale float32) {
	var buf [keyBlock]float32
	most, total := float32(math.Inf(-1)), float32(0)
	clear(out)
	for base := 0; base < n; base += keyBlock {
		scores := buf[:min(keyBlock, n-base)]
		top := most
		for i := range scores {
			var sum float32
			for j, k := range keys.row(base + i) {
				sum += q[j] * k
			}
			scores[i] = sum * scale
			top = max(top, scores[i])
		}
		fade := float32(math.Exp(float64(most - top)))
		most, total = top, total*fade
		for j := range out {
			out[j] *= fade
		}
		for i := range scores {
			scores[i] -= top
		}
		expInto(scores, scores, 1)
		for i, p := range scores {
			total += p
			for j, v := range values.row(base + i) {
				out[j] += p * v
			}
		}
	}
	for j := range out {
		out[j] /= total
	}
}

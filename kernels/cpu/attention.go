package cpu

import (
	"math"

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
		for t := range tokens {
			in, out := x.Row(start+t), y.Row(start+t)
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
// batch, and itself. The new keys and values are put into the caches first.
func attention(c *kernels.Call, lo, hi int) {
	q, k, v, keys, values, seg, past := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], c.Args[6].I32
	y, size := &c.Results[0], c.Args[0].Unit
	held := k.Cols / size
	shared := max(1, q.Full/max(1, k.Full)) // heads per group
	scale := float32(c.Attrs.Float("scale"))
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
			copy(keys.CacheRow(slot, first+t)[a:b], k.Row(start + t)[group*size:])
			copy(values.CacheRow(slot, first+t)[a:b], v.Row(start + t)[from-v.Start():])
		}
		x, z := kernels.Held(q, from*shared, size*shared)
		for t := range tokens {
			for h := x; h < z; h += size {
				attend(y.Row(start + t)[h:h+size], q.Row(start + t)[h:h+size], keys, values, slot, first+t+1, a, scale)
			}
		}
	}
}

// attend is the attention of one head of one token over n tokens; a is where the
// group begins in a row of the caches. The softmax is taken block by block, with
// the sums scaled to the largest score so far (Milakov and Gimelshein 2018).
func attend(out, q []float32, keys, values *kernels.Tensor, slot, n, a int, scale float32) {
	var buf [keyBlock]float32
	most, total := float32(math.Inf(-1)), float32(0)
	clear(out)
	for base := 0; base < n; base += keyBlock {
		scores := buf[:min(keyBlock, n-base)]
		top := most
		for i := range scores {
			var sum float32
			for j, k := range keys.CacheRow(slot, base+i)[a : a+len(q)] {
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
			for j, v := range values.CacheRow(slot, base+i)[a : a+len(out)] {
				out[j] += p * v
			}
		}
	}
	for j := range out {
		out[j] /= total
	}
}

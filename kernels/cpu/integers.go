package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// integers are what an instruction set has for integer products: of weights in blocks with
// activations that are rounded to 8 bits, for each 32 with a scale. The sums of a block are exact,
// and blocks are added in order, so that one token and many have the same bits.
type integers struct {
	round    func(to []byte, x []float32) // whole blocks of 32
	multiply func(m integerProduct)
}

// What becomes of 32 activations: 32 numbers, and in f32 their scale, the sum of the numbers, and
// those of both halves. The generator knows these places.
const (
	roundedLen   = 32
	roundedScale = 32
	roundedSum   = 36
	roundedBytes = 48
)

// integerRows is how many rows of weights a unit has.
const integerRows = 16

// integerProduct is y = x wᵀ, or where more is set y + x wᵀ: of rows of count blocks, ws bytes
// apart, with rounded tokens, xs bytes apart.
type integerProduct struct {
	format          graph.DType
	w               []byte
	ws, rows, count int
	x               []byte
	xs, tokens      int
	y               []float32
	ys              int
	more            bool
}

// integersOf is what rounds n elements of a line from col on, and which blocks they touch.
func integersOf(b *graph.Blocks, col, n int) (first, count, bytes int) {
	first, count = touched(b, col, n)
	return first, count, count * b.Format.Elems / roundedLen * roundedBytes
}

// roundTokens rounds tokens, of the elements of a line from col on.
func (p *integers) roundTokens(to []byte, x []float32, xs, k, tokens int, b *graph.Blocks, col int) {
	first, count, bytes := integersOf(b, col, k)
	buf := borrow(count * b.Format.Elems)
	for t := range tokens {
		p.round(to[t*bytes:][:bytes], lay(buf.h, x[t*xs:][:k], b, col, first))
	}
	buf.giveBack()
}

// serves reports whether a matmul has integer products.
func (p *integers) serves(c *kernels.Call) bool {
	w := &c.Args[1]
	return w.Blocks != nil && w.DType.HasCodes() && w.Cols > 0
}

// matmul is x wᵀ by integer products where the weight has codes, and by another kernel elsewhere.
func (p *integers) matmul(other kernels.Kernel) kernels.Kernel {
	if other.Before == nil {
		other.Before = &kernels.Kernel{Units: none, Run: func(*kernels.Call, int, int) {}}
		other.Scratch = none
	}
	return kernels.Kernel{
		Units: func(c *kernels.Call) int {
			if !p.serves(c) {
				return other.Units(c)
			}
			return integerGrid(c).units()
		},
		Run: func(c *kernels.Call, lo, hi int) {
			if !p.serves(c) {
				other.Run(c, lo, hi)
				return
			}
			p.run(c, lo, hi)
		},
		Before: &kernels.Kernel{
			Units: func(c *kernels.Call) int {
				if !p.serves(c) {
					return other.Before.Units(c)
				}
				return c.Args[0].Rows()
			},
			Run: func(c *kernels.Call, lo, hi int) {
				if !p.serves(c) {
					other.Before.Run(c, lo, hi)
					return
				}
				x, w := &c.Args[0], &c.Args[1]
				_, _, bytes := integersOf(w.Blocks, 0, w.Cols)
				p.roundTokens(c.Scratch[lo*bytes:hi*bytes], x.F32[lo*x.Stride:], x.Stride, w.Cols, hi-lo, w.Blocks, 0)
			},
		},
		Scratch: func(c *kernels.Call) int {
			if !p.serves(c) {
				return other.Scratch(c)
			}
			_, _, bytes := integersOf(c.Args[1].Blocks, 0, c.Args[1].Cols)
			return c.Args[0].Rows() * bytes
		},
	}
}

func none(*kernels.Call) int { return 0 }

// into puts integer products into a set.
func (p *integers) into(set kernels.Set) { set["matmul"] = p.matmul(set["matmul"]) }

func integerGrid(c *kernels.Call) grid {
	return gridOf((c.Args[1].Rows()+integerRows-1)/integerRows, c.Args[0].Rows())
}

// run is matmul with rounded tokens, for units lo to hi.
func (p *integers) run(c *kernels.Call, lo, hi int) {
	w, y := &c.Args[1], &c.Results[0]
	_, count, bytes := integersOf(w.Blocks, 0, w.Cols)
	stride := w.Blocks.Bytes(1)
	integerGrid(c).each(lo, hi, func(from, to, first, last int) {
		from, to = from*integerRows, min(to*integerRows, w.Rows())
		p.multiply(integerProduct{
			format: w.DType, w: w.U8[from*stride : to*stride], ws: stride, rows: to - from, count: count,
			x: c.Scratch[first*bytes : last*bytes], xs: bytes, tokens: last - first,
			y: y.F32[first*y.Stride+from:], ys: y.Stride,
		})
	})
}

// plainIntegers are those of what the Go compiler makes.
var plainIntegers = integers{round: roundPlain, multiply: multiplyCodes}

func roundPlain(to []byte, x []float32) {
	for ; len(x) > 0; to, x = to[roundedBytes:], x[roundedLen:] {
		roundBlock(to[:roundedBytes], x[:roundedLen])
	}
}

// roundBlock rounds 32 activations to the nearest multiples of their scale, which is a 127th of the
// largest magnitude: 0 below 2^-100, and not finite where an activation is not.
func roundBlock(to []byte, x []float32) {
	var largest uint32
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&^(1<<31))
	}
	var scale, inverse float32
	if most := math.Float32frombits(largest); !(most < 0x1p-100) {
		scale, inverse = most/127, 127/most
	}
	var halves [2]float32
	for i, v := range x {
		n := int16(math.MinInt16) // of what is no number
		if r := math.RoundToEven(float64(v * inverse)); r == r {
			n = int16(r)
		}
		to[i] = byte(max(n, math.MinInt8))
		halves[i/16] += float32(n)
	}
	for i, v := range []float32{scale, halves[0] + halves[1], halves[0], halves[1]} {
		binary.LittleEndian.PutUint32(to[roundedScale+4*i:], math.Float32bits(v))
	}
}

func multiplyCodes(m integerProduct) {
	elems, size := m.format.Format().Elems, m.format.Format().Bytes
	var codes [graph.MaxBlockLen]int8
	var scales, least [16]float32
	for r := range m.rows {
		for t := 0; t < m.tokens && !m.more; t++ {
			m.y[t*m.ys+r] = 0
		}
		for i := range m.count {
			part := m.format.Codes(&codes, &scales, &least, m.w[r*m.ws+i*size:][:size])
			for t := range m.tokens {
				y := &m.y[t*m.ys+r]
				for k := range elems / part {
					*y += partSum(m.x[t*m.xs+(i*elems+k*part)/roundedLen*roundedBytes:], codes[k*part:][:part], k, scales[k], least[k])
				}
			}
		}
	}
}

// partSum is the sum of the products of part k with rounded activations. Parts of 16 have no least
// number.
func partSum(x []byte, codes []int8, k int, scale, least float32) float32 {
	at := k * len(codes) % roundedLen
	var n int32
	for i, c := range codes {
		n += int32(c) * int32(int8(x[at+i]))
	}
	value := float32(scale*float32(n)) + float32(least*float32At(x, roundedSum))
	return float32(float32At(x, roundedScale) * value)
}

func float32At(b []byte, at int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[at:]))
}

// borrowBytes is memory for n bytes; giveBack ends that.
func borrowBytes(n int) (widened, []byte) {
	buf := borrow((n + 3) / 4)
	if n == 0 {
		return buf, nil
	}
	return buf, unsafe.Slice((*byte)(unsafe.Pointer(&buf.h[0])), n)
}

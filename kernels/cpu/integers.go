package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// integers are what an instruction set has for integer products: of weights in blocks with
// activations that are rounded to 8 bits, with a scale for those of each block. The sums of a block
// are exact, and blocks are added in order, so that one token and many have the same bits.
type integers struct {
	rows     int                                     // of weights, in a unit
	round    func(to []byte, x []float32, elems int) // whole blocks, of 32 or 256
	multiply func(m integerProduct)
}

// roundedBytes is the size of what becomes of the activations of a block: a number of 8 bits for
// each, their scale in f32, and sums of the numbers. Blocks of 32 have theirs in f32; blocks of 256
// have those of each 16 and then of each 32, in 16 bits. The generator knows these places.
func roundedBytes(elems int) int { return elems + elems/4 }

// integerProduct is y = x wᵀ: of rows of count blocks, ws bytes apart, with rounded tokens, xs
// bytes apart.
type integerProduct struct {
	format          graph.DType
	w               []byte
	ws, rows, count int
	x               []byte
	xs, tokens      int
	y               []float32
	ys              int
}

// integersOf is what rounds n elements of a line from col on, and which blocks they touch.
func integersOf(b *graph.Blocks, col, n int) (first, count, bytes int) {
	first, count = touched(b, col, n)
	return first, count, count * roundedBytes(b.Format.Elems)
}

// roundTokens rounds tokens, of the elements of a line from col on.
func (p *integers) roundTokens(to []byte, x []float32, xs, k, tokens int, b *graph.Blocks, col int) {
	first, count, bytes := integersOf(b, col, k)
	buf := borrow(count * b.Format.Elems)
	for t := range tokens {
		p.round(to[t*bytes:][:bytes], lay(buf.h, x[t*xs:][:k], b, col, first), b.Format.Elems)
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
			return p.grid(c).units()
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

func (p *integers) grid(c *kernels.Call) grid {
	return gridOf((c.Args[1].Rows()+p.rows-1)/p.rows, c.Args[0].Rows())
}

// run is matmul with rounded tokens, for units lo to hi.
func (p *integers) run(c *kernels.Call, lo, hi int) {
	w, y := &c.Args[1], &c.Results[0]
	_, count, bytes := integersOf(w.Blocks, 0, w.Cols)
	stride := w.Blocks.Bytes(1)
	p.grid(c).each(lo, hi, func(from, to, first, last int) {
		from, to = from*p.rows, min(to*p.rows, w.Rows())
		p.multiply(integerProduct{
			format: w.DType, w: w.U8[from*stride : to*stride], ws: stride, rows: to - from, count: count,
			x: c.Scratch[first*bytes : last*bytes], xs: bytes, tokens: last - first,
			y: y.F32[first*y.Stride+from:], ys: y.Stride,
		})
	})
}

// plainIntegers are those of what the Go compiler makes.
var plainIntegers = integers{rows: 16, round: roundPlain, multiply: multiplyCodes}

func roundPlain(to []byte, x []float32, elems int) {
	for ; len(x) > 0; to, x = to[roundedBytes(elems):], x[elems:] {
		roundBlock(to[:roundedBytes(elems)], x[:elems])
	}
}

// roundBlock rounds a block of activations to the nearest multiples of their scale, which is a
// 127th of the largest magnitude: 0 below 2^-100, and not finite where an activation is not.
func roundBlock(to []byte, x []float32) {
	var largest uint32
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&^(1<<31))
	}
	var scale, inverse float32
	if most := math.Float32frombits(largest); !(most < 0x1p-100) {
		scale, inverse = most/127, 127/most
	}
	var halves [graph.MaxBlockLen / 16]int
	for i, v := range x {
		n := int16(math.MinInt16) // of what is no number
		if r := math.RoundToEven(float64(v * inverse)); r == r {
			n = int16(r)
		}
		to[i] = byte(max(n, math.MinInt8))
		halves[i/16] += int(n)
	}
	sums := to[len(x):]
	binary.LittleEndian.PutUint32(sums, math.Float32bits(scale))
	sums = sums[4:]
	if len(x) == 32 {
		binary.LittleEndian.PutUint32(sums, math.Float32bits(float32(halves[0]+halves[1])))
		return
	}
	put := func(i, n int) int {
		n = max(math.MinInt16, n) // what is no number has more
		binary.LittleEndian.PutUint16(sums[2*i:], uint16(n))
		return n
	}
	for i := range len(x) / 32 {
		put(len(x)/16+i, put(2*i, halves[2*i])+put(2*i+1, halves[2*i+1]))
	}
}

func multiplyCodes(m integerProduct) {
	elems, size := m.format.Format().Elems, m.format.Format().Bytes
	var codes [graph.MaxBlockLen]int8
	var scales, least [16]float32
	for r := range m.rows {
		for t := 0; t < m.tokens; t++ {
			m.y[t*m.ys+r] = 0
		}
		for i := range m.count {
			part := m.format.Codes(&codes, &scales, &least, m.w[r*m.ws+i*size:][:size])
			for t := range m.tokens {
				x := m.x[t*m.xs+i*roundedBytes(elems):]
				var sum float32
				for k := range elems / part {
					sum += partSum(x[k*part:], codes[k*part:][:part], scales[k], least[k])
				}
				m.y[t*m.ys+r] += float32(float32At(x, elems) * sum)
			}
		}
	}
}

// partSum is the sum of the products of a part of a block with rounded activations.
func partSum(x []byte, codes []int8, scale, least float32) float32 {
	var products, numbers int32
	for i, c := range codes {
		n := int32(int8(x[i]))
		products += int32(c) * n
		numbers += n
	}
	return float32(scale*float32(products)) + float32(least*float32(numbers))
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

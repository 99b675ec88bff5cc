// Package codec says what the blocks of [graph.Codec] mean: the one definition, in plain
// Go, that kernels of all devices give bit by bit.
//
// A block is a scale, a bf16, and a code per element, in order. The scale is the block's largest
// magnitude over the largest code, rounded up, so that no code is cut off; at least 2^-126, so that
// its reciprocal is finite. A code is x times that reciprocal, in f32, to the nearest value, ties
// to even; an element is its code times the scale, in f32. A bf16 as a scale has the range of f32
// in half of the bytes, and makes steps at most 2^-7 longer than an f32 would; a power of two would
// make them up to twice as long. Of scaled16 it is one: a shift of exponents rounds nothing.
//
// A block with a NaN or an infinity has a NaN for a scale, and zeros for codes: all of it
// comes back as NaN, on every rank. Finite values come back finite.
package codec

import (
	"encoding/binary"
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/x448/float16"
)

// nanScale is that of a block with a number that is not finite.
const nanScale = 0x7fc0

// MinScale is the least scale.
const MinScale = 0x1p-126

// largest are the largest codes.
var largest = [...]float32{graph.Int8: 127, graph.Int4: 7, graph.E4M3: 448, graph.E5M2: 57344, graph.Scaled16: 65504}

// halfSteps are half of what lies between the largest codes: how far an element can be
// from its code, in scales.
var halfSteps = [...]float64{graph.Int8: 0.5, graph.Int4: 0.5, graph.E4M3: 16, graph.E5M2: 4096, graph.Scaled16: 16}

// Bound is how far an element can be from itself after a round trip, in a block whose
// largest magnitude is given: half a step of the largest codes, with the scale rounded up.
// What roundings in f32 add is in the factor, and in the least f32.
func Bound(c graph.Codec, most float64) float64 {
	up := 1 + 0x1p-7
	if c.Kind == graph.Scaled16 {
		up = 2
	}
	return halfSteps[c.Kind]*max(most/float64(largest[c.Kind])*up, MinScale)*(1+0x1p-14) + math.SmallestNonzeroFloat32
}

// AddBounds adds to each number of sum the [Bound] of the block of the element of row there.
func AddBounds(c graph.Codec, sum []float64, row []float32) {
	for at := 0; at < len(row); at += c.Block {
		block, most := row[at:min(at+c.Block, len(row))], 0.0
		for _, v := range block {
			most = max(most, math.Abs(float64(v)))
		}
		bound := Bound(c, most)
		for j := range block {
			sum[at+j] += bound
		}
	}
}

// Scale is the scale of a block with the largest magnitude given, as the bits of a bf16. A
// magnitude that is not finite gives a NaN.
func Scale(k graph.CodecKind, most float32) uint16 {
	if most-most != 0 {
		return nanScale
	}
	bits := math.Float32bits(max(most/largest[k], MinScale))
	if k == graph.Scaled16 {
		return uint16((bits + 0x7fffff) & 0x7f800000 >> 16)
	}
	return uint16((bits + 0xffff) >> 16)
}

// Encode writes a row in blocks: dst has c.RowBytes(len(src)) bytes.
func Encode(c graph.Codec, dst []byte, src []float32) {
	for ; len(src) > 0; dst = dst[c.BlockBytes():] {
		n := min(c.Block, len(src))
		encode(c, dst[:c.BlockBytes()], src[:n])
		src = src[n:]
	}
}

func encode(c graph.Codec, dst []byte, src []float32) {
	var most float32
	for _, x := range src {
		if x-x != 0 {
			most = float32(math.NaN())
			break
		}
		most = max(most, max(x, -x))
	}
	scale := Scale(c.Kind, most)
	binary.LittleEndian.PutUint16(dst, scale)
	codes := dst[graph.ScaleBytes:]
	clear(codes)
	if scale == nanScale {
		if c.Kind == graph.Int4 {
			fill(codes, 0x88)
		}
		return
	}
	inverse := 1 / wide(scale)
	switch c.Kind {
	case graph.Int8:
		for i, x := range src {
			codes[i] = byte(whole(x*inverse, 127))
		}
	case graph.Int4: // the first of two is the lower half; both have 8 added
		fill(codes, 0x88)
		for i, x := range src {
			q := byte(whole(x*inverse, 7)+8) << (i % 2 * 4)
			codes[i/2] = codes[i/2]&^(0xf<<(i%2*4)) | q
		}
	case graph.Scaled16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(codes[2*i:], float16.Fromfloat32(x*inverse).Bits())
		}
	default:
		f := small[c.Kind]
		for i, x := range src {
			codes[i] = f.round(x * inverse)
		}
	}
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// whole is x as a whole number of at most so much, to the nearest, ties to even.
func whole(x, most float32) int {
	return int(math.RoundToEven(float64(max(-most, min(x, most)))))
}

// wide is a bf16 as f32.
func wide(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// fp8 is a format of 8 bits.
type fp8 struct {
	mantissa int
	bias     int
	largest  float32
	top      byte // the code of the largest
	values   [256]float32
}

// small are the formats of 8 bits.
var small = map[graph.CodecKind]*fp8{
	graph.E4M3: newFP8(3, 7, 448, 0x7e),
	graph.E5M2: newFP8(2, 15, 57344, 0x7b),
}

// newFP8 makes a format: codes beyond the largest are NaN, but for the infinity of a format
// that has one, which follows it.
func newFP8(mantissa, bias int, largest float32, top byte) *fp8 {
	f := &fp8{mantissa: mantissa, bias: bias, largest: largest, top: top}
	for i := range f.values {
		code := byte(i) & 0x7f
		fraction, exponent := float64(code&(1<<mantissa-1))/float64(int(1)<<mantissa), int(code>>mantissa)
		v := math.Ldexp(1+fraction, exponent-bias)
		switch {
		case exponent == 0:
			v = math.Ldexp(fraction, 1-bias)
		case code > top && code&(1<<mantissa-1) == 0:
			v = math.Inf(1)
		case code > top:
			v = math.NaN()
		}
		if i >= 0x80 {
			v = -v
		}
		f.values[i] = float32(v)
	}
	return f
}

// round is the code nearest to x, ties to even; what is beyond the largest is the largest.
func (f *fp8) round(x float32) byte {
	bits := math.Float32bits(x)
	sign := byte(bits >> 24 & 0x80)
	size := min(math.Float32frombits(bits&0x7fffffff), f.largest)
	if size < math.Float32frombits(uint32(128-f.bias)<<23) { // a multiple of the least
		return sign | byte(math.RoundToEven(math.Ldexp(float64(size), f.bias-1+f.mantissa)))
	}
	shift := 23 - f.mantissa
	bits = math.Float32bits(size)
	bits += 1<<(shift-1) - 1 + bits>>shift&1
	return sign | byte(bits>>shift-uint32(127-f.bias)<<f.mantissa)
}

// Decode reads a row of len(dst) elements.
func Decode(c graph.Codec, dst []float32, src []byte) {
	for ; len(dst) > 0; src = src[c.BlockBytes():] {
		n := min(c.Block, len(dst))
		decode(c, dst[:n], src[:c.BlockBytes()])
		dst = dst[n:]
	}
}

func decode(c graph.Codec, dst []float32, block []byte) {
	scale := wide(binary.LittleEndian.Uint16(block))
	codes := block[graph.ScaleBytes:]
	switch c.Kind {
	case graph.Int8:
		for i := range dst {
			dst[i] = float32(int8(codes[i])) * scale
		}
	case graph.Int4:
		for i := range dst {
			dst[i] = float32(int(codes[i/2]>>(i%2*4)&0xf)-8) * scale
		}
	case graph.Scaled16:
		for i := range dst {
			dst[i] = float16.Frombits(binary.LittleEndian.Uint16(codes[2*i:])).Float32() * scale
		}
	default:
		f := small[c.Kind]
		for i := range dst {
			dst[i] = f.values[codes[i]] * scale
		}
	}
	if Overflows(c.Kind, scale) {
		for i, v := range dst {
			dst[i] = max(-math.MaxFloat32, min(v, math.MaxFloat32))
		}
	}
}

// Overflows reports whether the largest code times a scale is beyond f32: codes of a block
// whose largest magnitude is close to its end may be, by rounding, and are that end.
func Overflows(k graph.CodecKind, scale float32) bool {
	return scale*largest[k] > math.MaxFloat32
}

// RoundTo makes of a row what comes back of it in a format for transport: a codec's, f16 or bf16.
func RoundTo(d graph.DType, row []float32) error {
	if c, ok := d.Codec(); ok {
		Round(c, row)
		return nil
	}
	a, err := graph.ArrayOf(row, len(row)).Convert(d)
	if err == nil {
		copy(row, a.Float32s())
	}
	return err
}

// Round is what comes back of a row.
func Round(c graph.Codec, row []float32) {
	buf := make([]byte, c.BlockBytes())
	for len(row) > 0 {
		n := min(c.Block, len(row))
		encode(c, buf, row[:n])
		decode(c, row[:n], buf)
		row = row[n:]
	}
}

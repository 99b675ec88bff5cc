package graph

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// Format is a number format of weights: blocks of neighbouring elements that share scales. Q8 to
// Q6_K are those of ggml, to the bit; Q8 is its Q8_0. The others are made of folders that are
// published in 8 and 4 bits: see [Parts].
type Format struct {
	Elems  int   // of a block
	Bytes  int   // of a block
	Scales []int // the bytes of a block at which an f16 is
}

// MaxBlockLen is the most elements that a block of a [Format] has.
const MaxBlockLen = 256

// formats has a row for each format from Q8 on; decodeBlock has the meaning of its bytes.
var formats = [...]Format{
	0:           {BlockLen, BlockBytes, []int{0}}, // Q8
	Q4_0 - Q8:   {32, 18, []int{0}},
	Q4_1 - Q8:   {32, 20, []int{0, 2}},
	Q5_0 - Q8:   {32, 22, []int{0}},
	Q5_1 - Q8:   {32, 24, []int{0, 2}},
	IQ4_NL - Q8: {32, 18, []int{0}},
	IQ4_XS - Q8: {256, 136, []int{0}},
	Q4_K - Q8:   {256, 144, []int{0, 2}},
	Q5_K - Q8:   {256, 176, []int{0, 2}},
	Q6_K - Q8:   {256, 210, []int{208}},

	FP8_128 - Q8:  {128, 132, nil},
	FP8_32 - Q8:   {32, 36, nil},
	NVFP4 - Q8:    {128, 76, nil},
	MXFP4 - Q8:    {32, 17, nil},
	INT4_128 - Q8: {128, 69, nil},
	INT4_32 - Q8:  {32, 21, nil},
}

// Quantized reports whether d is a format of weights in blocks.
func (d DType) Quantized() bool { return d >= Q8 && int(d-Q8) < len(formats) }

// Format is the block format of weights; nil for other number formats.
func (d DType) Format() *Format {
	if !d.Quantized() {
		return nil
	}
	return &formats[d-Q8]
}

// Count is the number of blocks of n elements.
func (f *Format) Count(n int) int { return (n + f.Elems - 1) / f.Elems }

// Decode widens whole blocks to f32, with the bits of ggml's routines. Products and sums are
// rounded one by one.
func (d DType) Decode(to []float32, data []byte) {
	f := d.Format()
	for ; len(to) > 0; to, data = to[f.Elems:], data[f.Bytes:] {
		decodeBlock(d, to[:f.Elems], data[:f.Bytes])
	}
}

// decodePart widens the elements of a block from one on.
func decodePart(d DType, to []float32, block []byte, at int) {
	if d == Q8 {
		eights(to, block, at)
		return
	}
	f := d.Format()
	if len(to) == f.Elems {
		decodeBlock(d, to, block)
		return
	}
	var all [MaxBlockLen]float32
	decodeBlock(d, all[:f.Elems], block)
	copy(to, all[at:f.Elems])
}

func decodeBlock(d DType, to []float32, b []byte) {
	switch d {
	case Q8:
		eights(to, b, 0)
	case Q4_K:
		superblock(d, to, b, nil, b[16:])
	case Q5_K:
		superblock(d, to, b, b[16:48], b[48:])
	case Q6_K:
		sixes(to, b)
	case FP8_128, FP8_32:
		fp8(to, b)
	case NVFP4:
		nvfp4(to, b)
	default:
		for k := range len(to) / 32 {
			codes, high, scale, least := d.coded(b, k)
			decodeCoded(to[32*k:], d.Levels(), codes, high, scale, least)
		}
	}
}

func half(b []byte) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32() }

// eights is d·q, of the elements from one on.
func eights(to []float32, b []byte, at int) {
	d := half(b)
	for i, q := range b[2+at:][:len(to)] {
		to[i] = d * float32(int8(q))
	}
}

// coded is part k of a block of a format whose elements have [DType.Levels], but for NVFP4, whose
// parts have two scales. An element is
// (level + 16·bit)·scale + least, of the level of its code ([DType.Levels]). The lower halves of 16
// codes are those of the first elements; bit i of high is that of element i.
func (d DType) coded(b []byte, k int) (codes []byte, high uint32, scale, least float32) {
	switch d {
	case Q4_0:
		return b[2:], 0, half(b), 0
	case Q4_1:
		return b[4:], 0, half(b), half(b[2:])
	case Q5_0:
		return b[6:], binary.LittleEndian.Uint32(b[2:]), half(b), 0
	case Q5_1:
		return b[8:], binary.LittleEndian.Uint32(b[4:]), half(b), half(b[2:])
	case IQ4_NL:
		return b[2:], 0, half(b), MinusZero
	case MXFP4:
		return b[1:], 0, PowerOfTwo(b[0]), MinusZero
	case INT4_128, INT4_32:
		scale = single(b)
		return b[5+16*k:], 0, scale, -float32(float32(b[4]) * scale)
	}
	return b[8+16*k:], 0, half(b) * float32(signedScale(b, k)), MinusZero
}

// Part is the codes of the first 32 elements of a block, which the others follow, and the scale and
// the least number of all, of MXFP4 and INT4.
func (d DType) Part(b []byte) (codes []byte, scale, least float32) {
	codes, _, scale, least = d.coded(b, 0)
	return codes, scale, least
}

// MinusZero changes no number that it is added to, -0 included.
var MinusZero = float32(math.Copysign(0, -1))

// decodeCoded widens the 32 elements of a part.
func decodeCoded(to []float32, levels *[16]float32, codes []byte, high uint32, scale, least float32) {
	for i, q := range codes[:16] {
		to[i] = float32((levels[q&15]+float32(high>>i&1<<4))*scale) + least
		to[i+16] = float32((levels[q>>4]+float32(high>>(i+16)&1<<4))*scale) + least
	}
}

// Levels are the numbers that codes stand for, of the formats whose elements are a level times a
// scale: not of Q8, Q4_K, Q5_K, Q6_K and FP8.
func (d DType) Levels() *[16]float32 {
	switch d {
	case Q4_0:
		return &levels[0]
	case Q5_0:
		return &levels[1]
	case Q4_1, Q5_1, INT4_128, INT4_32:
		return &levels[2]
	case NVFP4, MXFP4:
		return &levels[4]
	}
	return &levels[3]
}

var levels = [...][16]float32{
	{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7},
	{-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1},
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
	{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}, // E2M1, whose -0 is 0 here
}

// signedScale is the scale of part k of a block of IQ4_XS: 6 bits, less 32.
func signedScale(b []byte, k int) int {
	low := b[4+k/2] >> (k % 2 * 4) & 15
	high := byte(binary.LittleEndian.Uint16(b[2:])>>(2*k)) & 3
	return int(low|high<<4) - 32
}

// PartScales reads the scales of a block whose parts have their own: of Q4_K and Q5_K 8 scales and
// then 8 minima, of Q6_K 16 scales, of IQ4_XS and NVFP4 8.
func (d DType) PartScales(to *[16]float32, b []byte) {
	if d == NVFP4 {
		second := single(b)
		for k, code := range b[4:12] {
			to[k] = E4M3Values[code] * second
		}
		return
	}
	base := half(b[d.Format().Scales[0]:])
	if d == Q6_K {
		for k := range to {
			to[k] = base * float32(int8(b[192+k]))
		}
		return
	}
	if d == IQ4_XS {
		for k := range 8 {
			to[k] = base * float32(signedScale(b, k))
		}
		return
	}
	least := half(b[2:])
	for k := range 8 {
		s, m := scales(b[4:16], k)
		to[k], to[8+k] = base*float32(s), least*float32(m)
	}
}

// superblock is 256 elements in 8 parts with a scale and a minimum of 6 bits each:
// d·scale·q − dmin·minimum. Bit k of high[i] is the fifth of element i of part k.
func superblock(d DType, to []float32, b, high, q []byte) {
	var s [16]float32
	d.PartScales(&s, b)
	for k := range 8 {
		for i := range 32 {
			to[k*32+i] = float32(s[k]*float32(nibbles(q, high, k, i))) - s[8+k]
		}
	}
}

// scales reads the scale and the minimum of part k, of which 12 bytes hold 8.
func scales(b []byte, k int) (scale, least byte) {
	if k < 4 {
		return b[k] & 63, b[k+4] & 63
	}
	return b[k+4]&15 | b[k-4]>>6<<4, b[k+4]>>4 | b[k]>>6<<4
}

// sixes is 256 elements of 6 bits in 16 parts with a scale of 8 bits each.
func sixes(to []float32, b []byte) {
	var s [16]float32
	Q6_K.PartScales(&s, b)
	for i := range to {
		to[i] = float32(s[i/16] * float32(int(six(b, i))-32))
	}
}

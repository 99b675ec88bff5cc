package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/x448/float16"
)

// ToBlocks rounds a float array [… rows cols] to a block format. Each line along the last axis is
// blocks of its own, of which zeros fill the last. Weights [… cols] say how much the errors of
// columns count in a matrix, such as the mean squares of its inputs; nil: all the same. Formats of
// 8 bits, and of published folders, take no heed of them.
func (a Array) ToBlocks(d DType, weights []float32) (Array, error) {
	if len(a.Shape) < 2 {
		return Array{}, fmt.Errorf("%s has shape %v; only matrices can be in blocks", a.From, a.Shape)
	}
	f, cols := d.Format(), a.Shape[len(a.Shape)-1]
	data := make([]byte, sizeOf(d, a.Shape))
	var block [MaxBlockLen]float32
	rest, x := data, a.Float32s()
	rows := a.Shape[len(a.Shape)-2]
	w := weighing{format: d}
	for line := 0; len(x) > 0; line++ {
		if weights != nil {
			w.line(x[:cols], weights[line/rows*cols:][:cols])
		}
		for k := 0; k < cols; k += f.Elems {
			n := copy(block[:f.Elems], x[k:cols])
			clear(block[n:f.Elems])
			if err := encodeBlock(d, rest[:f.Bytes], block[:f.Elems], w.block(k, block[:n])); err != nil {
				return Array{}, fmt.Errorf("%s: row %d, columns %d to %d: %w", a.From, line, k, k+n-1, err)
			}
			rest = rest[f.Bytes:]
		}
		x = x[cols:]
	}
	return Array{d, a.Shape, data, a.From}, nil
}

// encodeBlock rounds numbers to a block, which is zero. A number that is not finite, or beyond the
// range of the format, is an error. w has the weights of the errors; nil: importance has them.
func encodeBlock(d DType, b []byte, x []float32, w []float64) error {
	var most float32
	for _, v := range x {
		if v-v != 0 {
			return fmt.Errorf("%g is not a finite number", v)
		}
		most = max(most, float32(math.Abs(float64(v))))
	}
	switch d {
	case Q8:
		encodeEights(b, x, most)
	case Q4_0, Q5_0, IQ4_NL, IQ4_XS, Q6_K:
		encodeSigned(d, b, x, w)
	case FP8_128, FP8_32, NVFP4, MXFP4, INT4_128, INT4_32:
		encodeParts(d, b, x, most)
	default:
		encodeAffine(d, b, x, w)
	}
	for _, at := range d.Format().Scales {
		if b[at+1]&0x7c == 0x7c {
			return fmt.Errorf("%g is larger than %s can hold", most, d.blockName())
		}
	}
	return nil
}

func (d DType) blockName() string {
	if d == Q8 {
		return "an 8-bit block"
	}
	return "a block of " + d.String()
}

// encodeEights: the scale is the largest magnitude / 127, rounded to the nearest f16, or the next
// larger one where 127 and a half of that would fall short of the magnitude; numbers are rounded to
// the nearest, halves away from 0. So each element is off by at most half of its scale.
func encodeEights(b []byte, x []float32, most float32) {
	scale := float16.Fromfloat32(most / 127)
	if scale.Float32()*127.5 < most {
		scale++ // the next larger f16
	}
	binary.LittleEndian.PutUint16(b, scale.Bits())
	d := float64(scale.Float32())
	for i, v := range x {
		if v != 0 {
			b[2+i] = byte(int8(math.Round(float64(v) / d)))
		}
	}
}

// toHalf rounds to f16, writes it, and returns what it is.
func toHalf(b []byte, v float64) float64 {
	h := float16.Fromfloat32(float32(v))
	binary.LittleEndian.PutUint16(b, h.Bits())
	return float64(h.Float32())
}

// grid is the whole numbers that codes 0, 1, … stand for, in order.
type grid struct {
	at   []float64
	even bool
	half []byte // unless even: the code of v by the least whole number from 2(v - at[0]) on
}

func gridOf(from, to int) (g grid) {
	for n := from; n <= to; n++ {
		g.at = append(g.at, float64(n))
	}
	g.even = true
	return g
}

// signed says how blocks of a format without minima are made: of parts of some elements, whose
// scales are d times a number from lo to hi, or d alone.
type signed struct {
	part, lo, hi int
	grid         grid
}

var signedFormats = map[DType]signed{
	Q4_0: {32, 1, 1, gridOf(-8, 7)}, Q5_0: {32, 1, 1, gridOf(-16, 15)}, Q6_K: {16, -128, 127, gridOf(-32, 31)},
	IQ4_NL: {32, 1, 1, levelGrid()}, IQ4_XS: {32, -32, 31, levelGrid()},
}

func levelGrid() (g grid) {
	for _, l := range IQ4_NL.Levels() {
		g.at = append(g.at, float64(l))
	}
	last, c := len(g.at)-1, 0
	for h := 0; h <= int(2*(g.at[last]-g.at[0])); h++ {
		for c < last && float64(h) > g.at[c]+g.at[c+1]-2*g.at[0] {
			c++
		}
		g.half = append(g.half, byte(c))
	}
	return g
}

// code is the code of the nearest number.
func (g *grid) code(v float64) int {
	v -= g.at[0]
	if g.even {
		return whole(v, len(g.at)-1)
	}
	switch h := 2 * v; {
	case !(h > 0):
		return 0
	case h > float64(len(g.half)-1):
		return len(g.at) - 1
	default:
		return int(g.half[int(math.Ceil(h))])
	}
}

// whole is the whole number from 0 to n that is nearest, of two the larger one.
func whole(v float64, n int) int {
	switch v += 0.5; {
	case !(v > 0):
		return 0
	case v > float64(n):
		return n
	}
	return int(v)
}

// importance weighs the error of each element: more of large ones, which count more in a product.
func importance(x []float32) []float64 {
	var squares float64
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	rms := math.Sqrt(squares / float64(len(x)))
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = rms + math.Abs(float64(v))
	}
	return out
}

// weighing makes weights of the errors of elements, of weights of columns, by ggml's formulas: the
// weight of the column times √(σ² + x²); in Q6_K the weight of the column. σ² is the mean square of
// the line, in super-blocks and IQ4_NL twice that of the block.
type weighing struct {
	format  DType
	columns []float32
	square  float64 // the mean square of the line
	weights [MaxBlockLen]float64
}

func (w *weighing) line(x, columns []float32) {
	w.columns, w.square = columns, meanSquare(x)
}

// block is the weights of a block that begins at a column; nil without weights of columns.
func (w *weighing) block(at int, x []float32) []float64 {
	if w.columns == nil {
		return nil
	}
	square, f := w.square, w.format.Format()
	if f.Elems == MaxBlockLen || w.format == IQ4_NL {
		square = 2 * meanSquare(x)
	}
	clear(w.weights[:])
	for i, v := range x {
		if w.weights[i] = float64(w.columns[at+i]); w.format != Q6_K {
			w.weights[i] *= math.Sqrt(square + float64(v)*float64(v))
		}
	}
	return w.weights[:f.Elems]
}

func meanSquare(x []float32) (mean float64) {
	for _, v := range x {
		mean += float64(v) * float64(v)
	}
	return mean / float64(max(1, len(x)))
}

// weightsOf are those of a part of a block from an element on, or importance where none has any.
func weightsOf(part []float32, w []float64, at int) []float64 {
	if w != nil && slices.ContainsFunc(w[at:at+len(part)], func(v float64) bool { return v > 0 }) {
		return w[at:][:len(part)]
	}
	return importance(part)
}

// fit is the scale with the least weighed error of those at which the largest element is near an
// end of the grid.
func (g *grid) fit(x []float32, w []float64) (scale float64) {
	peak := 0.0
	for _, v := range x {
		if math.Abs(float64(v)) > math.Abs(peak) {
			peak = float64(v)
		}
	}
	if peak == 0 {
		return 0
	}
	best := -1.0
	for _, end := range []float64{g.at[0], g.at[len(g.at)-1]} {
		for step := -8; step <= 8; step++ {
			by := end * (1 + float64(step)/64) / peak
			var xl, ll float64
			for i, v := range x {
				l := g.at[g.code(float64(v)*by)]
				xl += w[i] * float64(v) * l
				ll += w[i] * l * l
			}
			if ll > 0 && xl*xl/ll > best {
				best, scale = xl*xl/ll, xl/ll
			}
		}
	}
	return scale
}

func encodeSigned(d DType, b []byte, x []float32, w []float64) {
	f := signedFormats[d]
	var scales, codes [MaxBlockLen / 16]float64
	peak, parts := 0.0, len(x)/f.part
	for k := range parts {
		part := x[k*f.part:][:f.part]
		scales[k] = f.grid.fit(part, weightsOf(part, w, k*f.part))
		if math.Abs(scales[k]) > math.Abs(peak) {
			peak = scales[k]
		}
	}
	base := toHalf(b[d.Format().Scales[0]:], peak/float64(f.lo))
	var q [MaxBlockLen]byte
	for k := range parts {
		if codes[k] = 1; f.lo != 1 && base != 0 {
			codes[k] = min(max(math.Round(scales[k]/base), float64(f.lo)), float64(f.hi))
		}
		by := 0.0
		if base*codes[k] != 0 {
			by = 1 / (base * codes[k])
		}
		for i := k * f.part; i < (k+1)*f.part; i++ {
			q[i] = byte(f.grid.code(float64(x[i]) * by))
		}
	}
	packSigned(d, b, q[:len(x)], codes[:parts])
}

// packSigned is the inverse of what decodeBlock reads.
func packSigned(d DType, b, q []byte, codes []float64) {
	switch d {
	case Q4_0, IQ4_NL:
		packNibbles(b[2:], q)
	case Q5_0:
		binary.LittleEndian.PutUint32(b[2:], packNibbles(b[6:], q))
	case IQ4_XS:
		for k, c := range codes {
			n := int(c) + 32
			b[4+k/2] |= byte(n&15) << (k % 2 * 4)
			b[2+k/4] |= byte(n>>4) << (k % 4 * 2)
			packNibbles(b[8+16*k:], q[32*k:][:32])
		}
	case Q6_K:
		for i, v := range q {
			n, k, j := i/128, i/32%4, i%32
			b[n*64+k%2*32+j] |= v & 15 << (k / 2 * 4)
			b[128+n*32+j] |= v >> 4 << (2 * k)
		}
		for k, c := range codes {
			b[192+k] = byte(int8(c))
		}
	}
}

// packNibbles writes the lower 4 bits of 32 codes, and returns the fifth ones.
func packNibbles(b, q []byte) (high uint32) {
	for i := range 16 {
		b[i] = q[i]&15 | q[i+16]<<4
	}
	for i, v := range q {
		high |= uint32(v>>4) << i
	}
	return high
}

// fitAffine finds scale and minimum of scale·q − least, q from 0 to n, with the least weighed error
// of those at which the range of the elements is near that of the codes.
func fitAffine(x []float32, w []float64, n int, negative bool) (scale, least float64) {
	lo, hi := float64(x[0]), float64(x[0])
	for _, v := range x {
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
	if !negative { // a minimum below 0 cannot be written
		lo = min(lo, 0)
	}
	if hi <= lo {
		return 0, -lo
	}
	best := math.Inf(1)
	for step := -8; step <= 8; step++ {
		by := (float64(n) + float64(step)/8) / (hi - lo)
		var s, sq, sqq, sx, sxq float64
		for i, v := range x {
			q := float64(whole(by*(float64(v)-lo), n))
			s, sq, sqq = s+w[i], sq+w[i]*q, sqq+w[i]*q*q
			sx, sxq = sx+w[i]*float64(v), sxq+w[i]*q*float64(v)
		}
		det := s*sqq - sq*sq
		if det <= 0 {
			continue
		}
		a, m := (s*sxq-sq*sx)/det, (sq*sxq-sqq*sx)/det
		if m < 0 && !negative {
			a, m = sxq/sqq, 0
		}
		off := 0.0
		for i, v := range x {
			q := float64(whole(by*(float64(v)-lo), n))
			e := a*q - m - float64(v)
			off += w[i] * e * e
		}
		if off < best {
			best, scale, least = off, a, m
		}
	}
	return scale, least
}

func encodeAffine(d DType, b []byte, x []float32, w []float64) {
	n, single := 15, d == Q4_1 || d == Q5_1
	if d == Q5_1 || d == Q5_K {
		n = 31
	}
	var scale, least [8]float64
	var most, mostLeast float64
	parts := len(x) / 32
	for k := range parts {
		part := x[32*k:][:32]
		scale[k], least[k] = fitAffine(part, weightsOf(part, w, 32*k), n, single)
		most, mostLeast = max(most, scale[k]), max(mostLeast, least[k])
	}
	var codes, leasts [8]byte
	if single {
		scale[0], least[0] = toHalf(b, scale[0]), -toHalf(b[2:], -least[0])
	} else {
		base, baseLeast := toHalf(b, most/63), toHalf(b[2:], mostLeast/63)
		for k := range parts {
			codes[k], scale[k] = sixBits(scale[k], base)
			leasts[k], least[k] = sixBits(least[k], baseLeast)
		}
	}
	var q [MaxBlockLen]byte
	for i, v := range x {
		if s := scale[i/32]; s != 0 {
			q[i] = byte(whole((float64(v)+least[i/32])/s, n))
		}
	}
	packAffine(d, b, q[:len(x)], codes, leasts)
}

// sixBits is a number in 6 bits times base, and what that is.
func sixBits(v, base float64) (byte, float64) {
	if base == 0 {
		return 0, 0
	}
	c := min(math.Round(v/base), 63)
	return byte(c), c * base
}

// packAffine is the inverse of what decodeBlock reads.
func packAffine(d DType, b, q []byte, scale, least [8]byte) {
	switch d {
	case Q4_1:
		packNibbles(b[4:], q)
		return
	case Q5_1:
		binary.LittleEndian.PutUint32(b[4:], packNibbles(b[8:], q))
		return
	}
	for k := range 4 {
		b[4+k] = scale[k] | scale[k+4]>>4<<6
		b[8+k] = least[k] | least[k+4]>>4<<6
		b[12+k] = scale[k+4]&15 | least[k+4]<<4
	}
	low := b[16:]
	if d == Q5_K {
		low = b[48:]
	}
	for i, v := range q {
		k, j := i/32, i%32
		low[k/2*32+j] |= v & 15 << (k % 2 * 4)
		if d == Q5_K {
			b[16+j] |= v >> 4 << k
		}
	}
}

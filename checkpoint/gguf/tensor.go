package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"github.com/krait-ml/krait/internal/files"
)

// Tensor is one named array of a file.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int  // the axis whose elements lie beside each other last; not to be modified
	Data  []byte // as in the file; a view, not to be modified
}

// Elems is the number of elements.
func (t Tensor) Elems() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Readable reports whether Float32s knows the format.
func (t Type) Readable() bool {
	_, blocks := unpack[t]
	return blocks || t == F32 || t == F16 || t == BF16 || t == F64
}

// Float32s returns the elements as f32, into which blocks go as ggml's own routines have
// them, to the bit. It is an error for formats that are not floats, or not read: the error
// names the format and those that are.
func (t Tensor) Float32s() ([]float32, error) {
	if size, err := t.Type.Size(t.Shape); err != nil || size != len(t.Data) {
		return nil, fmt.Errorf("tensor %s: %s %v does not have %d bytes", files.Quote(t.Name), t.Type, t.Shape, len(t.Data))
	}
	if !t.Type.Readable() {
		return nil, fmt.Errorf("tensor %s has the format %s; Krait reads F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K", files.Quote(t.Name), t.Type)
	}
	out := make([]float32, t.Elems())
	l := layouts[t.Type]
	if f, ok := unpack[t.Type]; ok {
		for i := range len(t.Data) / l.bytes {
			f(out[i*l.elems:][:l.elems], t.Data[i*l.bytes:][:l.bytes])
		}
		return out, nil
	}
	for i := range out {
		switch b := t.Data[i*l.bytes:]; t.Type {
		case F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		case F16:
			out[i] = half(b)
		case BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
		case F64:
			out[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
	}
	return out, nil
}

func half(b []byte) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32() }

// unpack turns a block into its elements. Products and sums are rounded one by one.
var unpack = map[Type]func(to []float32, block []byte){
	Q8_0: func(to []float32, b []byte) {
		d := half(b)
		for i := range to {
			to[i] = float32(int8(b[2+i])) * d
		}
	},
	Q4_0: func(to []float32, b []byte) { nibbles(to, b[2:], 0, half(b), -8, 0) },
	Q4_1: func(to []float32, b []byte) { nibbles(to, b[4:], 0, half(b), 0, half(b[2:])) },
	Q5_0: func(to []float32, b []byte) {
		nibbles(to, b[6:], binary.LittleEndian.Uint32(b[2:]), half(b), -16, 0)
	},
	Q5_1: func(to []float32, b []byte) {
		nibbles(to, b[8:], binary.LittleEndian.Uint32(b[4:]), half(b), 0, half(b[2:]))
	},
	Q4_K: func(to []float32, b []byte) { superblock(to, b, nil, b[16:]) },
	Q5_K: func(to []float32, b []byte) { superblock(to, b, b[16:48], b[48:]) },
	Q6_K: sixes,
}

// nibbles is 32 elements d·(q+shift) + m, the lower halves of 16 bytes and then the upper
// ones; bit i of high is the fifth of element i.
func nibbles(to []float32, q []byte, high uint32, d float32, shift int, m float32) {
	for i := range 16 {
		lo := int(q[i]&15) | int(high>>i&1)<<4
		hi := int(q[i]>>4) | int(high>>(i+16)&1)<<4
		to[i] = float32(float32(lo+shift)*d) + m
		to[i+16] = float32(float32(hi+shift)*d) + m
	}
}

// superblock is 256 elements in 8 parts with a scale and a minimum of 6 bits each:
// d·scale·q − dmin·minimum. Bit k of high[i] is the fifth of element i of part k.
func superblock(to []float32, b, high, q []byte) {
	d, dmin := half(b), half(b[2:])
	for k := range 8 {
		scale, least := scales(b[4:16], k)
		s, m := d*float32(scale), dmin*float32(least)
		for i := range 32 {
			v := q[k/2*32+i] >> (k % 2 * 4) & 15
			if high != nil {
				v |= high[i] >> k & 1 << 4
			}
			to[k*32+i] = float32(s*float32(v)) - m
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
	d := half(b[208:])
	for n := range 2 { // halves of 128
		low, high, scale := b[n*64:], b[128+n*32:], b[192+n*8:]
		for i := range 32 {
			for k := range 4 {
				v := low[k%2*32+i] >> (k / 2 * 4) & 15
				v |= high[i] >> (2 * k) & 3 << 4
				s := d * float32(int8(scale[i/16+2*k]))
				to[n*128+k*32+i] = float32(s * float32(int(v)-32))
			}
		}
	}
}

package kernels

import (
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/x448/float16"
)

// Read reads elements of t, from the one at index at, as f32 (identifiers above 2^24 to the
// nearest): of a codec those of a row, or the first of them, where the row begins at byte at.
func (t *Tensor) Read(dst []float32, at int) {
	switch t.DType {
	case graph.F32:
		copy(dst, t.F32[at:at+len(dst)])
	case graph.BF16:
		src := t.U16[at : at+len(dst)]
		for i, b := range src {
			dst[i] = math.Float32frombits(uint32(b) << 16)
		}
	case graph.F16:
		src := t.U16[at : at+len(dst)]
		for i, b := range src {
			dst[i] = half(b)
		}
	case graph.F8:
		for i, b := range t.U8[at : at+len(dst)] {
			dst[i] = graph.E4M3Values[b]
		}
	case graph.I32:
		for i, v := range t.I32[at : at+len(dst)] {
			dst[i] = float32(v)
		}
	default:
		if t.Blocks != nil {
			t.Blocks.Read(dst, t.U8, at)
			return
		}
		codec.Decode(t.codec(), dst, t.U8[at:])
	}
}

// codec is the codec that t is in.
func (t *Tensor) codec() graph.Codec {
	c, ok := t.DType.Codec()
	if !ok {
		panic("BUG: " + t.DType.String() + " is no codec")
	}
	return c
}

// Write rounds src to the format of t, to nearest and ties to even, from the
// element at index at on: of a codec to a row that begins at byte at.
func (t *Tensor) Write(at int, src []float32) {
	switch t.DType {
	case graph.F32:
		copy(t.F32[at:at+len(src)], src)
	case graph.BF16:
		dst := t.U16[at : at+len(src)]
		for i, v := range src {
			dst[i] = toBF16(v)
		}
	case graph.F16:
		dst := t.U16[at : at+len(src)]
		for i, v := range src {
			dst[i] = float16.Fromfloat32(v).Bits()
		}
	case graph.F8:
		dst := t.U8[at : at+len(src)]
		for i, v := range src {
			dst[i] = graph.ToE4M3(v)
		}
	default:
		codec.Encode(t.codec(), t.U8[at:], src)
	}
}

// Round rounds values to what a format can hold: of a codec, a row of them.
func Round(d graph.DType, values []float32) {
	switch d {
	case graph.BF16:
		for i, v := range values {
			values[i] = math.Float32frombits(uint32(toBF16(v)) << 16)
		}
	case graph.F16:
		for i, v := range values {
			values[i] = half(float16.Fromfloat32(v).Bits())
		}
	case graph.F8:
		for i, v := range values {
			values[i] = graph.E4M3Values[graph.ToE4M3(v)]
		}
	default:
		if c, ok := d.Codec(); ok {
			codec.Round(c, values)
		}
	}
}

// toBF16 adds half of the last place, or a little less where that is even.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// half widens an f16: the exponent is moved by a multiplication, which is exact
// for subnormals too; infinities and NaNs are set apart.
func half(b uint16) float32 {
	mag := uint32(b&0x7fff) << 13
	if mag >= 0x7c00<<13 {
		mag |= 0xff << 23
	} else {
		mag = math.Float32bits(math.Float32frombits(mag) * 0x1p112)
	}
	return math.Float32frombits(mag | uint32(b&0x8000)<<16)
}

// Copy copies n elements of another tensor of the same format, from one on, to
// element at and those after it: of a codec a whole row, from one byte to another.
func (t *Tensor) Copy(at int, other *Tensor, from, n int) {
	switch t.DType {
	case graph.F32:
		copy(t.F32[at:at+n], other.F32[from:from+n])
	case graph.I32:
		copy(t.I32[at:at+n], other.I32[from:from+n])
	case graph.F16, graph.BF16:
		copy(t.U16[at:at+n], other.U16[from:from+n])
	default: // F8, or a row of a codec
		n = t.DType.RowBytes(n)
		copy(t.U8[at:at+n], other.U8[from:from+n])
	}
}

package cpu

import (
	"encoding/binary"
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
)

// bytesCodec puts rows into blocks of int8, and reads them, with vectors of an instruction set:
// the bits of package codec.
type bytesCodec struct {
	lanes    int
	largest  func(y *uint32, x *float32, n int)
	toInt8   func(y *byte, x *float32, by *float32, n int)
	fromInt8 func(y *float32, x *byte, by *float32, n int)
}

var (
	bytesAVX2   = bytesCodec{8, largestAVX2, toInt8AVX2, fromInt8AVX2}
	bytesAVX512 = bytesCodec{16, largestAVX512, toInt8AVX512, fromInt8AVX512}
)

// encode is codec.Encode. Blocks that are not full, or not of int8, or not finite are left to
// it.
func (v *bytesCodec) encode(c graph.Codec, dst []byte, src []float32) {
	if c.Kind != graph.Int8 {
		codec.Encode(c, dst, src)
		return
	}
	for ; len(src) >= c.Block; src, dst = src[c.Block:], dst[c.BlockBytes():] {
		var most [16]uint32
		v.largest(&most[0], &src[0], c.Block)
		high := uint32(0)
		for _, m := range most {
			high = max(high, m)
		}
		if high >= 0x7f800000 {
			codec.Encode(c, dst, src[:c.Block])
			continue
		}
		scale := codec.Scale(c.Kind, math.Float32frombits(high))
		binary.LittleEndian.PutUint16(dst, scale)
		by := 1 / math.Float32frombits(uint32(scale)<<16)
		v.toInt8(&dst[graph.ScaleBytes:c.BlockBytes()][0], &src[0], &by, c.Block)
	}
	codec.Encode(c, dst, src)
}

// decode is codec.Decode.
func (v *bytesCodec) decode(c graph.Codec, dst []float32, src []byte) {
	if c.Kind != graph.Int8 {
		codec.Decode(c, dst, src)
		return
	}
	for ; len(dst) >= c.Block; src, dst = src[c.BlockBytes():], dst[c.Block:] {
		scale := math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
		if codec.Overflows(c.Kind, scale) {
			codec.Decode(c, dst[:c.Block], src)
			continue
		}
		v.fromInt8(&dst[0], &src[graph.ScaleBytes:c.BlockBytes()][0], &scale, c.Block)
	}
	codec.Decode(c, dst, src)
}

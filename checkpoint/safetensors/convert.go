package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/krait-ml/krait/internal/files"
)

// Float64s converts a tensor of F64, F32, F16 or BF16, which is exact. Other
// dtypes, and data of the wrong size, are an error.
func (t Tensor) Float64s() ([]float64, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	switch t.DType {
	case "F64":
		return convert(t.Data, 8, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }), nil
	case "F32":
		return convert(t.Data, 4, func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }), nil
	case "F16":
		return convert(t.Data, 2, func(b []byte) float64 { return fromF16(le.Uint16(b)) }), nil
	case "BF16": // the upper half of an F32
		return convert(t.Data, 2, func(b []byte) float64 { return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16)) }), nil
	}
	return nil, fmt.Errorf("tensor %s: dtype %s is not F64, F32, F16 or BF16", files.Quote(t.Name), t.DType)
}

// Int64s converts a tensor of signed or unsigned integers. Other dtypes, a U64
// over the range of int64, and data of the wrong size, are an error.
func (t Tensor) Int64s() ([]int64, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	switch t.DType {
	case "I64":
		return convert(t.Data, 8, func(b []byte) int64 { return int64(le.Uint64(b)) }), nil
	case "I32":
		return convert(t.Data, 4, func(b []byte) int64 { return int64(int32(le.Uint32(b))) }), nil
	case "I16":
		return convert(t.Data, 2, func(b []byte) int64 { return int64(int16(le.Uint16(b))) }), nil
	case "I8":
		return convert(t.Data, 1, func(b []byte) int64 { return int64(int8(b[0])) }), nil
	case "U64":
		list := convert(t.Data, 8, func(b []byte) int64 { return int64(le.Uint64(b)) })
		for i, n := range list {
			if n < 0 {
				return nil, fmt.Errorf("tensor %s: element %d is %d, over the range of int64", files.Quote(t.Name), i, uint64(n))
			}
		}
		return list, nil
	case "U32":
		return convert(t.Data, 4, func(b []byte) int64 { return int64(le.Uint32(b)) }), nil
	case "U16":
		return convert(t.Data, 2, func(b []byte) int64 { return int64(le.Uint16(b)) }), nil
	case "U8":
		return convert(t.Data, 1, func(b []byte) int64 { return int64(b[0]) }), nil
	}
	return nil, fmt.Errorf("tensor %s: dtype %s is not an integer", files.Quote(t.Name), t.DType)
}

// convert reads elements of size bytes.
func convert[T any](data []byte, size int, read func([]byte) T) []T {
	list := make([]T, len(data)/size)
	for i := range list {
		list[i] = read(data[i*size:])
	}
	return list
}

// fromF16 reads an IEEE half: 1 bit of sign, 5 of exponent, 10 of fraction.
func fromF16(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	var x float64
	switch exponent {
	case 0: // subnormal
		x = math.Ldexp(fraction, -24)
	case 0x1f:
		x = math.Inf(1)
		if fraction != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits>>15 != 0 {
		x = -x
	}
	return x
}

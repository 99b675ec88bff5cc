package safetensors

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/files"
)

// dtypeBits gives the size of one element. Types below a byte are packed.
var dtypeBits = map[string]int{
	"F64": 64, "I64": 64, "U64": 64, "C64": 64,
	"F32": 32, "I32": 32, "U32": 32,
	"F16": 16, "BF16": 16, "I16": 16, "U16": 16,
	"I8": 8, "U8": 8, "BOOL": 8,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

// byteSize is the length of the data of a tensor. Sizes that do not fit in an
// int are an error, even where a zero elsewhere in the shape makes the tensor
// empty, so that users of the shape can multiply its entries in any order.
func byteSize(dtype string, shape []int) (int, error) {
	bits, ok := dtypeBits[dtype]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(dtypeBits)), " ")
		return 0, fmt.Errorf("unknown dtype %s; known are %s", files.Quote(dtype), known)
	}
	size, empty := int64(bits), false // in bits
	for _, n := range shape {
		switch {
		case n < 0:
			return 0, fmt.Errorf("shape has the negative entry %d", n)
		case n == 0:
			empty = true
		case int64(n) > math.MaxInt64/size:
			return 0, fmt.Errorf("%s is too large: its size overflows", describe(dtype, shape))
		default:
			size *= int64(n)
		}
	}
	switch {
	case empty:
		return 0, nil
	case size%8 != 0:
		return 0, fmt.Errorf("%s has %d bits, which is not a whole number of bytes", describe(dtype, shape), size)
	case size/8 > math.MaxInt:
		return 0, fmt.Errorf("%s is too large for this system: %d bytes", describe(dtype, shape), size/8)
	}
	return int(size / 8), nil
}

// check reports a tensor whose data does not have the size that its dtype and
// shape ask for. It guards everything that takes a tensor from a caller.
func (t Tensor) check() error {
	size, err := byteSize(t.DType, t.Shape)
	if err == nil && size != len(t.Data) {
		err = fmt.Errorf("%s needs %d bytes, its data has %d", describe(t.DType, t.Shape), size, len(t.Data))
	}
	if err != nil {
		return fmt.Errorf("tensor %s: %w", files.Quote(t.Name), err)
	}
	return nil
}

// describe writes a type as "F32 [2 3]". A shape from a hostile header may have
// millions of entries; it writes the first few.
func describe(dtype string, shape []int) string {
	const most = 16
	if len(shape) > most {
		return fmt.Sprintf("%s %v and %d more dimensions", dtype, shape[:most], len(shape)-most)
	}
	return fmt.Sprintf("%s %v", dtype, shape)
}

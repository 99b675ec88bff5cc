package gguf

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/graph"
)

// Type is the number format of a tensor, by its number in the file.
type Type uint32

// The formats whose elements Krait can read. Those from Q4_0 on have blocks of elements
// along the last axis, with scales of their own.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14

	IQ4_NL Type = 20
	IQ4_XS Type = 23

	F64  Type = 28
	BF16 Type = 30
)

// layout is a number format: the elements and bytes of a block.
type layout struct {
	name         string
	elems, bytes int
}

// layouts lists all types of GGUF, also those that Krait cannot read: their sizes tell whether a
// file is complete.
var layouts = map[Type]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, F64: {"F64", 1, 8},
	24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, 9: {"Q8_1", 32, 36},
	10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74}, 18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50}, IQ4_NL: {"IQ4_NL", 32, 18},
	21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82}, IQ4_XS: {"IQ4_XS", 256, 136}, 29: {"IQ1_M", 256, 56},
	34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, 39: {"MXFP4", 32, 17}, 40: {"NVFP4", 64, 36}, 41: {"Q1_0", 128, 18}, 42: {"Q2_0", 64, 18},
}

// dtypes are the formats that Krait reads: kernels take the bytes of the file.
var dtypes = map[Type]graph.DType{
	F32: graph.F32, F16: graph.F16, BF16: graph.BF16, F64: graph.F64, Q8_0: graph.Q8,
	Q4_0: graph.Q4_0, Q4_1: graph.Q4_1, Q5_0: graph.Q5_0, Q5_1: graph.Q5_1, IQ4_NL: graph.IQ4_NL,
	IQ4_XS: graph.IQ4_XS, Q4_K: graph.Q4_K, Q5_K: graph.Q5_K, Q6_K: graph.Q6_K,
}

// DType is the format in graphs; NoDType if Krait does not read it.
func (t Type) DType() graph.DType { return dtypes[t] }

// String is the format's name, such as F32 or Q8_0.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Size returns the bytes of a tensor of a shape. It is an error if the last axis is not a whole
// number of blocks.
func (t Type) Size(shape []int) (int, error) {
	l, ok := layouts[t]
	if !ok {
		return 0, fmt.Errorf("unknown tensor type %d; Krait knows those of ggml up to 42", uint32(t))
	}
	last := 1
	if len(shape) > 0 {
		last = shape[len(shape)-1]
	}
	if last%l.elems != 0 {
		return 0, fmt.Errorf("%s %v: the last axis is not a multiple of %d, the elements of a block", t, shape, l.elems)
	}
	size := int64(l.bytes)
	for i, n := range shape {
		if i == len(shape)-1 {
			n /= l.elems
		}
		switch {
		case n < 0:
			return 0, fmt.Errorf("the shape has the negative entry %d", n)
		case n > 0 && size > math.MaxInt64/int64(n):
			return 0, fmt.Errorf("%s %v is too large: its size overflows", t, shape)
		}
		size *= int64(n)
	}
	if size > math.MaxInt {
		return 0, fmt.Errorf("%s %v is too large for this system: %d bytes", t, shape, size)
	}
	return int(size), nil
}

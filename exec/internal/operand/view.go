package operand

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// View looks at bytes as numbers of the machine, which is little-endian.
func View[T float32 | uint16 | int32](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// Floats looks at bytes as numbers of a float format, or a row of a codec, to be read and written
// as f32.
func Floats(d graph.DType, b []byte) kernels.Tensor {
	switch {
	case d == graph.F32:
		return kernels.Tensor{DType: d, F32: View[float32](b)}
	case d == graph.F8, d.InBlocks():
		return kernels.Tensor{DType: d, U8: b}
	}
	return kernels.Tensor{DType: d, U16: View[uint16](b)}
}

// Bytes is the memory of elements.
func Bytes[T float32 | uint16 | int32](list []T) []byte {
	if len(list) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), len(list)*int(unsafe.Sizeof(list[0])))
}

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Struct is a parameter that is a structure of C: its fields in order.
type Struct []any

// Params lays parameters out as a kernel's parameter list does, each at the next
// multiple of its size: uint64 for pointers and int64 for strides, int and bool
// as 32 bits, float32, float64, and Struct, which ends at a multiple of its
// alignment, as in C.
func Params(values ...any) []byte {
	var b []byte
	for _, v := range values {
		b = pad(b, alignOf(v))
		b = appendParam(b, v)
	}
	return b
}

func appendParam(b []byte, v any) []byte {
	le := binary.LittleEndian
	switch v := v.(type) {
	case uint64:
		return le.AppendUint64(b, v)
	case int64:
		return le.AppendUint64(b, uint64(v))
	case float64:
		return le.AppendUint64(b, math.Float64bits(v))
	case float32:
		return le.AppendUint32(b, math.Float32bits(v))
	case int:
		if v != int(int32(v)) {
			panic(fmt.Sprintf("BUG: a kernel's parameter is %d, which has more than 32 bits", v))
		}
		return le.AppendUint32(b, uint32(v))
	case bool:
		if v {
			return le.AppendUint32(b, 1)
		}
		return le.AppendUint32(b, 0)
	case Struct:
		return pad(append(b, Params(v...)...), alignOf(v))
	}
	panic(fmt.Sprintf("BUG: a kernel's parameter is a %T", v))
}

func alignOf(v any) int {
	switch v := v.(type) {
	case uint64, int64, float64:
		return 8
	case Struct:
		align := 1
		for _, field := range v {
			align = max(align, alignOf(field))
		}
		return align
	}
	return 4
}

func pad(b []byte, align int) []byte {
	for len(b)%align != 0 {
		b = append(b, 0)
	}
	return b
}

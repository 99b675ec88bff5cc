package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"
)

// Array is a tensor in host memory: little-endian elements, last axis fastest, or the
// blocks of a [Format].
// From says where it comes from, for errors.
type Array struct {
	DType DType
	Shape []int
	Data  []byte
	From  string
}

// Elems is the number of elements.
func (a Array) Elems() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// Convert returns the array in another float format; the same array when it
// has it already. What becomes blocks is rounded, and must be finite.
func (a Array) Convert(d DType) (Array, error) {
	if a.DType == d {
		return a, nil
	}
	switch {
	case a.DType.Quantized():
		wide := ArrayOf(a.Float32s(), a.Shape...)
		wide.From = a.From
		return wide.Convert(d)
	case a.DType.Float() && d.Quantized():
		return a.ToBlocks(d, nil)
	case !a.DType.Float() || !d.Float():
		return Array{}, fmt.Errorf("%s: cannot read %s as %s", a.From, a.DType, d)
	}
	n := a.Elems()
	out := Array{d, a.Shape, make([]byte, n*d.Bytes()), a.From}
	for i := range n {
		putFloat(out.Data, i, d, floatAt(a.Data, i, a.DType))
	}
	return out, nil
}

// Rows returns rows lo to hi of a matrix, or of several behind each other, as one matrix.
func (a Array) Rows(lo, hi int) Array {
	cols := a.Shape[len(a.Shape)-1]
	line := sizeOf(a.DType, []int{1, cols})
	rows := Array{a.DType, []int{hi - lo, cols}, a.Data[lo*line : hi*line], a.From}
	if lo > 0 {
		rows.From += fmt.Sprintf(", from row %d on", lo)
	}
	return rows
}

// floatAt reads element i.
func floatAt(data []byte, i int, d DType) float64 {
	switch d {
	case F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	case F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	case F16:
		return float64(float16.Frombits(binary.LittleEndian.Uint16(data[2*i:])).Float32())
	case F8:
		return float64(E4M3Values[data[i]])
	}
	return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16))
}

// putFloat writes element i, rounded to nearest even.
func putFloat(data []byte, i int, d DType, v float64) {
	switch d {
	case F64:
		binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(v))
	case F32:
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(v)))
	case F16:
		binary.LittleEndian.PutUint16(data[2*i:], float16.Fromfloat32(float32(v)).Bits())
	case BF16:
		binary.LittleEndian.PutUint16(data[2*i:], bf16(float32(v)))
	case F8:
		data[i] = ToE4M3(float32(v))
	}
}

// bf16 rounds to the nearest bfloat16, ties to even; a NaN stays one.
func bf16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32s returns the elements of a float array as float32, also of one in blocks.
func (a Array) Float32s() []float32 {
	out := make([]float32, a.Elems())
	if a.DType.Quantized() {
		blocksOf(a.DType, a.Shape[len(a.Shape)-1]).Read(out, a.Data, 0)
		return out
	}
	for i := range out {
		out[i] = float32(floatAt(a.Data, i, a.DType))
	}
	return out
}

// ArrayOf makes an f32 array.
func ArrayOf(values []float32, shape ...int) Array {
	a := Array{DType: F32, Shape: shape, Data: make([]byte, 4*len(values))}
	for i, v := range values {
		putFloat(a.Data, i, F32, float64(v))
	}
	return a
}

package safetensors

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/x448/float16"
)

// encode writes values as little-endian bytes.
func encode(t *testing.T, values any) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFloat64s(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		dtype string
		bits  any
		want  []float64
	}{
		{"F64", []float64{math.Pi, -inf, nan, 5e-324}, []float64{math.Pi, -inf, nan, 5e-324}},
		{"F32", []float32{0.1, math.MaxFloat32, 1e-45}, []float64{float64(float32(0.1)), math.MaxFloat32, math.SmallestNonzeroFloat32}},
		{"BF16", []uint16{0x3f80, 0xbfc0, 0x7f80, 0x7fc0, 0x0001}, []float64{1, -1.5, inf, nan, 0x1p-133}},
		{"F16", []uint16{0x3c00, 0xc100, 0xfc00, 0x7e00, 0x0001, 0x7bff}, []float64{1, -2.5, -inf, nan, 0x1p-24, 65504}},
	} {
		got, err := Tensor{"w", c.dtype, []int{len(c.want)}, encode(t, c.bits)}.Float64s()
		if err != nil || !cmp.Equal(got, c.want, cmpopts.EquateNaNs()) {
			t.Errorf("%s: got %v, %v, want %v", c.dtype, got, err, c.want)
		}
	}
}

// All halves, against another implementation.
func TestFromF16(t *testing.T) {
	for bits := range 1 << 16 {
		got, want := fromF16(uint16(bits)), float64(float16.Frombits(uint16(bits)).Float32())
		same := math.Float64bits(got) == math.Float64bits(want) // tells -0 from 0
		if !same && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("%#04x: got %v, want %v", bits, got, want)
		}
	}
}

func TestInt64s(t *testing.T) {
	for _, c := range []struct {
		dtype  string
		values any
		want   []int64
	}{
		{"I64", []int64{math.MinInt64, math.MaxInt64}, []int64{math.MinInt64, math.MaxInt64}},
		{"I32", []int32{math.MinInt32, math.MaxInt32}, []int64{math.MinInt32, math.MaxInt32}},
		{"I16", []int16{math.MinInt16, math.MaxInt16}, []int64{math.MinInt16, math.MaxInt16}},
		{"I8", []int8{-128, 127}, []int64{-128, 127}},
		{"U64", []uint64{0, math.MaxInt64}, []int64{0, math.MaxInt64}},
		{"U32", []uint32{0, math.MaxUint32}, []int64{0, math.MaxUint32}},
		{"U16", []uint16{0, math.MaxUint16}, []int64{0, math.MaxUint16}},
		{"U8", []uint8{0, 255}, []int64{0, 255}},
	} {
		got, err := Tensor{"w", c.dtype, []int{2}, encode(t, c.values)}.Int64s()
		if err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, want %v", c.dtype, got, err, c.want)
		}
	}
}

func TestConvertErrors(t *testing.T) {
	floats := func(t Tensor) error { _, err := t.Float64s(); return err }
	ints := func(t Tensor) error { _, err := t.Int64s(); return err }
	for _, c := range []struct {
		name    string
		convert func(Tensor) error
		tensor  Tensor
		want    string
	}{
		{"floats of integers", floats, Tensor{"w", "I64", nil, make([]byte, 8)}, `tensor "w": dtype I64 is not F64, F32, F16 or BF16`},
		{"floats of bad data", floats, Tensor{"w", "F32", []int{2}, make([]byte, 7)}, `tensor "w": F32 [2] needs 8 bytes, its data has 7`},
		{"integers of floats", ints, Tensor{"w", "F64", nil, make([]byte, 8)}, `tensor "w": dtype F64 is not an integer`},
		{"integers of bad data", ints, Tensor{"w", "I8", []int{2}, nil}, `its data has 0`},
		{"U64 over int64", ints, Tensor{"w", "U64", []int{2}, encode(t, []uint64{1, 1 << 63})}, `tensor "w": element 1 is 9223372036854775808`},
	} {
		if err := c.convert(c.tensor); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

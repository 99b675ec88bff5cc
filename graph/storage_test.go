package graph

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// counting is an f32 array whose element i is base + i.
func counting(name string, base int, shape ...int) Array {
	a := Array{DType: F32, Shape: shape, From: name}
	values := make([]float32, a.Elems())
	for i := range values {
		values[i] = float32(base + i)
	}
	a.Data = ArrayOf(values).Data
	return a
}

func finder(arrays ...Array) func(string) (Array, error) {
	return func(name string) (Array, error) {
		for _, a := range arrays {
			if a.From == name {
				return a, nil
			}
		}
		return Array{}, errors.New("no " + name)
	}
}

func TestStorage(t *testing.T) {
	file := finder(counting("a", 0, 4, 2), counting("b", 100, 2, 2), counting("conv", 0, 3, 1, 2), counting("cube", 0, 2, 3, 4))
	for _, c := range []struct {
		name string
		s    *Storage
		t    Type
		want string
	}{
		{"as it lies", Stored("a"), TypeOf(F32, Size(4), Size(2)), "[0 1 2 3 4 5 6 7]"},
		{"the parameter's own name", nil, TypeOf(F32, Size(4), Size(2)), "error: no param"},
		{"an axis of size 1 in the file", Stored("conv", 3, 1, 2), TypeOf(F32, Size(3), Size(2)), "[0 1 2 3 4 5]"},
		{"interleaved rows", &Storage{Pieces: []Piece{{"a", 0, 2, 2}, {"a", 1, 2, 2}}}, TypeOf(F32, Pack(Field{"x", 2, 1}, Field{"z", 2, 1}), Size(2)), "[0 1 4 5 2 3 6 7]"},
		{"two tensors", &Storage{Pieces: []Piece{{Tensor: "a"}, {Tensor: "b"}}}, TypeOf(F32, Size(6), Size(2)), "[0 1 2 3 4 5 6 7 100 101 102 103]"},
		{"a row range", &Storage{Pieces: []Piece{{"a", 1, 1, 2}}}, TypeOf(F32, Size(2), Size(2)), "[2 3 4 5]"},
		{"transposed", &Storage{Pieces: []Piece{{Tensor: "a"}}, Perm: []int{1, 0}}, TypeOf(F32, Size(2), Size(4)), "[0 2 4 6 1 3 5 7]"},
		{"permuted", &Storage{Pieces: []Piece{{Tensor: "cube"}}, Perm: []int{2, 0, 1}}, TypeOf(F32, Size(4), Size(2), Size(3)),
			"[0 4 8 12 16 20 1 5 9 13 17 21 2 6 10 14 18 22 3 7 11 15 19 23]"},
		{"wrong shape", Stored("a"), TypeOf(F32, Size(2), Size(4)), "error: a has shape [4 2], expected [2 4]"},
		{"too few rows", &Storage{Pieces: []Piece{{"a", 1, 2, 3}}}, TypeOf(F32, Size(3), Size(2)), "error: a has shape [4 2]: no rows 1 to 5 of 8 bytes"},
		{"pieces too short", &Storage{Pieces: []Piece{{Tensor: "a"}, {Tensor: "b"}}}, TypeOf(F32, Size(7), Size(2)), "error: a: its pieces give 48 bytes, expected 56 for shape [7 2]"},
		{"perm of other axes", &Storage{Pieces: []Piece{{Tensor: "a"}}, Perm: []int{0, 1, 2}}, TypeOf(F32, Size(4), Size(2)), "error: a has shape [4 2], expected 3 axes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := c.s.Load("param", c.t, 1, 0, file)
			got := ""
			if err != nil {
				got = "error: " + err.Error()
			} else {
				got = fmt.Sprint(a.Float32s())
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestSlice: a field of the rows, or of the second axis, is what a cut of the whole has.
// TestStorageFormats: a parameter whose pieces have several formats has the values of all,
// in either order; and blocks count as a format.
func TestStorageFormats(t *testing.T) {
	wide := func(name string, d DType) Array {
		a, err := counting(name, 0, 2, 33).Convert(d)
		if err != nil {
			t.Fatal(err)
		}
		a.From = name
		return a
	}
	formats := []DType{F32, F16, BF16, Q8, Q4_K}
	for _, first := range formats {
		for _, second := range formats {
			a, b := wide("a", first), wide("b", second)
			s := &Storage{Shape: []int{2, 33}, Pieces: []Piece{{"b", 1, 1, 1}, {Tensor: "a"}}}
			got, err := s.Load("param", TypeOf(F32, Size(3), Size(33)), 1, 0, finder(a, b))
			if err != nil {
				t.Fatalf("%s, %s: %v", first, second, err)
			}
			want := append(slices.Clone(b.Float32s()[33:]), a.Float32s()...)
			if got.DType != F32 || !slices.Equal(got.Float32s(), want) {
				t.Errorf("%s, %s: got %s %v, want %v", first, second, got.DType, got.Float32s(), want)
			}
		}
	}
}

func TestSlice(t *testing.T) {
	whole := counting("w", 0, 3, 6, 2)
	typ := TypeOf(F32, Size(3), Size(6), Size(2))
	for _, c := range []struct {
		axis, start, size int
		want              string
	}{
		{0, 1, 2, "[12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35]"},
		{1, 0, 3, "[0 1 2 3 4 5 12 13 14 15 16 17 24 25 26 27 28 29]"},
		{1, 4, 2, "[8 9 10 11 20 21 22 23 32 33 34 35]"},
		{1, 0, 4, "error: w: 4 of the 6 parts of each row, from 0 on, can be taken only of one tensor, and where all parts are of one size"},
		{1, 1, 2, "error: w: 2 of the 6 parts of each row, from 1 on, can be taken"},
		{1, 0, 0, "error: w: 0 of the 6 parts"},
		{2, 0, 1, "error: w: only rows of a parameter, and parts of its rows if it is not permuted, can be taken apart"},
	} {
		got := ""
		s, err := (*Storage)(nil).Slice("w", typ, c.axis, c.start, c.size)
		if err == nil {
			part := TypeOf(F32, slices.Clone(typ.Dims)...)
			part.Dims[c.axis] = Size(c.size)
			var a Array
			a, err = s.Load("w", part, 1, 0, finder(whole))
			got = fmt.Sprint(a.Float32s())
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("axis %d, %d from %d: %s, want %s", c.axis, c.size, c.start, got, c.want)
		}
	}
	for name, s := range map[string]*Storage{"rows of a tensor": {Pieces: []Piece{{"w", 0, 1, 3}}}, "two tensors": {Pieces: []Piece{{Tensor: "w"}, {Tensor: "v"}}}} {
		if _, err := s.Slice("w", typ, 1, 0, 3); err == nil || !strings.Contains(err.Error(), "can be taken only of one tensor") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSlicePermuted: rows of a permuted parameter are columns of its tensor.
func TestSlicePermuted(t *testing.T) {
	stored := &Storage{Pieces: []Piece{{Tensor: "w"}}, Perm: []int{1, 0}}
	typ := TypeOf(F32, Size(3), Size(2))
	s, err := stored.Slice("w", typ, 0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	shape, err1 := s.TensorShape("w", TypeOf(F32, Size(2), Size(2)))
	a, err2 := s.Load("w", TypeOf(F32, Size(2), Size(2)), 1, 0, finder(counting("w", 0, 2, 3))) // 0 1 2, 3 4 5
	if err1 != nil || err2 != nil || !slices.Equal(shape, []int{2, 3}) || !slices.Equal(a.Float32s(), []float32{1, 4, 2, 5}) {
		t.Errorf("tensor %v, rows %v; %v, %v", shape, a.Float32s(), err1, err2)
	}
	if _, err := stored.Slice("w", typ, 1, 0, 1); err == nil || !strings.Contains(err.Error(), "if it is not permuted") {
		t.Error(err)
	}
}

// TestTensorShape: pieces say how many rows a tensor has; where they leave it open, it is an error.
func TestTensorShape(t *testing.T) {
	typ := TypeOf(F32, Size(4), Size(6))
	for _, c := range []struct {
		s    Storage
		want string
	}{
		{*Stored("w"), "[4 6]"},
		{*Stored("w", 4, 1, 6), "[4 1 6]"},
		{Storage{Pieces: []Piece{{Tensor: "w"}}, Perm: []int{1, 0}}, "[6 4]"},
		{Storage{Pieces: []Piece{{"w", 1, 2, 4}}}, "[8 6]"},
		{Storage{Pieces: []Piece{{"w", 0, 1, 2}, {"w", 5, 1, 2}}}, "[7 6]"},
		{Storage{Pieces: []Piece{{Tensor: "w"}, {Tensor: "v"}}}, "[2 6]"},
		{Storage{Pieces: []Piece{{Tensor: "w"}, {Tensor: "v"}, {Tensor: "u"}}}, `the rows of tensor "w" of several are not known`},
		{Storage{Pieces: []Piece{{Tensor: "w"}}, Perm: []int{0}}, "perm [0] of 2 axes"},
	} {
		shape, err := c.s.TensorShape("w", typ)
		got := fmt.Sprint(shape)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", &c.s, got, c.want)
		}
	}
}

func TestStorageIsAView(t *testing.T) {
	a := counting("a", 0, 6, 2)
	typ := Type{DType: F32, Dims: []Dim{Size(6), Size(2)}, Layout: SplitOn(0, 1)}
	got, err := Stored("a").Load("", typ, 3, 1, finder(a))
	if err != nil || &got.Data[0] != &a.Data[4*4] || !slices.Equal(got.Shape, []int{2, 2}) {
		t.Errorf("rows 2 and 3 are %v (%v), and should be a view", got, err)
	}
}

// TestStorageShards: what the ranks load is what the extents say, along any axis.
func TestStorageShards(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		dims := []Dim{Size(rapid.IntRange(1, 5).Draw(t, "rows")), Pack(genField(t, "x"), genField(t, "y")), Size(rapid.IntRange(1, 3).Draw(t, "depth"))}
		axis := rapid.IntRange(0, 2).Draw(t, "axis")
		typ := Type{DType: F32, Dims: dims, Layout: SplitOn(axis, len(dims[axis].Fields))}
		whole := counting("w", 0, typ.shape()...)
		ranks := rapid.IntRange(1, 6).Draw(t, "ranks")
		for r := range ranks {
			got, err := Stored("w").Load("", typ, ranks, r, finder(whole))
			if err != nil {
				t.Fatal(err)
			}
			if want := heldBy(typ, ranks, r); !slices.Equal(got.Float32s(), want) {
				t.Fatalf("rank %d of %d of %s: %v, want %v", r, ranks, typ, got.Float32s(), want)
			}
		}
	})
}

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		d    DType
		v    float32
		bits uint16
	}{
		{BF16, 1, 0x3f80}, {BF16, 1.00390625, 0x3f80}, {BF16, 1.01171875, 0x3f82}, {BF16, -2.5, 0xc020}, // ties to even
		{F16, 1, 0x3c00}, {F16, 65504, 0x7bff}, {F16, 5.9604645e-08, 0x0001}, {F16, -0.5, 0xb800},
	} {
		a, err := ArrayOf([]float32{c.v}, 1).Convert(c.d)
		if err != nil || binary.LittleEndian.Uint16(a.Data) != c.bits {
			t.Errorf("%v as %s: %x (%v), want %x", c.v, c.d, a.Data, err, c.bits)
		}
	}
	if _, err := (Array{DType: I32, Shape: []int{1}, Data: make([]byte, 4), From: "x"}).Convert(F32); err == nil || !strings.Contains(err.Error(), "cannot read i32 as f32") {
		t.Error(err)
	}
}

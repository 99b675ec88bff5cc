package graph

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/x448/float16"
)

// blockByHand finds scale and numbers by trying all there are.
func blockByHand(x []float32) []byte {
	most := 0.0
	for _, v := range x {
		most = math.Max(most, math.Abs(float64(v)))
	}
	value := func(bits int) float64 { return float64(float16.Frombits(uint16(bits)).Float32()) }
	want, scale := float64(float32(most)/127), 0
	for bits := range 0x7c00 {
		off, best := math.Abs(value(bits)-want), math.Abs(value(scale)-want)
		if off < best || off == best && bits%2 == 0 {
			scale = bits
		}
	}
	if 127.5*value(scale) < most {
		scale++
	}
	out := binary.LittleEndian.AppendUint16(nil, uint16(scale))
	for i := range 32 {
		nearest := 0
		for q := -127; i < len(x) && q <= 127; q++ {
			off, best := math.Abs(float64(x[i])-value(scale)*float64(q)), math.Abs(float64(x[i])-value(scale)*float64(nearest))
			if off < best || off == best && max(q, -q) > max(nearest, -nearest) && value(scale) > 0 {
				nearest = q
			}
		}
		out = append(out, byte(nearest))
	}
	return out
}

// TestBlocksExact: the bytes of blocks are those of trying everything, at magnitudes
// from below the least scale to near the largest, also where lines end inside of a
// block, and halves between two numbers.
func TestBlocksExact(t *testing.T) {
	const seed = 21
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 120 {
		rows, cols := 1+rng.IntN(3), 1+rng.IntN(70)
		x := make([]float32, rows*cols)
		size := math.Exp2(float64(rng.IntN(52) - 30))
		for j := range x {
			switch x[j] = float32(rng.NormFloat64() * size); {
			case i%4 == 1:
				x[j] = float32(float64(rng.IntN(509)-254) / 2 * math.Exp2(float64(i%30-20))) // halves
			case i%4 == 2 && rng.IntN(3) > 0:
				x[j] = 0
			}
		}
		var want []byte
		for row := range slices.Chunk(x, cols) {
			for block := range slices.Chunk(row, 32) {
				want = append(want, blockByHand(block)...)
			}
		}
		a, err := ArrayOf(x, rows, cols).Convert(Q8)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Data) != rows*((cols+31)/32)*34 || !bytes.Equal(a.Data, want) {
			t.Fatalf("seed %d, case %d: %v in rows of %d is\n%x, want\n%x", seed, i, x, cols, a.Data, want)
		}
		wide, err := a.Convert(F32)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range wide.Float32s() {
			block := want[(j/cols*((cols+31)/32)+j%cols/32)*34:]
			scale := float16.Frombits(binary.LittleEndian.Uint16(block)).Float32()
			if v != scale*float32(int8(block[2+j%cols%32])) || math.Abs(float64(v)-float64(x[j])) > float64(scale)/2 {
				t.Fatalf("seed %d, case %d: %g is %g with a scale of %g", seed, i, x[j], v, scale)
			}
		}
	}
}

func TestBlocksRefuse(t *testing.T) {
	matrix := func(v float64) Array {
		x := make([]float32, 3*40)
		x[2*40+35] = float32(v)
		a := ArrayOf(x, 3, 40)
		a.From = "w"
		return a
	}
	for v, want := range map[float64]string{
		math.NaN():   "w: row 2, columns 32 to 39: NaN is not a finite number",
		math.Inf(-1): "w: row 2, columns 32 to 39: -Inf is not a finite number",
		9e6:          "w: row 2, columns 32 to 39: 9e+06 is larger than an 8-bit block can hold",
	} {
		if _, err := matrix(v).Convert(Q8); err == nil || err.Error() != want {
			t.Errorf("%g: %v, want %s", v, err, want)
		}
	}
	if _, err := matrix(65504 * 127).Convert(Q8); err != nil {
		t.Error(err)
	}
	if _, err := ArrayOf([]float32{1}, 1).Convert(Q8); err == nil || !strings.Contains(err.Error(), "only matrices can be in blocks") {
		t.Error(err)
	}
	for typ, want := range map[string]string{
		"%x = input : q8[3 4]":   "only a parameter may be in blocks",
		"@x = param : q8[4]":     "only matrices can be in blocks",
		"@x = param : q8[t 4]":   "only parameters can be in blocks",
		"%x = state : q8[s 4 4]": "only parameters can be in blocks",
	} {
		name, rest, _ := strings.Cut(typ, " = ")
		op, typ, _ := strings.Cut(rest, " : ")
		text := fmt.Sprintf("graph \"g\" stage=model ranks=1\n%s %s : %s\n", op, name, typ)
		g, err := Parse(text)
		if err == nil {
			err = Check(g)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// blockTypes are the formats of weights in blocks.
func blockTypes() (list []DType) {
	for d := Q8; d.Quantized(); d++ {
		list = append(list, d)
	}
	return list
}

// anyBlocks are blocks of any bits, but with scales and codes that are finite.
func anyBlocks(rng *rand.Rand, d DType, shape ...int) Array {
	a := Array{d, shape, make([]byte, sizeOf(d, shape)), ""}
	for i := range a.Data {
		a.Data[i] = byte(rng.Uint32())
	}
	for at := 0; at < len(a.Data); at += d.Format().Bytes {
		if d >= FP8_128 {
			anyParts(rng, d, a.Data[at:][:d.Format().Bytes])
		}
		for _, scale := range d.Format().Scales {
			binary.LittleEndian.PutUint16(a.Data[at+scale:], float16.Fromfloat32(float32(rng.NormFloat64())).Bits())
		}
	}
	return a
}

// anyParts makes a block of any codes and scales, none of them NaN, and the scale of MXFP4 small.
func anyParts(rng *rand.Rand, d DType, b []byte) {
	p := Parts{Scale: float32(rng.NormFloat64()), Scales: make([]byte, 8), Zero: byte(rng.IntN(16)), Codes: make([]byte, d.Format().Elems)}
	for i := range p.Scales {
		p.Scales[i] = byte(rng.IntN(127))
	}
	if d == MXFP4 {
		p.Scales = []byte{byte(120 + rng.IntN(12))}
	}
	for i := range p.Codes {
		if p.Codes[i] = byte(rng.IntN(127) | rng.IntN(2)<<7); d > FP8_32 {
			p.Codes[i] &= 15
		}
	}
	d.Pack(b, &p)
}

// drawnBlocks draws a parameter, how it lies over ranks and in its tensors.
func drawnBlocks(rng *rand.Rand, d DType) (Type, *Storage, map[string]Array) {
	dims := []Dim{Size(1 + rng.IntN(9)), Size(1 + rng.IntN(3*d.Format().Elems))}
	if rng.IntN(3) == 0 {
		dims = slices.Insert(dims, 1, Size(1+rng.IntN(5)))
	}
	axis := rng.IntN(len(dims))
	n := dims[axis].Len()
	switch cut := rng.IntN(n + 1); rng.IntN(3) {
	case 0:
		dims[axis] = Pack(Field{Name: "a", Size: cut, Unit: 1}, Field{Name: "b", Size: n - cut, Unit: 1})
	case 1:
		if n%3 == 0 {
			dims[axis] = Units(n, 3)
		}
	}
	t := TypeOf(d, dims...)
	shape := t.shape()
	if rng.IntN(4) > 0 {
		t.Layout = SplitOn(axis, len(dims[axis].Fields))
	}
	s, tensors := Stored("w"), map[string]Array{}
	names := []string{"w"}
	if rng.IntN(3) == 0 { // rows of two tensors in turns, of which each has more
		s = &Storage{Pieces: []Piece{{"w", 1, 2, shape[0] / 2}, {"v", 0, 3, shape[0] - shape[0]/2}}, Shape: append([]int{3 * shape[0]}, shape[1:]...)}
		if shape[0] < 2 {
			s.Pieces = s.Pieces[1:]
		}
		names = []string{"w", "v"}
		shape = s.Shape
	}
	for _, name := range names {
		a := anyBlocks(rng, d, shape...)
		a.From = name
		tensors[name] = a
	}
	return t, s, tensors
}

// TestLoadBlocks: what ranks hold of a parameter in blocks are the elements that they
// hold of the same parameter in f32, wherever blocks are cut, and of as many bytes as
// the type says; the whole is the file's memory.
func TestLoadBlocks(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 800 {
		typ, s, tensors := drawnBlocks(rng, blockTypes()[i%len(blockTypes())])
		wide := typ
		wide.DType = F32
		find := func(name string) (Array, error) { return tensors[name], nil }
		ranks := 1 + rng.IntN(5)
		for rank := range ranks {
			a, err := s.Load("p", typ, ranks, rank, find)
			if err != nil {
				t.Fatal(err)
			}
			want, err := s.Load("p", wide, ranks, rank, find)
			if err != nil {
				t.Fatal(err)
			}
			b, local := BlocksOf(typ, ranks, rank), typ.Local(ranks, rank)
			got := make([]float32, want.Elems())
			b.Read(got, a.Data, 0)
			if len(a.Data) != b.Bytes(local.Lines()) || !slices.Equal(got, want.Float32s()) {
				t.Fatalf("seed %d, case %d: rank %d of %d of %s has %d bytes and %v, want %v", seed, i, rank, ranks, typ, len(a.Data), got, want.Float32s())
			}
			if from := rng.IntN(len(got) + 1); true {
				part := make([]float32, rng.IntN(len(got)-from+1))
				if b.Read(part, a.Data, from); !slices.Equal(part, got[from:from+len(part)]) {
					t.Fatalf("seed %d, case %d: elements from %d are %v, want %v", seed, i, from, part, got[from:])
				}
			}
			if typ.Layout.Kind == Replicated && len(s.Pieces) == 1 && s.Shape == nil && &a.Data[0] != &tensors["w"].Data[0] {
				t.Fatalf("seed %d, case %d: %s was copied", seed, i, typ)
			}
		}
	}
}

// TestLoadDamagedBlocks: a scale that is no number is found by the rank that has it.
func TestLoadDamagedBlocks(t *testing.T) {
	for _, bits := range []uint16{0x7c00, 0xfc00, 0x7e01} {
		a := Array{DType: Q8, Shape: []int{6, 70}, Data: make([]byte, 6*3*34)}
		a.From = "file: tensor w"
		binary.LittleEndian.PutUint16(a.Data[(4*3+1)*34:], bits)
		typ := TypeOf(Q8, Size(6), Size(70))
		typ.Layout = SplitOn(0, 1)
		for rank := range 2 {
			_, err := Stored("w").Load("w", typ, 2, rank, func(string) (Array, error) { return a, nil })
			want := fmt.Sprintf("file: tensor w is damaged: the scale of a block is %g (block 1 of row 1 of what the rank holds)", float16.Frombits(bits).Float32())
			if (err != nil) != (rank == 1) || err != nil && err.Error() != want {
				t.Errorf("rank %d: %v, want %s", rank, err, want)
			}
		}
	}
	a, _ := ArrayOf(make([]float32, 64), 2, 32).Convert(Q8)
	a.From = "w"
	for _, typ := range []Type{TypeOf(F32, Size(64)), TypeOf(Q8, Size(4), Size(16)), TypeOf(F32)} {
		s := &Storage{Pieces: []Piece{{Tensor: "w"}}, Shape: []int{2, 32}}
		if _, err := s.Load("w", typ, 1, 0, func(string) (Array, error) { return a, nil }); err == nil || !strings.Contains(err.Error(), "in blocks along the last axis, which is not that of the parameter") {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// TestDamagedScales: each scale of each format is looked at.
func TestDamagedScales(t *testing.T) {
	for _, d := range blockTypes() {
		f := d.Format()
		for _, scale := range f.Scales {
			a := Array{DType: d, Shape: []int{2, f.Elems}, Data: make([]byte, 2*f.Bytes), From: "w"}
			binary.LittleEndian.PutUint16(a.Data[f.Bytes+scale:], 0x7c00)
			_, err := Stored("w").Load("w", TypeOf(d, Size(2), Size(f.Elems)), 1, 0, func(string) (Array, error) { return a, nil })
			if err == nil || !strings.Contains(err.Error(), "w is damaged: the scale of a block is +Inf (block 0 of row 1") {
				t.Errorf("%s: %v", d, err)
			}
		}
	}
}

// TestEncode holds what numbers become to the error that the bits of a format allow: of normal
// numbers, of ones far apart in size, of one sign, and of zeros; and to the numbers themselves
// where
// the format has them.
func TestEncode(t *testing.T) {
	most := map[DType]float64{Q8: 0.008, Q4_0: 0.12, Q4_1: 0.09, Q5_0: 0.06, Q5_1: 0.045, IQ4_NL: 0.095, IQ4_XS: 0.095, Q4_K: 0.09, Q5_K: 0.045, Q6_K: 0.025,
		FP8_128: 0.027, FP8_32: 0.027, NVFP4: 0.095, MXFP4: 0.13, INT4_128: 0.12, INT4_32: 0.09}
	rng := rand.New(rand.NewPCG(11, 0))
	for _, d := range blockTypes() {
		cols := 2 * d.Format().Elems
		for kind, draw := range map[string]func() float64{
			"normal": rng.NormFloat64, "small": func() float64 { return rng.NormFloat64() * 0x1p-9 },
			"large":    func() float64 { return rng.NormFloat64() * 3000 },
			"positive": func() float64 { return math.Abs(rng.NormFloat64()) }, "zero": func() float64 { return 0 },
		} {
			x := make([]float32, 8*cols)
			var squares, off float64
			for i := range x {
				x[i] = float32(draw())
				squares += float64(x[i]) * float64(x[i])
			}
			a, err := ArrayOf(x, 8, cols).Convert(d)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range a.Float32s() {
				off += math.Pow(float64(v-x[i]), 2)
			}
			if share := math.Sqrt(off / squares); !(share <= most[d]*1.2) && squares > 0 || squares == 0 && off > 0 {
				t.Errorf("%s, %s: relative error %.4f", d, kind, share)
			}
			if kind != "small" {
				continue
			}
			again, err := ArrayOf(a.Float32s(), 8, cols).Convert(d)
			if err != nil {
				t.Fatal(err)
			}
			off = 0
			for i, v := range again.Float32s() {
				off += math.Pow(float64(v-x[i]), 2)
			}
			if share := math.Sqrt(off / squares); !(share <= most[d]*1.5) {
				t.Errorf("%s: rounded twice, a relative error of %.4f", d, share)
			}
		}
		for v, want := range map[float32]string{float32(math.NaN()): "NaN is not a finite number", 3e38: "is larger than "} {
			x := make([]float32, cols)
			x[cols-1] = v
			if d.Format().Scales == nil && v == v { // of f32, or of its powers of two
				continue
			}
			if _, err := ArrayOf(x, 1, cols).Convert(d); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %g: %v", d, v, err)
			}
		}
	}
}

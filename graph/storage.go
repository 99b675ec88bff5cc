package graph

import (
	"fmt"
	"slices"
)

// Storage says where the checkpoint has a parameter and how it lies there.
// Rows (the first axis) of the parameter are taken from pieces, one after
// another, so that a parameter may lie interleaved in a tensor, or in several.
type Storage struct {
	Pieces []Piece
	Shape  []int // of each tensor in the file; nil: as the parameter
	Perm   []int // axis i of the parameter is axis Perm[i] of the tensor; nil: in order
}

// Piece is Count rows of a tensor: Start, Start+Step, … A Count of 0 means all.
type Piece struct {
	Tensor             string
	Start, Step, Count int
}

// Stored is the storage of a parameter that is one tensor of the file, whose
// shape there may have axes of size 1 more.
func Stored(tensor string, shape ...int) *Storage {
	return &Storage{Pieces: []Piece{{Tensor: tensor}}, Shape: shape}
}

// Load reads what rank holds of the parameter named param, of type t. Where
// nothing has to be moved the result is a view of the tensor that find returns.
func (s *Storage) Load(param string, t Type, ranks, rank int, find func(tensor string) (Array, error)) (Array, error) {
	if s == nil {
		s = Stored(param)
	}
	rows, err := s.rows(t, find)
	if err != nil {
		return Array{}, err
	}
	if rows.DType.Quantized() && t.DType != rows.DType {
		if rows, err = rows.Convert(t.DType); err != nil {
			return Array{}, err
		}
	}
	out := Array{DType: rows.DType, From: rows.From, Shape: t.Local(ranks, rank).shape()}
	if rows.DType.Quantized() {
		out.Data = cutBlocks(rows.Data, t, ranks, rank)
		return out, BlocksOf(t, ranks, rank).check(&out)
	}
	out.Data = cut(rows.Data, t, rows.DType.Bytes(), ranks, rank)
	return out.Convert(t.DType)
}

// rows assembles the whole parameter; a view when it is one tensor as it lies.
func (s *Storage) rows(t Type, find func(string) (Array, error)) (Array, error) {
	arrays, err := s.tensors(t, find)
	if err != nil {
		return Array{}, err
	}
	out := Array{DType: arrays[0].DType, From: arrays[0].From, Shape: t.shape()}
	var parts [][]byte
	for i, p := range s.Pieces {
		part, err := p.take(arrays[i], sizeOf(out.DType, out.Shape[min(1, len(out.Shape)):]))
		if err != nil {
			return Array{}, err
		}
		parts = append(parts, part)
	}
	if out.Data = parts[0]; len(parts) > 1 {
		out.Data = slices.Concat(parts...)
	}
	if want := sizeOf(out.DType, out.Shape); len(out.Data) != want {
		return Array{}, fmt.Errorf("%s: its pieces give %d bytes, expected %d for shape %v", out.From, len(out.Data), want, out.Shape)
	}
	return out, nil
}

// tensors finds those of all pieces; in f32, to which 16 bits and blocks are widened,
// where their formats differ.
func (s *Storage) tensors(t Type, find func(string) (Array, error)) ([]Array, error) {
	var out []Array
	alike := true
	for _, p := range s.Pieces {
		a, err := s.tensor(p, t, find)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
		alike = alike && a.DType == out[0].DType
	}
	if alike {
		return out, nil
	}
	for i, a := range out {
		var err error
		if out[i], err = a.Convert(F32); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tensor finds the tensor of a piece and brings its axes into order.
func (s *Storage) tensor(p Piece, t Type, find func(string) (Array, error)) (Array, error) {
	a, err := find(p.Tensor)
	if err != nil {
		return Array{}, err
	}
	if err := s.Fits(a, t); err != nil {
		return Array{}, err
	}
	if a.DType.Quantized() {
		if err := s.inBlocks(a, t); err != nil {
			return Array{}, err
		}
	}
	if s.Perm != nil {
		if len(s.Perm) != len(a.Shape) {
			return Array{}, fmt.Errorf("%s has shape %v, expected %d axes", a.From, a.Shape, len(s.Perm))
		}
		a = permute(a, s.Perm)
	}
	return a, nil
}

// Fits reports whether a tensor of the file has the shape that a parameter of
// type t needs, where the storage says which that is.
func (s *Storage) Fits(a Array, t Type) error {
	want := s.Shape
	if want == nil && len(s.Pieces) == 1 && s.Pieces[0].Count == 0 && s.Perm == nil {
		want = t.shape()
	}
	if want != nil && !slices.Equal(a.Shape, want) {
		return fmt.Errorf("%s has shape %v, expected %v", a.From, a.Shape, want)
	}
	return nil
}

// TensorShape returns the shape that a tensor of the pieces of a parameter of type t has in the
// file: Shape, or as many rows as the pieces read. It fails where the pieces leave the number of
// rows open.
func (s *Storage) TensorShape(tensor string, t Type) ([]int, error) {
	if s.Shape != nil {
		return s.Shape, nil
	}
	shape, rows := t.shape(), 0
	for _, p := range s.Pieces {
		if p.Tensor == tensor && p.Count > 0 {
			rows = max(rows, p.Start+p.Step*(p.Count-1)+1)
		}
	}
	switch {
	case rows > 0 && len(shape) > 0:
		shape[0] = rows
	case len(s.Pieces) > 1 && (len(shape) == 0 || shape[0]%len(s.Pieces) != 0):
		return nil, fmt.Errorf("the rows of tensor %q of several are not known", tensor)
	case len(s.Pieces) > 1:
		shape[0] /= len(s.Pieces)
	}
	if s.Perm == nil {
		return shape, nil
	}
	if len(s.Perm) != len(shape) {
		return nil, fmt.Errorf("perm %v of %d axes", s.Perm, len(shape))
	}
	inFile := make([]int, len(shape))
	for i, axis := range s.Perm {
		inFile[axis] = shape[i]
	}
	return inFile, nil
}

// take cuts the piece's rows, of size bytes each, out of a.
func (p Piece) take(a Array, size int) ([]byte, error) {
	if p.Count == 0 {
		return a.Data, nil
	}
	if last := p.Start + p.Step*(p.Count-1); p.Start < 0 || p.Step < 1 || (last+1)*size > len(a.Data) {
		return nil, fmt.Errorf("%s has shape %v: no rows %d to %d of %d bytes", a.From, a.Shape, p.Start, last, size)
	}
	if p.Step == 1 {
		return a.Data[p.Start*size : (p.Start+p.Count)*size], nil
	}
	out := make([]byte, 0, p.Count*size)
	for i := range p.Count {
		at := (p.Start + i*p.Step) * size
		out = append(out, a.Data[at:at+size]...)
	}
	return out, nil
}

// cut takes what rank holds of t out of data; one run of whole rows is a view.
func cut(data []byte, t Type, elem, ranks, rank int) []byte {
	if t.Layout.Kind != Sharded {
		return data
	}
	p, cols := PiecesOf(t, ranks, rank), RowElems(t.Dims)
	if line := cols * elem; p.Rows && len(p.List) == 1 {
		return data[p.List[0].Whole*line:][:p.List[0].N*line]
	}
	local := t.Local(ranks, rank).Dims
	stride := RowElems(local)
	out := make([]byte, local[0].Len()*stride*elem)
	p.Cut(out, data, cols, stride, elem)
	return out
}

// permute copies a with its axes in another order.
func permute(a Array, perm []int) Array {
	out := Array{DType: a.DType, From: a.From, Data: make([]byte, len(a.Data))}
	stride := make([]int, len(perm))
	for i, p := range perm {
		out.Shape = append(out.Shape, a.Shape[p])
		stride[i] = 1
		for _, d := range a.Shape[p+1:] {
			stride[i] *= d
		}
	}
	size := a.DType.Bytes()
	index := make([]int, len(perm))
	for i := range out.Elems() {
		at := 0
		for k, x := range index {
			at += x * stride[k]
		}
		copy(out.Data[i*size:(i+1)*size], a.Data[at*size:])
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < out.Shape[k] {
				break
			}
			index[k] = 0
		}
	}
	return out
}

func (s *Storage) equal(o *Storage) bool {
	if s == nil || o == nil {
		return s == o
	}
	return slices.Equal(s.Pieces, o.Pieces) && slices.Equal(s.Shape, o.Shape) && slices.Equal(s.Perm, o.Perm)
}

// valid checks what Load relies on.
func (s *Storage) valid() error {
	if s == nil {
		return nil
	}
	if len(s.Pieces) == 0 {
		return fmt.Errorf("a storage without pieces")
	}
	for _, p := range s.Pieces {
		if p.Start < 0 || p.Count < 0 || p.Count > 0 && p.Step < 1 || p.Count == 0 && (p.Start != 0 || p.Step != 0) ||
			p.Start > maxSize || p.Step > maxSize || p.Count > maxSize {
			return fmt.Errorf("tensor %q: rows [%d:%d:%d] are not valid", p.Tensor, p.Start, p.Step, p.Count)
		}
	}
	sorted := slices.Sorted(slices.Values(s.Perm))
	for i, x := range sorted {
		if i != x {
			return fmt.Errorf("perm %v is not an order of axes", s.Perm)
		}
	}
	for _, d := range s.Shape {
		if d < 0 || d > maxSize {
			return fmt.Errorf("shape %v is not valid", s.Shape)
		}
	}
	return nil
}

// Slice is the storage of size entries of an axis of a parameter of type t, from start on.
func (s *Storage) Slice(param string, t Type, axis, start, size int) (*Storage, error) {
	if s == nil {
		s = Stored(param)
	}
	switch {
	case s.Perm != nil && axis > 0 || axis > 1:
		return nil, fmt.Errorf("%s: only rows of a parameter, and parts of its rows if it is not permuted, can be taken apart", param)
	case axis == 1:
		return s.partOfRows(param, t, start, size)
	}
	out := &Storage{Shape: s.Shape, Perm: s.Perm}
	at := 0
	for _, p := range s.Pieces {
		if p.Count == 0 {
			if len(s.Pieces) > 1 {
				return nil, fmt.Errorf("%s: tensor %s of several gives no number of rows", param, p.Tensor)
			}
			p = Piece{p.Tensor, 0, 1, t.Dims[0].Len()}
		}
		lo, hi := max(start, at), min(start+size, at+p.Count)
		if lo < hi {
			out.Pieces = append(out.Pieces, Piece{p.Tensor, p.Start + (lo-at)*p.Step, p.Step, hi - lo})
		}
		at += p.Count
	}
	if out.Shape == nil && len(s.Pieces) == 1 && s.Pieces[0].Count == 0 {
		var err error
		if out.Shape, err = s.TensorShape(s.Pieces[0].Tensor, t); err != nil { // the file still has all of it
			return nil, fmt.Errorf("%s: %w", param, err)
		}
	}
	return out, nil
}

// partOfRows is the storage of size entries of the second axis. Where all parts of a row
// are of that size, they are rows of the tensor themselves, with that distance.
func (s *Storage) partOfRows(param string, t Type, start, size int) (*Storage, error) {
	all := t.Dims[1].Len()
	if len(s.Pieces) > 1 || s.Pieces[0].Count > 0 || size == 0 || start%size != 0 || all%size != 0 {
		return nil, fmt.Errorf("%s: %d of the %d parts of each row, from %d on, can be taken only of one tensor, and where all parts are of one size", param, size, all, start)
	}
	out := &Storage{Shape: s.Shape, Pieces: []Piece{{s.Pieces[0].Tensor, start / size, all / size, t.Dims[0].Len()}}}
	if out.Shape == nil {
		out.Shape = t.shape()
	}
	return out, nil
}

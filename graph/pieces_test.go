package graph

import (
	"bytes"
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// TestPieces: element by element, along any axis, with covers and empty parts, what
// a rank holds lies without gaps in the order of the whole.
func TestPieces(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		typ := drawSharded(t)
		ranks := rapid.IntRange(1, 9).Draw(t, "ranks")
		whole, cols := counting("w", 0, typ.shape()...), RowElems(typ.Dims)
		for rank := range ranks {
			want := heldBy(typ, ranks, rank)
			local := typ.Local(ranks, rank).Dims
			stride := RowElems(local)
			p := PiecesOf(typ, ranks, rank)
			part := make([]byte, 4*local[0].Len()*stride)
			p.Cut(part, whole.Data, cols, stride, 4)
			if got := ArrayOf(want); !bytes.Equal(part, got.Data) {
				t.Fatalf("rank %d of %d of %s holds %v, want %v", rank, ranks, typ, part, want)
			}
		}
	})
}

// drawSharded draws a type of up to four axes that is sharded along one of them.
func drawSharded(t *rapid.T) Type {
	typ := Type{DType: F32, Layout: Layout{Kind: Sharded}}
	for range rapid.IntRange(1, 4).Draw(t, "axes") {
		typ.Dims = append(typ.Dims, Size(rapid.IntRange(1, 3).Draw(t, "size")))
	}
	a, b, c := genField(t, "a"), genField(t, "b"), genField(t, "c")
	axis := rapid.IntRange(0, len(typ.Dims)-1).Draw(t, "axis")
	typ.Dims[axis], typ.Layout.Axis = Pack(a, b, c), axis
	typ.Layout.Place = []Placement{{Kind: Split}, {Kind: Whole}, {Cover, c.Units() * rapid.IntRange(1, 3).Draw(t, "heads per group")}}
	return typ
}

// heldBy lists the elements of the whole that a rank holds.
func heldBy(t Type, ranks, rank int) []float32 {
	runs, axis := t.Extents(nil, ranks, rank), t.Layout.Axis
	inner, all := 1, 1
	for i, d := range t.Dims {
		all *= d.Len()
		if i > axis {
			inner *= d.Len()
		}
	}
	var list []float32
	for i := range all {
		at := i / inner % t.Dims[axis].Len()
		if slices.ContainsFunc(runs, func(r Run) bool { return r.Start <= at && at < r.End() }) {
			list = append(list, float32(i))
		}
	}
	return list
}

// TestPiecesOfACache: the rows of a cache are those of sequences and tokens, whose
// numbers are not in the type; what is not sharded is one stretch.
func TestPiecesOfACache(t *testing.T) {
	cache := Type{DType: F32, Dims: []Dim{Symbol(Seqs), Symbol(Cached), Units(4, 2), Size(3)}, Layout: SplitOn(2, 1)}
	want := Pieces{List: []Stretch{{Whole: 6, N: 6}}}
	if got := PiecesOf(cache, 2, 1); got.Rows || !slices.Equal(got.List, want.List) {
		t.Errorf("rank 1 of a cache: %v, want %v", got, want)
	}
	whole := TypeOf(F32, Symbol(Tokens), Size(5), Size(2))
	if got := PiecesOf(whole, 3, 2); got.Rows || !slices.Equal(got.List, []Stretch{{0, 0, 10}}) {
		t.Errorf("rank 2 of what all hold: %v", got)
	}
}

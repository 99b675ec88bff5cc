package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Type is what a value is: its number format, its shape, and how it lies over the ranks.
type Type struct {
	DType  DType
	Dims   []Dim
	Layout Layout
	// Context is how the value lies along CP where the graph's mesh has both axes; Layout is how it
	// lies along TP then.
	Context Layout
}

// TypeOf is a replicated type.
func TypeOf(d DType, dims ...Dim) Type { return Type{DType: d, Dims: dims} }

// Elems is the number of elements of the whole value. The axes s c of a cache are
// ragged, each sequence has its own length: together they have c entries.
func (t Type) Elems() Poly {
	dims := t.Dims
	if t.Ragged() {
		dims = dims[1:]
	}
	n := Const(1)
	for _, d := range dims {
		n = n.Times(d.Poly())
	}
	return n
}

// Ragged reports whether the value is a cache, with a row per sequence and token.
func (t Type) Ragged() bool {
	return len(t.Dims) > 1 && t.Dims[0].Sym == Seqs && t.Dims[1].Sym == Cached
}

// Bytes is the size of the whole value.
func (t Type) Bytes() Poly {
	if t.DType.Quantized() {
		return Const(int64(BlocksOf(t, 1, 0).Bytes(t.Lines())))
	}
	if t.DType.InBlocks() {
		return t.Dims[0].Poly().Times(Const(int64(t.DType.RowBytes(RowElems(t.Dims)))))
	}
	return t.Elems().Times(Const(int64(t.DType.Bytes())))
}

// shape lists the sizes of the axes, none of which is a symbol.
func (t Type) shape() []int {
	shape := make([]int, len(t.Dims))
	for i, d := range t.Dims {
		shape[i] = d.Len()
	}
	return shape
}

// Equal reports whether dtype, dims (with their names) and layout agree.
func (t Type) Equal(u Type) bool {
	if t.DType != u.DType || len(t.Dims) != len(u.Dims) || !t.Layout.Equal(u.Layout) || !t.Context.Equal(u.Context) {
		return false
	}
	for i := range t.Dims {
		if !t.Dims[i].equal(u.Dims[i]) {
			return false
		}
	}
	return true
}

// clone is t with memory of its own.
func (t Type) clone() Type {
	t.Dims, t.Layout.Place, t.Context.Place = slices.Clone(t.Dims), slices.Clone(t.Layout.Place), slices.Clone(t.Context.Place)
	for i := range t.Dims {
		t.Dims[i].Fields = slices.Clone(t.Dims[i].Fields)
	}
	return t
}

// MaxRank is the most axes that a value may have.
const MaxRank = 6

// Valid reports what is wrong with a type that did not come from inference.
func (t Type) Valid() error {
	if t.DType == NoDType {
		return errors.New("no dtype")
	}
	if len(t.Dims) > MaxRank {
		return fmt.Errorf("%d axes; at most %d are supported", len(t.Dims), MaxRank)
	}
	elems := 1
	for _, d := range t.Dims {
		if err := d.valid(); err != nil {
			return err
		}
		if d.Sym == 0 && d.Len() > 0 {
			if elems > maxSize/d.Len() {
				return fmt.Errorf("more than %d elements", maxSize)
			}
			elems *= d.Len()
		}
	}
	if t.DType.Quantized() {
		if err := t.inBlocks(); err != nil {
			return err
		}
	}
	if t.DType.InBlocks() {
		if err := t.inRows(); err != nil {
			return err
		}
	}
	if err := t.Layout.valid(t.Dims); err != nil {
		return err
	}
	return t.validContext()
}

// String writes the type as graph text does: f32[t x:256|z:256] shard(1: x=split z=split).
func (t Type) String() string {
	parts := make([]string, len(t.Dims))
	for i, d := range t.Dims {
		parts[i] = d.String()
	}
	s := t.DType.String() + "[" + strings.Join(parts, " ") + "]"
	if l := t.LayoutString(); l != "" {
		s += " " + l
	}
	return s
}

// LayoutString writes the layout alone, empty when the value is replicated: that along CP, where it
// has one of its own, comes last.
func (t Type) LayoutString() string {
	if t.Context.Kind != Replicated {
		return strings.TrimPrefix(t.On(TP).LayoutString()+" cp "+t.On(CP).LayoutString(), " ")
	}
	switch t.Layout.Kind {
	case Partial:
		return "partial"
	case Sharded:
		return t.shardString()
	}
	return ""
}

func (t Type) shardString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shard(%d:", t.Layout.Axis)
	if t.Layout.ByBatch() {
		return b.String() + " " + t.Layout.Place[0].String() + ")"
	}
	for i, f := range t.Dims[t.Layout.Axis].Fields {
		b.WriteByte(' ')
		if f.Name != "" {
			b.WriteString(f.Name + "=")
		}
		b.WriteString(t.Layout.Place[i].String())
	}
	return b.String() + ")"
}

// String writes whole, split, cover/80, even, sequence or parts.
func (p Placement) String() string {
	switch p.Kind {
	case Split:
		return "split"
	case Cover:
		return fmt.Sprintf("cover/%d", p.Of)
	case Even:
		return "even"
	case BySequence:
		return "sequence"
	case InParts:
		return "parts"
	}
	return "whole"
}

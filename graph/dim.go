package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Field is a named part of a dimension. Unit is the number of neighbouring elements that one unit
// has: 1 for channels, the head size for heads. A shard does not cut a unit apart, and ranks own
// units. A Unit of 0 means that the field has no units (model width, dt rank, state size): no rank
// owns parts of it, though a layout may cut it anywhere.
type Field struct {
	Name       string
	Size, Unit int
}

// Grain is the number of elements that a shard keeps together.
func (f Field) Grain() int { return max(f.Unit, 1) }

// Units is the number of pieces that a shard may be made of.
func (f Field) Units() int { return f.Size / f.Grain() }

// Dim is one axis of a shape: either a symbol or a list of fields, of which a
// packed axis has several and a plain one has one without a name.
type Dim struct {
	Sym    Sym // 0 when the size is fixed
	Fields []Field
	// Over is the number of ranks of which each has a share of the rows; 0: all are here.
	// Only what a rank holds has it, see [Type.Local].
	Over int
	// Times is how many rows there are for each of the symbol: the parts of a sequence, see
	// [InParts]. 0: one.
	Times int
}

// maxSize bounds a dimension, so that products of a shape cannot overflow unnoticed.
const maxSize = 1 << 40

// Size is a plain axis of n elements without units.
func Size(n int) Dim { return Units(n, 0) }

// Units is a plain axis of n elements, unit to a unit.
func Units(n, unit int) Dim { return Dim{Fields: []Field{{Size: n, Unit: unit}}} }

// Symbol is an axis whose size is known when a batch is.
func Symbol(s Sym) Dim { return Dim{Sym: s} }

// Pack is an axis of several named fields, in the order of the checkpoint.
func Pack(fields ...Field) Dim { return Dim{Fields: fields} }

// Len is the number of elements of a fixed axis, 0 for a symbol.
func (d Dim) Len() int {
	n := 0
	for _, f := range d.Fields {
		n += f.Size
	}
	return n
}

// Poly is the number of elements.
func (d Dim) Poly() Poly {
	switch {
	case d.Over > 0:
		return Share(d.Sym, d.Over)
	case d.Sym != 0:
		return Var(d.Sym).Times(Const(int64(max(1, d.Times))))
	}
	return Const(int64(d.Len()))
}

// At is the size of a symbolic axis in a batch.
func (d Dim) At(z Sizes) int { return int(z.Of(d.Sym)) * max(1, d.Times) }

// Field finds a field by name and says where it starts.
func (d Dim) Field(name string) (f Field, index, start int, ok bool) {
	for i, f := range d.Fields {
		if f.Name == name {
			return f, i, start, true
		}
		start += f.Size
	}
	return Field{}, 0, 0, false
}

// Run finds neighbouring fields by their names, joined by "|": where the first
// is, how many there are, and where they start.
func (d Dim) Run(names string) (first, n, start int, ok bool) {
	list := strings.Split(names, "|")
	_, first, start, ok = d.Field(list[0])
	if !ok || list[0] == "" || first+len(list) > len(d.Fields) {
		return 0, 0, 0, false
	}
	for i, name := range list {
		if d.Fields[first+i].Name != name {
			return 0, 0, 0, false
		}
	}
	return first, len(list), start, true
}

// same reports whether two axes may be walked by one index: equal sizes, cut at
// the same places, field by field. Names do not matter.
func (d Dim) same(e Dim) bool {
	if d.Sym != e.Sym || d.Over != e.Over || d.Times != e.Times || len(d.Fields) != len(e.Fields) {
		return false
	}
	for i, f := range d.Fields {
		if f.Size != e.Fields[i].Size || f.Grain() != e.Fields[i].Grain() {
			return false
		}
	}
	return true
}

// equal compares names and units, too.
func (d Dim) equal(e Dim) bool {
	return d.Sym == e.Sym && d.Over == e.Over && d.Times == e.Times && slices.Equal(d.Fields, e.Fields)
}

// RowElems is the number of elements below the first axis, whose size may be a
// symbol; of a cache, below the first two.
func RowElems(dims []Dim) int {
	n := 1
	for i, d := range dims {
		if i > 0 && d.Sym == 0 {
			n *= d.Len()
		}
	}
	return n
}

func (d Dim) valid() error {
	if d.Sym != 0 {
		if !d.Sym.ofBatch() || len(d.Fields) > 0 || d.Over != 0 {
			return fmt.Errorf("unknown symbol %q", rune(d.Sym))
		}
		if d.Times != 0 && (d.Sym != Seqs || d.Times < 2 || d.Times > MaxRanks) {
			return fmt.Errorf("%s: only s, the sequences, has parts, and from 2 to %d of them", d, MaxRanks)
		}
		return nil
	}
	if len(d.Fields) == 0 {
		return errors.New("an axis without fields")
	}
	total := 0
	for i, f := range d.Fields {
		switch {
		case f.Size < 0 || f.Size > maxSize || f.Unit < 0 || f.Unit > maxSize:
			return fmt.Errorf("field %s has size %d and unit %d", f, f.Size, f.Unit)
		case f.Size%f.Grain() != 0:
			return fmt.Errorf("field %s: unit %d does not divide size %d", f, f.Unit, f.Size)
		case len(d.Fields) > 1 && (!validName(f.Name) || slices.ContainsFunc(d.Fields[:i], func(e Field) bool { return e.Name == f.Name })):
			return fmt.Errorf("the fields of a packed axis need different names, found %q", f.Name)
		case f.Name != "" && !validName(f.Name):
			return fmt.Errorf("%q is not a name for a field", f.Name)
		}
		if total += f.Size; total > maxSize {
			return fmt.Errorf("an axis of more than %d elements", maxSize)
		}
	}
	return nil
}

// String writes the field as x:5120/64; name and unit are left out where they say nothing.
func (f Field) String() string {
	s := fmt.Sprint(f.Size)
	if f.Name != "" {
		s = f.Name + ":" + s
	}
	if f.Unit != 0 {
		s += fmt.Sprintf("/%d", f.Unit)
	}
	return s
}

// String writes the axis as graph text does: t, s*4, 2560, or x:256|z:256.
func (d Dim) String() string {
	switch {
	case d.Over > 0:
		return fmt.Sprintf("%c/%d", d.Sym, d.Over)
	case d.Times > 0:
		return fmt.Sprintf("%c*%d", d.Sym, d.Times)
	case d.Sym != 0:
		return string(rune(d.Sym))
	}
	parts := make([]string, len(d.Fields))
	for i, f := range d.Fields {
		parts[i] = f.String()
	}
	return strings.Join(parts, "|")
}

// validName accepts what graph text reads as one name: letters, digits and _.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return false
		}
	}
	return s != ""
}

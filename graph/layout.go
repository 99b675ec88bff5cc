package graph

import (
	"fmt"
	"slices"
)

// LayoutKind says in what sense the ranks together hold a value.
type LayoutKind uint8

// The kinds of layout.
const (
	Replicated LayoutKind = iota // every rank holds the whole value
	Sharded                      // ranks hold parts along one axis
	Partial                      // every rank holds a summand; the value is their sum
)

// PlaceKind says how one field of the sharded axis lies over the ranks.
type PlaceKind uint8

// The kinds of placement.
const (
	Whole PlaceKind = iota // every rank has the field
	Split                  // ranks own disjoint runs of units, as even as possible
	Cover                  // ranks hold the runs of groups that their share of Of units needs; runs may overlap

	// Of the first axis, where its size is a symbol: ranks own disjoint runs of rows, which
	// depend on the batch.
	Even       // cut anywhere, as even as possible
	BySequence // of tokens: runs end where sequences end, as close to even as these let them
	InParts    // of tokens: of each sequence a run, see [PartOf]; a rank has several runs of rows
)

// Placement is how a field lies over the ranks. Of is used by Cover only: the number of units
// (heads) that are split over the ranks and that share the groups of this field.
type Placement struct {
	Kind PlaceKind
	Of   int
}

// Layout is how a value lies over the ranks. Axis and Place (one per field of
// that axis) are used by Sharded only.
type Layout struct {
	Kind  LayoutKind
	Axis  int
	Place []Placement
}

// SplitOn is the layout in which every field of an axis with n fields is split.
func SplitOn(axis, n int) Layout {
	return Layout{Kind: Sharded, Axis: axis, Place: slices.Repeat([]Placement{{Kind: Split}}, n)}
}

// SplitRows is the layout in which the rows of a batch are split, even or by sequence.
func SplitRows(place PlaceKind) Layout {
	return Layout{Kind: Sharded, Place: []Placement{{Kind: place}}}
}

// ByBatch reports whether what ranks hold depends on the batch.
func (l Layout) ByBatch() bool { return l.Kind == Sharded && l.Place[0].Kind >= Even }

// Equal reports whether two layouts are the same.
func (l Layout) Equal(m Layout) bool {
	if l.Kind != m.Kind || l.Kind != Sharded {
		return l.Kind == m.Kind
	}
	return l.Axis == m.Axis && slices.Equal(l.Place, m.Place)
}

// disjoint reports whether no element is held by two ranks.
func (l Layout) disjoint() bool {
	return !slices.ContainsFunc(l.Place, func(p Placement) bool { return p.Kind == Whole || p.Kind == Cover })
}

func (l Layout) valid(dims []Dim) error {
	if l.Kind != Sharded {
		return nil
	}
	if l.Axis < 0 || l.Axis >= len(dims) {
		return fmt.Errorf("sharded on axis %d of a value with %d axes", l.Axis, len(dims))
	}
	d := dims[l.Axis]
	if d.Sym != 0 {
		return l.validRows(dims)
	}
	if len(l.Place) != len(d.Fields) {
		return fmt.Errorf("%d placements for the %d fields of %s", len(l.Place), len(d.Fields), d)
	}
	for i, p := range l.Place {
		f := d.Fields[i]
		if p.Kind >= Even {
			return fmt.Errorf("%s is a placement of the rows of a batch, and %s are none", p, d)
		}
		if p.Kind == Cover && (p.Of < 1 || p.Of > maxSize || f.Units() == 0 || p.Of%f.Units() != 0) {
			return fmt.Errorf("cover/%d of field %s: %d units do not share %d groups evenly", p.Of, f, p.Of, f.Units())
		}
	}
	return nil
}

// validRows checks a layout on a symbol.
func (l Layout) validRows(dims []Dim) error {
	d := dims[l.Axis]
	switch {
	case len(l.Place) != 1 || l.Place[0].Kind < Even:
		return fmt.Errorf("the symbolic axis %s is split even, by sequence or in parts", d)
	case l.Axis > 0 || d.Sym != Tokens && d.Sym != Seqs && d.Sym != Rows || len(dims) > 1 && dims[1].Sym != 0:
		return fmt.Errorf("sharded on the symbolic axis %s; of those, the first may be, if it is t, s or o", d)
	case l.Place[0].Kind >= BySequence && d.Sym != Tokens:
		return fmt.Errorf("%s is split by %s; only t may be", d, l.Place[0])
	}
	return nil
}

package graph

// Run is a stretch of consecutive elements along the sharded axis of the global
// tensor. A rank stores its runs one after another.
type Run struct{ Start, Len int }

// End is the index after the last element.
func (r Run) End() int { return r.Start + r.Len }

// Owned is the run of units that rank owns when units are split over ranks: as
// even as possible, possibly none. Everything that is split in the same number
// of units lies the same way.
func Owned(units, ranks, rank int) Run {
	lo, hi := rank*units/ranks, (rank+1)*units/ranks
	return Run{lo, hi - lo}
}

// Extents lists, field by field, what a rank holds of the axis that t is
// sharded on. It is the only place where the offset of a shard is computed:
// weight slicing, state slicing, moving state between rank counts and the
// checks all use it. A value that is not sharded gives nil: it is held whole.
func (t Type) Extents(ranks, rank int) []Run {
	if t.Layout.Kind != Sharded {
		return nil
	}
	fields := t.Dims[t.Layout.Axis].Fields
	runs := make([]Run, len(fields))
	start := 0
	for i, f := range fields {
		r := placed(f, t.Layout.Place[i], ranks, rank)
		runs[i] = Run{start + r.Start*f.Grain(), r.Len * f.Grain()}
		start += f.Size
	}
	return runs
}

// placed is the run of the field's units that a rank holds.
func placed(f Field, p Placement, ranks, rank int) Run {
	switch p.Kind {
	case Split:
		return Owned(f.Units(), ranks, rank)
	case Cover:
		return covering(Owned(p.Of, ranks, rank), p.Of/f.Units())
	}
	return Run{0, f.Units()}
}

// covering is the run of groups, of size units each, that a run of units touches.
func covering(r Run, size int) Run {
	if r.Len == 0 {
		return Run{r.Start / size, 0}
	}
	lo := r.Start / size
	return Run{lo, (r.End()+size-1)/size - lo}
}

// Local is the type of what a rank holds: t with the sharded axis cut down to
// the rank's extents, and no layout.
func (t Type) Local(ranks, rank int) Type {
	out := Type{DType: t.DType, Dims: append([]Dim(nil), t.Dims...)}
	for i, r := range t.Extents(ranks, rank) {
		if i == 0 {
			d := t.Dims[t.Layout.Axis]
			out.Dims[t.Layout.Axis] = Dim{Fields: append([]Field(nil), d.Fields...)}
		}
		out.Dims[t.Layout.Axis].Fields[i].Size = r.Len
	}
	return out
}
